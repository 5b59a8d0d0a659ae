"""Histories that were read before, so that one that grew is read from where it grew.

A reading is found by comparing the caller's messages with copies made when they were read: a
message that was changed in place is found, and a history that was taken back some steps keeps what
comes before. It knows no dialect: a codec hands in how one message is read.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from itertools import takewhile
from operator import eq
from typing import Any, Final, NamedTuple

from ullage.core.messages.transcript import Message, Raw, Rules, Transcript

MOST_READINGS: Final = 64
"""Histories that are kept; each costs two comparisons of messages for every request."""

MOST_BYTES: Final = 16 * 1024 * 1024
"""Bytes, about, of the histories that are kept. The newest is kept however large it is."""

BESIDE: Final = 500
"""Bytes, about, that the copy of a message takes besides its text."""

MOST_STEPS: Final = 4
"""Lengths of a history whose numbers are kept. Clients move cache marks on their last messages, and
take back an answer or two: then what was derived before that still holds."""

ReadMessage = Callable[[Raw, int], Message]
"""Reads the message at a position."""


class Step(NamedTuple):
    """A length that a history had, what was derived of it then, and its weight in bytes, about."""

    size: int
    memo: dict[str, Any]
    weight: int


class Reading(NamedTuple):
    """A history as it was read, up to the first message that cannot be copied.

    `steps` are those on the way to it, the longest first; the first is the whole. The memo is that
    of a transcript; it is empty where that has messages besides.
    """

    copies: tuple[Raw, ...]
    messages: tuple[Message, ...]
    steps: tuple[Step, ...]

    @property
    def weight(self) -> int:
        """Its weight in bytes, about."""
        return self.steps[0].weight

    def find_step(self, length: int) -> Step:
        """Return the longest step of `length` messages at most."""
        return next((step for step in self.steps if step.size <= length), START)


START: Final = Step(0, {}, 0)
NOTHING: Final = Reading((), (), (START,))


class Readings:
    """The histories that one codec read last, within `most` bytes, about.

    Threads may share it: what two of them keep at the same moment may be forgotten, nothing else.
    """

    def __init__(self, most: int = MOST_BYTES) -> None:
        self._most = most
        self._kept: tuple[Reading, ...] = ()

    def __len__(self) -> int:
        return len(self._kept)

    def read(self, raws: tuple[Raw, ...], rules: Rules, read_message: ReadMessage) -> Transcript:
        """Read a history; what stood in a known one at the same place is not read again.

        Raises what `read_message` raises.
        """
        known, length = self._find(raws)
        messages, copies = list(known.messages[:length]), []
        plain = True
        for index in range(length, len(raws)):
            messages.append(read_message(raws[index], index))
            if plain:
                try:
                    copies.append(copy_value(raws[index]))
                except (TypeError, RecursionError):
                    plain = False  # from here on nothing can be compared
        memo = dict(known.find_step(length).memo)
        transcript = Transcript(raws, tuple(messages), rules, memo)
        self._keep(known, length, copies, transcript)
        return transcript

    def _find(self, raws: tuple[Raw, ...]) -> tuple[Reading, int]:
        """Return the reading that shares the longest beginning with `raws`, and its length."""
        found, longest = NOTHING, 0
        for reading in reversed(self._kept):
            copies = reading.copies
            size = len(copies)
            if size <= longest:
                continue
            # the second message tells most conversations apart: the first is an operator's
            if raws[1:2] != copies[1:2] and len(raws) > 1 < size:
                continue
            if raws[longest : longest + 1] != copies[longest : longest + 1]:
                continue  # shares no more than what was found
            if raws[:size] != copies:
                size = sum(1 for _ in takewhile(bool, map(eq, raws, copies)))
            if size > longest:
                found, longest = reading, size
            if longest == len(raws):
                break
        return found, longest

    def _keep(self, known: Reading, length: int, new: list[Raw], transcript: Transcript) -> None:
        """Keep a history as the newest; one that it continues gives way to it."""
        copies = (*known.copies[:length], *new)
        if not copies:
            return
        size, whole = len(copies), length == len(known.copies)
        messages = transcript.messages[:size]
        begun = known.find_step(length)
        weight = begun.weight + sum([BESIDE + m.characters for m in messages[begun.size :]])
        memo = transcript.memo if size == len(transcript) else {}
        steps = [step for step in known.steps if 0 < step.size <= length and step.size < size]
        steps.insert(0, Step(size, memo, weight))
        made = Reading(copies, messages, tuple(steps[:MOST_STEPS]))
        kept = [other for other in self._kept if other is not known or not whole]
        total = made.weight + sum([reading.weight for reading in kept])
        gone = max(len(kept) + 1 - MOST_READINGS, 0)
        total -= sum([reading.weight for reading in kept[:gone]])
        while gone < len(kept) and total > self._most:
            total -= kept[gone].weight
            gone += 1
        self._kept = (*kept[gone:], made)


class _Number:  # noqa: PLW1641 - a value in a copy, never a key
    """Stands for a number in a copy: equal to the same number of the same type only.

    1, 1.0 and True are equal in Python, and are written differently in JSON.
    """

    __slots__ = ("_value",)

    def __init__(self, value: float) -> None:
        self._value = value

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self._value) and other == self._value


def copy_value(value: Any) -> Any:
    """Return a copy that equals `value` until that is changed; raises TypeError for the unknown."""
    kind = type(value)
    if kind is str or value is None:
        return value
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
    """Return the names that a class and its bases define, beside those of every object."""
    return {name for base in kind.__mro__[:-1] for name in vars(base)}
