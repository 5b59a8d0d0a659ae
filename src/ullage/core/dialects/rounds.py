"""Several rounds of a model as one answer, for a client that knows nothing of the tools in them.

Somebody between client and model adds tools of its own and answers their calls. The client sees
the last round, and what an earlier one said before it called. The folders of the dialects derive
from `Rounds`. It answers no call and sends nothing.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

Event = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class AddedTools:
    """How tools may be added to requests of a dialect.

    `make_rounds` takes the names of the added tools. `no_call` is the value of `tool_choice` by
    which the model calls none. `is_shaped` tells of a request whether it prescribes the form of the
    answer: servers refuse that beside tools.
    """

    make_rounds: Callable[[frozenset[str]], Rounds]
    no_call: Any
    is_shaped: Callable[[Mapping[str, Any]], bool]


class Rounds(ABC):
    """What a client sees of the rounds that lead to its answer, frame by frame.

    `turned` tells that the round called an added tool: the rest of it is not for the client, and
    another round is to follow. That is so only as long as the client has seen no call of its own
    in it, and in no `closed` round; else the calls of added tools are left out. `shown` tells that
    the client has seen something.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self.names = frozenset(names)
        self.turned = self.shown = self.closed = False
        self._opening: list[bytes] = []
        self._follows = False
        self._theirs = self._left_out = False
        self._reset()

    def begin(self, *, closed: bool = False) -> None:
        """Begin the next round, or the same once more; a `closed` one is the last."""
        self.turned, self.closed = False, closed
        self._theirs = self._left_out = False
        self._follows = self.shown
        self._opening.clear()
        self._reset()

    def take(self, event: Event | None, frame: bytes) -> bytes:
        """Take a frame and the event in it, None without one; return what goes to the client now.

        What only opens a round waits for its content: of a round that says nothing before it calls
        nothing is seen.
        """
        if event is not None and (event.get("error") or event.get("type") in FAILED):
            return self.end() + frame
        if self.turned:
            return b""
        return self._write(frame, says=False) if event is None else self._see(event, frame)

    def end(self) -> bytes:
        """Return what still waits when a round is over."""
        left = b"" if self.turned else b"".join(self._opening)
        self._opening.clear()
        return left

    @abstractmethod
    def take_whole(self, answer: Event) -> Event:
        """Take an answer that is no stream; return what the client sees of it."""
        ...

    @abstractmethod
    def _see(self, event: Event, frame: bytes) -> bytes:
        """Return what the client sees of a frame."""
        ...

    @abstractmethod
    def _reset(self) -> None:
        """Forget what is of one round alone."""
        ...

    def _keeps(self, name: object) -> bool:
        """Tell whether the client sees a call of this name; one that it does not may turn."""
        if name not in self.names:
            self._theirs = True
            return True
        self._left_out = True
        self.turned = not (self.closed or self._theirs)
        return False

    def _keeps_whole(self, names: Iterable[object]) -> bool:
        """Tell whether the client sees all calls of a whole answer; one that is ours may turn."""
        held = [*names]
        self._theirs = not self.names.issuperset(held)
        self._left_out = not self.names.isdisjoint(held)
        self.turned = self._left_out and not self.closed
        return not self._left_out

    def _write(self, piece: bytes, *, says: bool = True) -> bytes:
        """Return a piece for the client, behind what has waited for it."""
        if not (says or self.shown):
            self._opening.append(piece)
            return b""
        self.shown = True
        out = b"".join((*self._opening, piece))
        self._opening.clear()
        return out


FAILED: Final = frozenset({"error", "response.failed"})
"""Types of events that come in the place of an answer."""


def write_frame(event: Event) -> bytes:
    """Return an event as a frame, named by its type where it has one."""
    kind = event.get("type")
    name = f"event: {kind}\n" if isinstance(kind, str) else ""
    return f"{name}data: {json.dumps(event, separators=(',', ':'))}\n\n".encode("ascii")


def leaves_choice(choice: object) -> bool:
    """Tell whether a request leaves it to the model whether it calls a tool, and which."""
    if isinstance(choice, Mapping):
        return choice.get("type") == "auto"
    return choice is None or choice == "auto"
