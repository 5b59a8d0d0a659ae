"""Several rounds of Anthropic's Messages API as one answer.

Reasoning before a call of an added tool is hidden with the call: without it, the client cannot use
the reasoning. So reasoning waits until the next block shows what follows. Source: Anthropic,
"Streaming messages". This module knows no other dialect.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ullage.core.dialects.reply import fields, members, read_text
from ullage.core.dialects.rounds import Event, Rounds, write_frame

THINKING: Final = frozenset({"thinking", "redacted_thinking"})


def is_shaped(request: Mapping[str, Any]) -> bool:
    """Tell whether a request prescribes the form of the answer ("Structured outputs")."""
    asked = fields(request.get("output_config")).get("format")
    return request.get("output_format") is not None or asked is not None


class MessagesRounds(Rounds):
    """Rounds of the Messages API, with their blocks numbered as those of one message."""

    def __init__(self, names: frozenset[str]) -> None:
        self._next = 0
        super().__init__(names)

    def take_whole(self, answer: Event) -> Event:
        """Take a message; return the client's view of it."""
        blocks = members(answer.get("content"))
        names = [block.get("name") for block in blocks if block.get("type") == "tool_use"]
        if self._keeps_whole(names) or self.turned:
            return answer
        end = self._find_end(answer.get("stop_reason"))
        return {**answer, "content": self._keep(blocks), "stop_reason": end}

    def _keep(self, blocks: Sequence[Event]) -> list[Event]:
        """Return the blocks without calls of added tools and the reasoning before them."""
        kept: list[Event] = []
        for block in blocks:
            if block.get("type") != "tool_use" or block.get("name") not in self.names:
                kept.append(block)
                continue
            while kept and kept[-1].get("type") in THINKING:
                kept.pop()
        return kept

    def _reset(self) -> None:
        self._places: dict[object, int] = {}
        self._stripped: set[object] = set()
        self._waiting: list[tuple[Event, bytes]] = []
        self._thoughts: set[object] = set()
        if not self.shown:
            self._next = 0

    def _see(self, event: Event, frame: bytes) -> bytes:
        kind = event.get("type")
        if kind == "content_block_start":
            return self._start(event, frame)
        if kind in ("content_block_delta", "content_block_stop"):
            return self._grow(event, frame)
        if kind == "message_start":
            return b"" if self._follows else self._write(frame, says=False)
        if kind == "message_delta":
            return self._release() + self._close(event, frame)
        return self._write(frame) if self.shown else b""

    def _start(self, event: Event, frame: bytes) -> bytes:
        block, index = fields(event.get("content_block")), event.get("index")
        kind = read_text(block.get("type"))
        if kind == "tool_use" and not self._keeps(block.get("name")):
            self._waiting.clear()
            self._stripped.add(index)
            return b""
        if kind in THINKING:
            self._thoughts.add(index)
            self._waiting.append((event, frame))
            return b""
        return self._release() + self._relay(event, frame, says=kind != "text")

    def _grow(self, event: Event, frame: bytes) -> bytes:
        index = event.get("index")
        if index in self._stripped:
            return b""
        if index in self._thoughts:
            self._waiting.append((event, frame))
            return b""
        return self._relay(event, frame, says=event.get("type") == "content_block_delta")

    def _release(self) -> bytes:
        """Return the reasoning that waited."""
        out = b"".join([self._relay(event, frame) for event, frame in self._waiting])
        self._waiting.clear()
        self._thoughts.clear()
        return out

    def _relay(self, event: Event, frame: bytes, *, says: bool = True) -> bytes:
        """Return an event of a block with the index that the client knows."""
        index = event.get("index")
        if event.get("type") == "content_block_start":
            self._places[index] = self._next
            self._next += 1
        place = self._places.get(index, index)
        piece = frame if place == index else write_frame({**event, "index": place})
        return self._write(piece, says=says)

    def _close(self, event: Event, frame: bytes) -> bytes:
        delta = fields(event.get("delta"))
        reason = delta.get("stop_reason")
        told = self._find_end(reason)
        if told == reason:
            return self._write(frame)
        return self._write(write_frame({**event, "delta": {**delta, "stop_reason": told}}))

    def _find_end(self, reason: Any) -> Any:
        """Return the stop reason for the client: "tool_use" only if it sees a call."""
        bare = self._left_out and not self._theirs
        return "end_turn" if reason == "tool_use" and bare else reason
