"""Several rounds of a model as one answer, for a client that does not know the tools in them.

A program between client and model adds its own tools and answers their calls. The client sees the
last round, and any text of earlier rounds before their calls. The folders of the dialects derive
from `Rounds`. This module answers no call and sends nothing.
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
    """How to add tools to requests of a dialect.

    `make_rounds` takes the names of the added tools. `no_call` is the value of `tool_choice` that
    prevents calls. `is_shaped` tells whether a request prescribes the form of the answer: servers
    refuse that together with tools.
    """

    make_rounds: Callable[[frozenset[str]], Rounds]
    no_call: Any
    is_shaped: Callable[[Mapping[str, Any]], bool]


class Rounds(ABC):
    """The client's view of the rounds that lead to its answer, frame by frame.

    `turned` says that the round called an added tool: the rest of it is hidden from the client, and
    another round follows. This happens only if the client has seen no call of its own in the round,
    and not in a `closed` round; otherwise calls of added tools are left out. `shown` says that the
    client has seen something.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self.names = frozenset(names)
        self.turned = self.shown = self.closed = False
        self._opening: list[bytes] = []
        self._follows = False
        self._theirs = self._left_out = False
        self._reset()

    def begin(self, *, closed: bool = False) -> None:
        """Begin the next round, or repeat one; a `closed` round is the last."""
        self.turned, self.closed = False, closed
        self._theirs = self._left_out = False
        self._follows = self.shown
        self._opening.clear()
        self._reset()

    def take(self, event: Event | None, frame: bytes) -> bytes:
        """Take a frame and its event, or None; return the bytes for the client.

        The opening of a round waits for its content. If the round has no text before its call, the
        client sees nothing of it.
        """
        if event is not None and (event.get("error") or event.get("type") in FAILED):
            return self.end() + frame
        if self.turned:
            return b""
        return self._write(frame, says=False) if event is None else self._see(event, frame)

    def end(self) -> bytes:
        """Return the bytes that still wait at the end of a round."""
        left = b"" if self.turned else b"".join(self._opening)
        self._opening.clear()
        return left

    @abstractmethod
    def take_whole(self, answer: Event) -> Event:
        """Take an answer that is not a stream; return the client's view of it."""
        ...

    @abstractmethod
    def _see(self, event: Event, frame: bytes) -> bytes:
        """Return the bytes of a frame for the client."""
        ...

    @abstractmethod
    def _reset(self) -> None:
        """Reset the state of a single round."""
        ...

    def _keeps(self, name: object) -> bool:
        """Tell whether the client sees a call of this name; a hidden call may set `turned`."""
        if name not in self.names:
            self._theirs = True
            return True
        self._left_out = True
        self.turned = not (self.closed or self._theirs)
        return False

    def _keeps_whole(self, names: Iterable[object]) -> bool:
        """Tell whether the client sees all calls of an answer; a hidden one may set `turned`."""
        held = [*names]
        self._theirs = not self.names.issuperset(held)
        self._left_out = not self.names.isdisjoint(held)
        self.turned = self._left_out and not self.closed
        return not self._left_out

    def _write(self, piece: bytes, *, says: bool = True) -> bytes:
        """Return a piece for the client, after the pieces that waited for it."""
        if not (says or self.shown):
            self._opening.append(piece)
            return b""
        self.shown = True
        out = b"".join((*self._opening, piece))
        self._opening.clear()
        return out


FAILED: Final = frozenset({"error", "response.failed"})
"""Types of events that replace an answer."""


def write_frame(event: Event) -> bytes:
    """Return an event as a frame, named by its type if it has one."""
    kind = event.get("type")
    name = f"event: {kind}\n" if isinstance(kind, str) else ""
    return f"{name}data: {json.dumps(event, separators=(',', ':'))}\n\n".encode("ascii")


def leaves_choice(choice: object) -> bool:
    """Tell whether a request lets the model decide if it calls a tool, and which."""
    if isinstance(choice, Mapping):
        return choice.get("type") == "auto"
    return choice is None or choice == "auto"
