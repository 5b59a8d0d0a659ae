"""Finds the earlier content that later turns use: rare words, files, values, repeated calls.

A session itself shows which content was worth keeping: the user or the model returns to it. This
module goes by names, numbers and words that occur in few messages, in any language. It knows no
policy: the caller tells which of it was still in the request.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from ullage.core.compaction.faults import list_keys
from ullage.core.facts.salience import find_author
from ullage.core.facts.segments import find_words

if TYPE_CHECKING:
    from ullage.core.messages.transcript import Message

Kind = Literal["words", "files", "values"]
KINDS: Final[tuple[Kind, ...]] = ("words", "files", "values")

FEW: Final = 3
"""Most messages with a plain word for it to be rare. Names and numbers always count."""

LEAST: Final = 4
"""Shortest plain word, in characters: shorter ones are mostly grammar."""


class UsedTerm(NamedTuple):
    """A used term: the term, its kind, and the message that uses it."""

    term: str
    kind: Kind
    place: int


class CallAgain(NamedTuple):
    """A repeated call, word for word: the positions of the earlier call and its result."""

    places: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TurnUses:
    """The content that one turn uses: in the user's message, and in the answer."""

    terms: tuple[UsedTerm, ...] = ()
    calls: tuple[CallAgain, ...] = ()


@dataclass(frozen=True, slots=True)
class SessionUses:
    """The content that each turn of a session uses, and the positions of each term."""

    turns: tuple[TurnUses, ...]
    where: dict[str, list[int]]

    def find_source(self, used: UsedTerm, is_there: Callable[[int], bool]) -> int | None:
        """Return the newest message with a term, or None if any message with it is still there."""
        places = self.where[used.term]
        last = bisect_left(places, used.place) - 1
        for number in range(last, -1, -1):
            if is_there(places[number]):
                return None
        return places[last]


def list_message_terms(message: Message) -> set[str]:
    """Return the terms of a message, including those of its calls."""
    found: set[str] = set()
    for part in message.parts:
        if part.kind in ("text", "result", "refusal"):
            found.update(find_words(part.text))
    for call in message.calls:
        found.update(find_words(call.arguments))
    return set(map(str.casefold, found))


def find_uses(messages: Sequence[Message], stops: Sequence[int]) -> SessionUses:
    """Return the uses of a session's turns; `stops` are the sizes of their requests."""
    spoken = {
        place: list_message_terms(message)
        for place, message in enumerate(messages)
        if not message.is_system and find_author(message) != "tool"
    }
    known = set[str]().union(*spoken.values())
    where: dict[str, list[int]] = {}
    taken: dict[int, list[UsedTerm]] = {}
    for place, message in enumerate(messages):
        mine = spoken.get(place)
        terms = mine if mine is not None else list_message_terms(message) & known
        if mine is not None:
            taken[place] = list(_list_taken(mine, where, place))
        for term in terms:
            where.setdefault(term, []).append(place)
    calls = dict(_find_calls(messages))
    ends = [*stops[1:], len(messages)]
    turns = []
    before = 0
    for stop, end in zip(stops, ends, strict=True):
        places = (*_list_said(messages, before, stop), *_list_answer(messages, stop, end))
        turns.append(_join(places, taken, calls))
        before = stop
    return SessionUses(tuple(turns), where)


def _join(
    places: Iterable[int],
    taken: dict[int, list[UsedTerm]],
    calls: dict[int, list[CallAgain]],
) -> TurnUses:
    found = list(places)
    terms = tuple(used for place in found for used in taken.get(place, ()))
    return TurnUses(terms, tuple(again for place in found for again in calls.get(place, ())))


def _list_taken(terms: set[str], where: dict[str, list[int]], place: int) -> Iterator[UsedTerm]:
    for term in terms:
        before = where.get(term)
        if before is None:
            continue
        kind = find_kind(term)
        if kind is not None and (kind != "words" or len(before) <= FEW):
            yield UsedTerm(term, kind, place)


def find_kind(term: str) -> Kind | None:
    """Return the kind of a term from its form, or None for a short plain word."""
    if "/" in term or _ends_as_file(term):
        return "files"
    if any(map(str.isdigit, term)):
        return "values"
    if not term.isascii() or not term.isalpha() or len(term) >= LEAST:
        return "words"
    return None


def _ends_as_file(term: str) -> bool:
    stem, dot, ending = term.rpartition(".")
    return bool(dot and stem and 0 < len(ending) <= 4 and ending[0].isalpha() and ending.isalnum())


def _list_said(messages: Sequence[Message], start: int, stop: int) -> Iterator[int]:
    """Yield the messages before a call, without the answer to the previous call."""
    return (place for place in range(start, stop) if messages[place].role != "assistant")


def _list_answer(messages: Sequence[Message], start: int, stop: int) -> Iterator[int]:
    return (place for place in range(start, stop) if messages[place].role == "assistant")


def _find_calls(messages: Sequence[Message]) -> Iterator[tuple[int, list[CallAgain]]]:
    """Yield the repeated calls of each message, with their last earlier positions."""
    made: dict[str, tuple[int, ...]] = {}
    results = {
        answered: place for place, message in enumerate(messages) for answered in message.results
    }
    for place, message in enumerate(messages):
        again: list[CallAgain] = []
        for call, key in zip(message.calls, list_keys(message), strict=True):
            if not key:
                continue
            if key in made:
                again.append(CallAgain(made[key]))
            result = results.get(call.id)
            made[key] = (place,) if result is None else (place, result)
        if again:
            yield place, again
