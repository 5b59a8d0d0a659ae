"""Follow a history on its way through `Guard.prepare`, from package to package.

A room is a package of ullage (`core.tokens`, `guard`). A call enters a room if it gets the list, or
a value that holds all of it. A method call on such a value (`transcript.task()`) and the creation
of a value (`core.values`) do not count. A room that calls another one is not left. The result is
how often a room is entered again after it was left.

`python -m tools.walk` prints the way of a request that fits and of one that must be compacted.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from types import FrameType
from typing import Any, Final

from ullage import Guard, Runtime
from ullage.core.messages.transcript import Message, Transcript

DEPTH: Final = 4
"""Depth to which a value is searched for the history."""

TURNS: Final = 20

WORDS: Final = 100

WAYS: Final[dict[str, tuple[int, bool]]] = {
    "a request that fits": (100_000, False),
    "a request that must be trimmed": (3_000, False),
    "a request that must be summarised": (3_000, True),
}
"""The runs to follow: a window in tokens, and whether there is a summarizer."""


@dataclass(slots=True)
class Stay:
    """One stay in a room: the functions there that received the history, in order.

    `depth` is how many rooms passed the history on to this one. `is_return` means that the room was
    left before. `last` is the room to which this one passed the history last.
    """

    room: str
    depth: int = 0
    is_return: bool = False
    functions: list[str] = field(default_factory=list)
    last: Stay | None = None


class Walk:
    """The stays of one history, recorded while `work` runs in this thread."""

    def __init__(self, messages: Sequence[Any]) -> None:
        self._raws = {id(message) for message in messages}
        self._frames: dict[int, tuple[FrameType, Stay | None]] = {}  # held: ids stay unique
        self._outside = Stay("", depth=-1)
        self._stays: list[Stay] = []

    def follow(self, work: Callable[[], object]) -> list[Stay]:
        """Run `work`; return the stays of the history, in order."""
        sys.setprofile(self._see)
        try:
            work()
        finally:
            sys.setprofile(None)
        return self._stays

    def _see(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or id(frame) in self._frames:
            return  # a generator that continues was entered before
        room = _room(frame)
        handed = room is not None and self._is_handed(frame)
        self._frames[id(frame)] = (frame, self._enter(room, frame) if room and handed else None)

    def _enter(self, room: str, frame: FrameType) -> Stay:
        """Return the stay that a call belongs to: a current one, or a new one."""
        around = [stay for stay in self._around(frame) if stay is not None]
        stay = next((stay for stay in around if stay.room == room), None)
        if stay is None:
            outer = around[0] if around else self._outside
            stay = outer.last
            if stay is None or stay.room != room:
                left = any(known.room == room for known in self._stays)
                stay = outer.last = Stay(room, outer.depth + 1, left)
                self._stays.append(stay)
        stay.functions.append(frame.f_code.co_name)
        return stay

    def _around(self, frame: FrameType) -> Iterator[Stay | None]:
        """Yield the stays around a call, innermost first."""
        outer = frame.f_back
        while outer is not None:
            yield self._frames.get(id(outer), (None, None))[1]
            outer = outer.f_back

    def _is_handed(self, frame: FrameType) -> bool:
        """Tell whether a call gets the history as an argument, apart from its own object."""
        code = frame.f_code
        if code.co_name.startswith(("<", "__")):
            return False
        count = code.co_argcount + code.co_kwonlyargcount
        names = [name for name in code.co_varnames[:count] if name not in ("self", "cls")]
        return any(self._holds(frame.f_locals.get(name), DEPTH) for name in names)

    def _holds(self, value: Any, depth: int) -> bool:
        """Tell whether a value is the history, or has it in one of its fields."""
        if isinstance(value, Transcript):
            return len(value) > 1  # a single one is a new message
        if isinstance(value, list | tuple):
            ends = [*value[:1], *value[-1:]]
            return len(value) > 1 and all(
                isinstance(end, Message) or id(end) in self._raws for end in ends
            )
        if not depth or not is_dataclass(value):
            return False
        return any(
            self._holds(getattr(value, each.name, None), depth - 1)
            for each in fields(value)
            if each.compare  # fields outside comparison are not part of the value
        )


def _room(frame: FrameType) -> str | None:
    """Return a call's package of ullage, or None outside it and for the creation of values."""
    package, *path = frame.f_globals.get("__name__", "").split(".")
    if package != "ullage" or not path or path[:2] == ["core", "values"]:
        return None
    return ".".join(path[:2]) if path[0] == "core" else str(path[0])


def count_returns(stays: Sequence[Stay]) -> int:
    """Return how often a room was entered again after it was left."""
    return sum(stay.is_return for stay in stays)


def talk(turns: int) -> list[dict[str, Any]]:
    """Return a system prompt, a task, and turns of answer and question."""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "The task is to count."},
    ]
    for turn in range(turns):
        messages.append({"role": "assistant", "content": f"answer {turn} " + "a " * WORDS})
        messages.append({"role": "user", "content": f"question {turn} " + "q " * WORDS})
    return messages


def walk_prepare(window: int, *, summarises: bool) -> list[Stay]:
    """Return the way of a history that grew by a turn since its last report."""
    runtime, answer = Runtime(), "Goal:\n- count.\nDone:\n- one.\nNext:\n- two."
    before = Guard("gpt-4o", window=100_000, runtime=runtime).prepare(talk(TURNS))
    tokens = before.prepared.count.tokens
    before.observe({"usage": {"prompt_tokens": tokens, "completion_tokens": 1}})
    summarizer = (lambda _: answer) if summarises else None
    guard = Guard("gpt-4o", window=window, runtime=runtime, summarizer=summarizer)
    messages = talk(TURNS + 1)
    return Walk(messages).follow(lambda: guard.prepare(messages, max_tokens=100))


def draw(stays: Sequence[Stay]) -> str:
    """Return stays as lines, each room below the one that passed the history to it."""
    lines = [
        f"{'  ' * stay.depth}{stay.room}{' (return)' if stay.is_return else ''}: "
        f"{', '.join(dict.fromkeys(stay.functions))}"
        for stay in stays
    ]
    return "\n".join(lines)


def main() -> None:
    """Print the ways."""
    for name, (window, summarises) in WAYS.items():
        stays = walk_prepare(window, summarises=summarises)
        print(f"{name}: {count_returns(stays)} returns\n{draw(stays)}\n")


if __name__ == "__main__":
    main()
