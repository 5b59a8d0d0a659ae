"""An answer of the Gemini API, watched and assembled from its chunks.

Each chunk is a GenerateContentResponse; the last one has a `finishReason`. Source of the shapes:
the types of google-genai 3.4 (GenerateContentResponse, Candidate, FinishReason). This module knows
no other dialect.
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
from ullage.core.dialects.spelling import pick_field, to_snake
from ullage.core.dialects.usage import Usage
from ullage.core.messages.fields import as_mapping, pick

STOPS: Final[Mapping[str, Stop]] = {
    "STOP": "end",
    "MAX_TOKENS": "length",
    "SAFETY": "filter",
    "RECITATION": "filter",
    "BLOCKLIST": "filter",
    "PROHIBITED_CONTENT": "filter",
    "SPII": "filter",
}
"""The finish reasons (FinishReason); any other is `other`."""


def _pick(value: Any, name: str) -> Any:
    found = pick(value, name)
    return pick(value, to_snake(name)) if found is None else found


def _reason(candidate: Any) -> str:
    """Return the finish reason of a candidate; the SDK has an enumeration of texts."""
    reason = _pick(candidate, "finishReason")
    return str(getattr(reason, "value", reason) or "")


class GeminiWatch(Watch):
    """Watches a stream of `streamGenerateContent`."""

    __slots__ = ()

    def see(self, event: Any) -> bool:
        """Read a chunk; tell whether it is one of this API."""
        candidates, usage = _pick(event, "candidates"), _pick(event, "usageMetadata")
        blocked = _pick(event, "promptFeedback")
        if candidates is None and usage is None and blocked is None:
            return False
        first = candidates[0] if isinstance(candidates, list | tuple) and candidates else None
        self.begun = self.begun or first is not None or blocked is not None
        if _reason(first) or _pick(blocked, "blockReason") is not None:
            self.ended = True
            self.report = {"usageMetadata": as_mapping(usage) or {}}
            if _reason(first):
                self.report["candidates"] = [{"finishReason": _reason(first)}]
        return True


class GeminiReader:
    """Assembles an answer of `generateContent`."""

    def __init__(self, salt: str = "") -> None:
        self.begun = self.ended = self.called = False
        self.failed: Mapping[str, Any] | None = None
        self._salt = salt
        self._text: list[str] = []
        self._thoughts: list[dict[str, Any]] = []
        self._calls: list[tuple[str, str, str]] = []
        self._usage: Mapping[str, Any] = {}
        self._reason = ""
        self._blocked = False

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(self._text)

    def take(self, event: Mapping[str, Any]) -> list[Delta]:
        """Take a chunk, or a whole answer; return the pieces to show."""
        if event.get("error"):
            self.failed = event
            return []
        self._usage = fields(pick_field(event, "usageMetadata")) or self._usage
        self._blocked = bool(pick_field(fields(pick_field(event, "promptFeedback")), "blockReason"))
        deltas: list[Delta] = []
        for candidate in members(event.get("candidates"))[:1]:
            for part in members(fields(candidate.get("content")).get("parts")):
                deltas += self._part(part)
            self._reason = _reason(candidate) or self._reason
        self.called = bool(self._calls)
        self.begun = self.begun or bool(deltas or self._calls or self._reason)
        self.ended = self.ended or self._blocked or bool(self._reason)
        return deltas

    def reply(self) -> Reply:
        """Return the answer as far as it has arrived."""
        report: dict[str, Any] = {"usageMetadata": self._usage} if self._usage else {}
        if self._reason:
            report["candidates"] = [{"finishReason": self._reason}]
        usage = Usage.from_report(self._usage, dialect="gemini") if self._usage else None
        calls = assign_ids(self._calls, self._salt)
        return Reply(self.text, tuple(self._thoughts), calls, self._stop(), usage, report)

    def _stop(self) -> Stop:
        if self._blocked:
            return "filter"
        stop = STOPS.get(self._reason, "other") if self._reason else "end"
        return "calls" if stop == "end" and self._calls else stop

    def _part(self, part: Mapping[str, Any]) -> list[Delta]:
        """Take a part; a signature is stored with the part that it must be sent back with."""
        sign, text = pick_field(part, "thoughtSignature"), read_text(part.get("text"))
        signed = {} if sign is None else {"thoughtSignature": sign}
        call = fields(pick_field(part, "functionCall"))
        if call:
            if signed:
                self._thoughts.append({**signed, "call": len(self._calls)})
            arguments = as_json(call.get("args"))
            self._calls.append((read_text(call.get("id")), read_text(call.get("name")), arguments))
            return []
        if part.get("thought") is True:
            self._think(text, signed)
            return [Delta("reasoning_delta", text)] if text else []
        if signed:
            self._thoughts.append({"text": "", **signed})
        if text:
            self._text.append(text)
        return [Delta("text_delta", text)] if text else []

    def _think(self, text: str, signed: Mapping[str, Any]) -> None:
        """Take a piece of a summary of thoughts; pieces without a signature between are joined."""
        last = self._thoughts[-1] if self._thoughts else {}
        if last.get("thought") is True and "thoughtSignature" not in last:
            self._thoughts[-1] = {**last, "text": read_text(last.get("text")) + text, **signed}
        else:
            self._thoughts.append({"text": text, "thought": True, **signed})
