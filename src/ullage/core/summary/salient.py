"""The sentences that must not be lost: what a summariser is shown first, and checked for after.

They are chosen by worth for each token, quoted as data like all else, and listed in the order of
time. It finds no sentences, weighs none, and knows no prompt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ullage.core.facts.coverage import Coverage
from ullage.core.summary.pieces import Scrap, line

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence


class Salient(NamedTuple):
    """A sentence worth keeping, and where it stands: in which message, at which place in it.

    `label` says who said it, `rare` are its words by which `Coverage` finds it.
    """

    message: int
    place: int
    label: str
    text: str
    worth: float
    rare: frozenset[str]


MISSES: Final = 20
"""Sentences that may be too long for what is left before the list counts as full."""


def choose_salient(
    found: Iterable[Salient],
    messages: Collection[int],
    tokens: int,
    count: Callable[[str], int],
) -> list[Salient]:
    """Return the best sentences of these messages in at most `tokens`, in the order of time."""
    mine = [each for each in found if each.message in messages]
    mine.sort(key=lambda each: -each.worth / len(each.text))
    chosen: list[Salient] = []
    known: set[str | frozenset[str]] = set()
    misses = 0
    for each in mine:
        said = each.rare or each.text
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
    """Return sentences as they are shown, a line each."""
    return "\n".join(line(Scrap(each.label, each.text, each.message)) for each in chosen)


def find_lost(chosen: Iterable[Salient], prose: str) -> list[Salient]:
    """Return the sentences that prose does not carry."""
    held = Coverage(prose)
    return [each for each in chosen if not held.carries(each.text, each.rare)]
