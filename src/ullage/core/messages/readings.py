"""Histories that were read before, so that only the new part of a longer one is read.

A reading is found by comparing the caller's messages with copies made when they were read. So a
message that was changed in place is noticed, and a history that was cut back keeps the part before
the cut. This module knows no dialect: a codec passes in the function that reads one message.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from itertools import islice, takewhile
from operator import eq
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from ullage.core.messages.transcript import Message, Raw, Rules, Transcript

MOST_READINGS: Final = 64
"""Most histories that are kept; each costs two comparisons of messages per request."""

MOST_BYTES: Final = 16 * 1024 * 1024
"""Approximate bytes of the histories that are kept. The newest is always kept."""

BESIDE: Final = 500
"""Approximate bytes of a message's copy in addition to its text."""

OVERTAKEN: Final = (8, 16, 32)
"""Numbers of newer histories after which a reading drops the findings of its messages for a
compaction, which weigh 15 to 26 times as much as their text. Several, because a slow compaction may
still be running.
"""

MOST_STEPS: Final = 4
"""Lengths of a history whose derived values are kept: if an answer or two are taken back, the
values for the shorter history still hold.
"""

if TYPE_CHECKING:
    from collections.abc import Mapping

ReadMessage = Callable[[Raw, int], Message]
"""A function that reads the message at a position."""


class AsWritten(Protocol):
    """A memo value that depends on how messages are written, not only on their meaning."""

    def keep_before(self, place: int) -> AsWritten:
        """Return the part that still holds if messages from `place` on are written differently."""
        ...


def limit_memo(memo: Mapping[str, Any], place: int) -> dict[str, Any]:
    """Return the part of a memo that holds if messages from `place` on are written differently.

    Clients move cache marks to their last messages with every request.
    """
    return {
        key: (done, value.keep_before(place)) if hasattr(value, "keep_before") else (done, value)
        for key, (done, value) in memo.items()
    }


class Derived(NamedTuple):
    """A former length of a history, the values derived at that length, and their bytes, about."""

    size: int
    memo: dict[str, Any]
    weight: int


class Reading(NamedTuple):
    """A history as it was read, up to the first message that cannot be copied.

    `steps` are its former lengths, longest first; the first is the whole. The memo is that of a
    transcript; it is empty if the transcript has further messages. `mark` is that of its first
    message.
    """

    copies: tuple[Raw, ...]
    messages: tuple[Message, ...]
    steps: tuple[Derived, ...]
    mark: int = 0

    @property
    def weight(self) -> int:
        """Its approximate size in bytes."""
        return self.steps[0].weight

    def forget_findings(self) -> None:
        """Drop the findings of its messages."""
        for message in self.messages:
            message.forget_findings()

    def find_step(self, length: int) -> Derived:
        """Return the longest step of at most `length` messages."""
        return next((step for step in self.steps if step.size <= length), START)


START: Final = Derived(0, {}, 0)
NOTHING: Final = Reading((), (), (START,))


class Readings:
    """The histories that one codec read last, within about `most` bytes.

    Threads may share it. If two of them store at the same moment, one reading may be lost, nothing
    else.
    """

    def __init__(self, most: int = MOST_BYTES) -> None:
        self._most = most
        self._held: tuple[tuple[Reading, ...], int] = ((), 0)
        self._marks: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self._held[0])

    def read(self, raws: tuple[Raw, ...], rules: Rules, read_message: ReadMessage) -> Transcript:
        """Read a history; messages that are known at the same place are not read again.

        Raises what `read_message` raises.
        """
        known = self._find(raws)
        length = known.length
        new: list[Message] = []
        copies: list[Raw] = []
        plain = True
        for index in range(length, len(raws)):
            new.append(read_message(raws[index], index))
            if plain:
                try:
                    copies.append(copy_value(raws[index]))
                except (TypeError, RecursionError):
                    plain = False  # later messages cannot be compared
        known = known.extend(new)
        same = known.same - length
        messages = (*known.reading.messages[: known.same], *new[same:])
        transcript = Transcript(raws, messages, rules, known.recall())
        self._keep(known, copies, transcript)
        return transcript

    def _find(self, raws: tuple[Raw, ...]) -> _Found:
        """Return the reading that shares the longest beginning with `raws`, and the longest step.

        The two may come from different readings: if a conversation repeats the messages of another
        one, that one has the messages, but the derived values are from its own reading.
        """
        found, longest, step, giver = NOTHING, 0, START, NOTHING
        first = raws[0] if raws else None
        mark = make_mark(first)
        held, marks = self._held[0], self._marks
        if mark and mark not in marks and 0 not in marks:
            return _Found(found, longest, longest, step, giver)
        alike = [r for r in held if not mark or r.mark in (mark, 0)]
        for reading in alike[::-1]:
            if reading.copies[0] != first:
                continue
            if len(reading.copies) <= step.size:
                continue
            shared = _count_shared(raws, reading.copies, longest)
            if not shared:
                continue
            if shared > longest:
                found, longest = reading, shared
            begun = reading.find_step(shared)
            if begun.size > step.size:
                step, giver = begun, reading
        return _Found(found, longest, longest, step, giver)

    def _keep(self, known: _Found, new: list[Raw], transcript: Transcript) -> None:
        """Store a history as the newest; the readings that it continues are replaced by it."""
        copies = (*known.reading.copies[: known.length], *new)
        if not copies:
            return
        size, begun = len(copies), known.step
        messages = transcript.messages[:size]
        weight = begun.weight + sum([BESIDE + m.characters for m in messages[begun.size :]])
        memo = transcript.memo if size == len(transcript) else {}
        steps = [known.limit(s) for s in known.giver.steps if 0 < s.size <= begun.size]
        steps = [step for step in steps if step.size < size]
        steps = [Derived(size, memo, weight), *steps][:MOST_STEPS]
        made = Reading(copies, messages, tuple(steps), make_mark(copies[0]))
        kept, total = known.leave(*self._held)
        total += weight
        gone = 0
        while gone < len(kept) and (total > self._most or len(kept) - gone >= MOST_READINGS):
            total -= kept[gone].weight
            gone += 1
        others = kept[gone:]
        for reading in (*kept[:gone], *(others[-age] for age in OVERTAKEN if age <= len(others))):
            reading.forget_findings()
        # marks that are briefly older or newer than the readings only cost one more reading
        self._marks = (*[reading.mark for reading in others], made.mark)
        self._held = (*others, made), total


class _Found(NamedTuple):
    """A reading that shares `length` messages with a history, and a shared step.

    The first `same` messages mean the same, however they are written. `giver` is the reading of the
    step.
    """

    reading: Reading
    length: int
    same: int
    step: Derived
    giver: Reading

    def extend(self, new: list[Message]) -> _Found:
        """Return it with the messages after `length` that mean the same, and their step."""
        if not new or len(self.reading.messages) == self.length:
            return self
        behind = islice(self.reading.messages, self.length, None)
        same = self.length + sum(1 for _ in takewhile(bool, map(eq, behind, new)))
        step = self.reading.find_step(same)
        if step.size <= self.step.size:
            return self._replace(same=same)
        return self._replace(same=same, step=step, giver=self.reading)

    def recall(self) -> dict[str, Any]:
        """Return the values derived from the first messages, as far as they still hold."""
        return dict(self.limit(self.step).memo)

    def limit(self, step: Derived) -> Derived:
        """Return a step with the part that still holds."""
        if step.size <= self.length:
            return step
        return step._replace(memo=limit_memo(step.memo, self.length))

    def leave(self, kept: tuple[Reading, ...], total: int) -> tuple[Sequence[Reading], int]:
        """Return the readings without those that this history continues in full, and their size."""
        gone = set[int]()
        if self.length and len(self.reading.copies) == self.length:
            gone.add(id(self.reading))
        if self.step.size and len(self.giver.copies) == self.step.size:
            gone.add(id(self.giver))
        if not gone:
            return kept, total
        left = [other for other in kept if id(other) not in gone]
        return left, total - sum([other.weight for other in kept if id(other) in gone])


def make_mark(raw: Raw | None) -> int:
    """Return a number that separates most beginnings, or 0 if only a comparison can."""
    said = raw.get("content") if type(raw) is dict else None
    return hash(said) if type(said) is str else 0


def _count_shared(raws: tuple[Raw, ...], copies: tuple[Raw, ...], least: int) -> int:
    """Return the number of equal first messages, or 0 if it is neither over `least` nor all.

    Most differences are found by one look at a message that must be equal.
    """
    size = len(copies)
    # the second message separates most conversations: the first is an operator's
    if raws[1:2] != copies[1:2] and len(raws) > 1 < size:
        return 0
    place = min(least, size - 1)
    if raws[place : place + 1] != copies[place : place + 1]:
        return 0
    if raws[:size] == copies:
        return size
    return sum(1 for _ in takewhile(bool, map(eq, raws, copies))) if size > least else 0


class _Number:  # noqa: PLW1641 - a value in a copy, never a key
    """A number in a copy, equal only to the same number of the same type.

    1, 1.0 and True are equal in Python, but are written differently in JSON.
    """

    __slots__ = ("_value",)

    def __init__(self, value: float) -> None:
        self._value = value

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self._value) and other == self._value


def copy_value(value: Any) -> Any:
    """Return a copy that equals `value` until that changes; raises TypeError for other types."""
    kind = type(value)
    if kind is str or value is None:
        return value
    if issubclass(kind, str) and kind.__eq__ is str.__eq__:
        return str.__str__(value)  # a framework's own text type, such as an enum of roles
    if kind is dict:
        return {_name(key): copy_value(held) for key, held in value.items()}
    if kind is list or kind is tuple:
        return kind(map(copy_value, value))
    if kind in (bool, int, float):
        return _Number(value)
    if callable(getattr(value, "model_dump", None)) and "__eq__" in _list_defined(kind):
        return copy.deepcopy(value)  # an object of an SDK
    raise TypeError(f"cannot compare {kind.__name__}")


def _name(key: Any) -> str:
    if type(key) is not str:
        raise TypeError(f"cannot compare a key of {type(key).__name__}")
    return key


def _list_defined(kind: type) -> set[str]:
    """Return the names that a class and its bases define, without those of `object`."""
    return {name for base in kind.__mro__[:-1] for name in vars(base)}
