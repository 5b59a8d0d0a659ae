"""An answer of Bedrock's Converse, watched and assembled from its events.

Each event is a mapping with one field that names it. `messageStop` gives the stop reason, and
`metadata` with the usage follows it. Source of the shapes: botocore 1.44, the service model of
`bedrock-runtime` (ConverseStreamOutput, ConverseResponse). This module knows no other dialect.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ullage.core.dialects.reply import (
    Delta,
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

STOPS: Final[Mapping[str, Stop]] = {
    "end_turn": "end",
    "stop_sequence": "end",
    "tool_use": "calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "guardrail_intervened": "filter",
    "content_filtered": "filter",
}

EVENTS: Final = frozenset(
    {
        *("messageStart", "contentBlockStart", "contentBlockDelta", "contentBlockStop"),
        *("messageStop", "metadata"),
    }
)

FAILURES: Final = (
    "internalServerException",
    "modelStreamErrorException",
    "validationException",
    "throttlingException",
    "serviceUnavailableException",
)
"""Events that replace an answer (ConverseStreamOutput)."""

SHOWN: Final = frozenset({"contentBlockStart", "contentBlockDelta"})


class ConverseWatch(Watch):
    """Watches a stream of `converse_stream`."""

    __slots__ = ("_stop",)

    def __init__(self) -> None:
        super().__init__()
        self._stop: Any = None

    def see(self, event: Any) -> bool:
        """Read an event; tell whether it is one of this API."""
        if not isinstance(event, Mapping):
            return False
        failure = next((name for name in FAILURES if name in event), None)
        if failure is not None:
            self.failed = {"error": {"type": failure, **fields(event[failure])}}
            return True
        if EVENTS.isdisjoint(event):
            return False
        self.begun = self.begun or not SHOWN.isdisjoint(event)
        if "messageStop" in event:
            self.ended = self.begun = True
            self._stop = fields(event["messageStop"]).get("stopReason")
        if "metadata" in event:
            usage = fields(event["metadata"]).get("usage")
            self.report = {"usage": fields(usage), "stopReason": self._stop}
        return True


class ConverseReader:
    """Assembles an answer of `converse` or `converse_stream`."""

    def __init__(self, salt: str = "") -> None:
        self.begun = self.ended = self.called = False
        self.failed: Mapping[str, Any] | None = None
        self._salt = salt
        self._blocks: dict[object, dict[str, Any]] = {}
        self._usage: Mapping[str, Any] = {}
        self._reason = ""

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(read_text(block.get("text")) for block in self._blocks.values())

    def take(self, event: Mapping[str, Any]) -> list[Delta]:
        """Take an event, or a whole answer; return the pieces to show."""
        failure = next((name for name in FAILURES if name in event), None)
        if failure is not None or event.get("error"):
            self.failed = event
            return []
        deltas: list[Delta] = []
        whole = fields(fields(event.get("output")).get("message"))
        for place, block in enumerate(members(whole.get("content"))):
            deltas += self._grow(place, block)
        start, delta = (
            fields(event.get("contentBlockStart")),
            fields(event.get("contentBlockDelta")),
        )
        deltas += self._grow(start.get("contentBlockIndex"), fields(start.get("start")))
        deltas += self._grow(delta.get("contentBlockIndex"), fields(delta.get("delta")))
        stop = fields(event.get("messageStop")) or event
        if read_text(stop.get("stopReason")):
            self._reason, self.begun, self.ended = read_text(stop.get("stopReason")), True, True
        held = fields(event.get("metadata")) or event
        self._usage = fields(held.get("usage")) or self._usage
        return deltas

    def reply(self) -> Reply:
        """Return the answer as far as it has arrived."""
        asked = [block for block in self._blocks.values() if "toolUse" in block]
        calls = assign_ids((_read_call(block) for block in asked), self._salt)
        thoughts = tuple(t for b in self._blocks.values() if (t := _read_reasoning(b)) is not None)
        report = {"usage": self._usage, "stopReason": self._reason}
        usage = Usage.from_report(self._usage, dialect="bedrock_converse") if self._usage else None
        stop = STOPS.get(self._reason, "other") if self._reason else "end"
        if stop in ("end", "calls"):
            stop = "calls" if calls else "end"
        return Reply(self.text, thoughts, calls, stop, usage, report)

    def _grow(self, index: object, piece: Mapping[str, Any]) -> list[Delta]:
        """Add a piece to its block; a whole block is a piece as well."""
        if not piece:
            return []
        block = self._blocks.setdefault(index, {})
        self.begun = True
        text, use = read_text(piece.get("text")), piece.get("toolUse")
        thought = fields(piece.get("reasoningContent"))
        if text:
            block["text"] = read_text(block.get("text")) + text
            return [Delta("text_delta", text)]
        if isinstance(use, Mapping):
            self.called = True
            held = block.setdefault("toolUse", {})
            added = as_json(use.get("input"))
            held |= {k: v for k, v in use.items() if k != "input"}
            held["input"] = read_text(held.get("input")) + added
        return self._think(block, thought) if thought else []

    def _think(self, block: dict[str, Any], thought: Mapping[str, Any]) -> list[Delta]:
        """Add reasoning: a whole block has it in `reasoningText`, a delta directly."""
        held = block.setdefault("reasoning", {})
        inner = fields(thought.get("reasoningText")) or thought
        for name in ("text", "signature"):
            if read_text(inner.get(name)):
                held[name] = read_text(held.get(name)) + read_text(inner.get(name))
        if thought.get("redactedContent") is not None:
            held["redactedContent"] = thought["redactedContent"]
        text = read_text(inner.get("text"))
        return [Delta("reasoning_delta", text)] if text else []


def _read_call(block: Mapping[str, Any]) -> tuple[str, str, str]:
    use = block["toolUse"]
    return read_text(use.get("toolUseId")), read_text(use.get("name")), read_text(use.get("input"))


def _read_reasoning(block: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return a block of reasoning in the form to send back: whole and unchanged."""
    held = fields(block.get("reasoning"))
    if not held:
        return None
    if "redactedContent" in held:
        return {"reasoningContent": {"redactedContent": held["redactedContent"]}}
    return {"reasoningContent": {"reasoningText": {"text": read_text(held.get("text")), **held}}}
