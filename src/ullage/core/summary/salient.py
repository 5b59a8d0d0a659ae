"""The sentences that must not be lost: shown to a summariser first, and checked afterwards.

They are chosen by worth per token, quoted as data like all else, and listed in the order of time.
This module finds no sentences, weighs none, and knows no prompt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ullage.core.facts.coverage import Coverage
from ullage.core.facts.salience import NAMED
from ullage.core.summary.pieces import Scrap, line

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence


class Salient(NamedTuple):
    """A sentence worth keeping, its message, and its place in that message.

    `label` names the speaker, `rare` has the rare words that `Coverage` looks for.
    """

    message: int
    place: int
    label: str
    text: str
    worth: float
    rare: frozenset[str]


LEAST_RARE: Final = 3
"""A sentence without a name or a number needs this many rare words to carry information."""

LEAST_WORTH: Final = 0.25
"""A sentence is skipped below this share of the best sentence's worth per length."""

AROUND: Final = 8
"""Characters of overhead per sentence, so that short ones gain no advantage."""

MISSES: Final = 20
"""Sentences that may be too long for the rest before the list counts as full."""


def tells_something(rare: frozenset[str]) -> bool:
    """Tell whether a sentence of these rare words has information that could be lost."""
    return len(rare) >= LEAST_RARE or any(word.startswith(NAMED) for word in rare)


def _order(each: Salient) -> float:
    return -each.worth / (len(each.text) + AROUND)


def choose_salient(
    found: Iterable[Salient],
    messages: Collection[int],
    tokens: int,
    count: Callable[[str], int],
) -> list[Salient]:
    """Return the best sentences of these messages in at most `tokens`, in the order of time."""
    mine = sorted((each for each in found if each.message in messages), key=_order)
    least = LEAST_WORTH * -_order(mine[0]) if mine else 0.0
    chosen: list[Salient] = []
    known: set[str | frozenset[str]] = set()
    misses = 0
    for each in mine:
        said = each.rare or each.text
        if -_order(each) < least:
            break
        if said in known:
            continue
        size = count(quote_salient([each])) + 1
        if size > tokens:
            misses += 1
            if misses > MISSES:
                break
            continue
        tokens -= size
        known.add(said)
        chosen.append(each)
    return sorted(chosen, key=lambda each: (each.message, each.place))


def quote_salient(chosen: Sequence[Salient]) -> str:
    """Return sentences as the summariser sees them, one per line."""
    return "\n".join(line(Scrap(each.label, each.text, each.message)) for each in chosen)


def find_lost(chosen: Iterable[Salient], prose: str) -> list[Salient]:
    """Return the sentences that prose does not carry."""
    held = Coverage(prose)
    return [each for each in chosen if not held.carries(each.text, each.rare)]
