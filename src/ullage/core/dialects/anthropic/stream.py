"""An answer of Anthropic's Messages API, assembled from its events.

Source: Anthropic, "Streaming messages" and the types of its Python SDK 2.12. This module knows no
other dialect.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ullage.core.dialects.reply import (
    Delta,
    Kind,
    Reply,
    Stop,
    Watch,
    as_json,
    assign_ids,
    fields,
    members,
    read_text,
)
from ullage.core.dialects.usage import Usage
from ullage.core.messages.fields import as_mapping, pick

STOPS: Final[Mapping[str, Stop]] = {
    "end_turn": "end",
    "stop_sequence": "end",
    "tool_use": "calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "filter",
}

GROWING: Final[Mapping[str, str]] = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "signature",
    "input_json_delta": "partial_json",
    "compaction_delta": "content",
}
"""Types of deltas, and the field with the addition."""

SHOWN: Final[Mapping[str, Kind]] = {"text": "text_delta", "thinking": "reasoning_delta"}
"""Blocks that are shown as they grow; the field with their text has the same name."""


@dataclass(slots=True)
class _Block:
    """A content block: its start, and the additions to its fields."""

    start: Mapping[str, Any]
    added: dict[str, list[str]] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        return read_text(self.start.get("type"))

    def whole(self, name: str) -> str:
        """Return a field of text: its start and all additions."""
        return read_text(self.start.get(name)) + "".join(self.added.get(name, ()))

    def arguments(self) -> str:
        """Return a call's input: from its fragments if there are any, else from its start."""
        return "".join(self.added.get("partial_json", ())) or as_json(self.start.get("input"))


class MessagesAnswer:
    """Assembles an answer of the Messages API."""

    def __init__(self, salt: str = "") -> None:
        self.begun = self.ended = self.called = False
        self.failed: Mapping[str, Any] | None = None
        self._salt = salt
        self._blocks: list[_Block] = []
        self._open: dict[object, _Block] = {}
        self._usage: dict[str, Any] = {}
        self._more: dict[str, Any] = {}

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(b.whole("text") for b in self._blocks if b.kind == "text")

    def take(self, event: Mapping[str, Any]) -> list[Delta]:
        """Take an event, or a whole message; return the pieces to show."""
        kind = event.get("type")
        if kind == "error" or (kind is None and event.get("error")):
            self.failed = event
        elif kind == "message_start":
            return self._message(fields(event.get("message")))
        elif kind == "message" or (not kind and isinstance(event.get("content"), list)):
            deltas = self._message(event)
            self.ended = True
            return deltas
        elif kind == "content_block_start":
            return self._began(event.get("index"), fields(event.get("content_block")))
        elif kind == "content_block_delta":
            return self._grew(event.get("index"), fields(event.get("delta")))
        elif kind == "message_delta":
            self._ending({**event, **fields(event.get("delta"))})
        elif kind == "message_stop":
            self.ended = True
        return []

    def reply(self) -> Reply:
        """Return the answer as far as it has arrived."""
        asked = [b for b in self._blocks if b.kind == "tool_use"]
        calls = assign_ids(
            (
                (read_text(b.start.get("id")), read_text(b.start.get("name")), b.arguments())
                for b in asked
            ),
            self._salt,
        )
        report = {**self._more, "usage": self._usage}
        usage = Usage.from_report(self._usage, dialect="anthropic") if self._usage else None
        thoughts = tuple(t for b in self._blocks if (t := _read_thinking(b)) is not None)
        return Reply(self.text, thoughts, calls, self._stop(bool(calls)), usage, report)

    def _stop(self, asked: bool) -> Stop:  # noqa: FBT001 - a fact, not a switch
        reason = read_text(self._more.get("stop_reason"))
        stop = STOPS.get(reason, "other") if reason else "end"
        if stop in ("end", "calls"):
            return "calls" if asked else "end"
        return stop

    def _message(self, message: Mapping[str, Any]) -> list[Delta]:
        """Take a message: without content at its start, with content if it is whole."""
        self._ending(message)
        deltas: list[Delta] = []
        for place, block in enumerate(members(message.get("content"))):
            deltas += self._began(place, block)
        return deltas

    def _ending(self, told: Mapping[str, Any]) -> None:
        """Take the reported usage and end; later values win (`Usage.merge`)."""
        usage = fields(told.get("usage"))
        self._usage.update({k: v for k, v in usage.items() if v is not None})
        for name in ("stop_reason", "context_management", "input_transformations"):
            if told.get(name) is not None:
                self._more[name] = told[name]

    def _began(self, index: object, start: Mapping[str, Any]) -> list[Delta]:
        block = _Block(start)
        self._blocks.append(block)
        self._open[_key(index)] = block
        self.called = self.called or block.kind == "tool_use"
        deltas = [
            Delta(SHOWN[name], read_text(start.get(name)))
            for name in SHOWN
            if name == block.kind and read_text(start.get(name))
        ]
        self.begun = self.begun or bool(deltas) or block.kind not in SHOWN
        return deltas

    def _grew(self, index: object, delta: Mapping[str, Any]) -> list[Delta]:
        name = GROWING.get(read_text(delta.get("type")), "")
        piece = read_text(delta.get(name))
        block = self._open.get(_key(index)) or (self._blocks[-1] if self._blocks else None)
        if not piece or block is None:
            return []
        self.begun = True
        block.added.setdefault(name, []).append(piece)
        if sealed := read_text(delta.get("encrypted_content")):
            block.start = {**block.start, "encrypted_content": sealed}
        return [Delta(SHOWN[name], piece)] if name == block.kind and name in SHOWN else []


def _key(index: object) -> object:
    return index if isinstance(index, int) else None


def _read_thinking(block: _Block) -> Mapping[str, Any] | None:
    """Return a block that must be sent back unchanged: reasoning, or a provider's summary."""
    if block.kind == "thinking":
        thinking, signature = block.whole("thinking"), block.whole("signature")
        return {**block.start, "thinking": thinking, "signature": signature}
    if block.kind == "compaction":
        return {**block.start, "content": block.whole("content") or None}
    return dict(block.start) if block.kind == "redacted_thinking" else None


NAMES: Final = ("message_", "content_block_", "ping")
"""Prefixes of the names of events."""

QUIET: Final = frozenset({"message_start", "ping"})
"""Events before the first content."""


class MessagesWatch(Watch):
    """Watches a stream of the Messages API: the prompt's usage is first, the answer's last."""

    __slots__ = ("_more", "_usage")

    def __init__(self) -> None:
        super().__init__()
        self._usage: dict[str, Any] = {}
        self._more: dict[str, Any] = {}

    def see(self, event: Any) -> bool:
        """Read an event; tell whether it is one of this API."""
        kind = pick(event, "type")
        if not isinstance(kind, str) or not kind.startswith(NAMES):
            return False
        self.begun = self.begun or kind not in QUIET
        if kind == "message_start":
            self._merge(pick(pick(event, "message"), "usage"))
        elif kind == "message_delta":
            self._merge(pick(event, "usage"))
            self._more["stop_reason"] = pick(pick(event, "delta"), "stop_reason")
            self._more["context_management"] = as_mapping(pick(event, "context_management"))
            self._more["input_transformations"] = pick(event, "input_transformations")
        elif kind == "message_stop":
            self.ended = True
            self.report = {**self._more, "usage": self._usage}
        return True

    def _merge(self, usage: Any) -> None:
        """Add a report; later values win (see `Usage.merge`)."""
        self._usage.update({k: v for k, v in (as_mapping(usage) or {}).items() if v is not None})
