"""An answer of Ollama's own API, watched and assembled from its lines.

Each line is a JSON object; the last one has `"done": true` and the counts. Source of the shapes:
ollama docs/api.md and api/types.go of 2026-08. This module knows no other dialect.
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
from ullage.core.messages.fields import pick

REPORTED: Final = (
    "model",
    "done_reason",
    "prompt_eval_count",
    "prompt_eval_cached_count",
    "eval_count",
)
"""Fields of the last line about its size; the others are content and durations."""

STOPS: Final[Mapping[str, Stop]] = {"stop": "end", "length": "length", "tool_calls": "calls"}


class OllamaWatch(Watch):
    """Watches a stream of `/api/chat` or `/api/generate`."""

    __slots__ = ()

    def see(self, event: Any) -> bool:
        """Read a line; tell whether it is one of this API."""
        done, message = pick(event, "done"), pick(event, "message")
        if pick(event, "type") is not None:
            return False
        if not isinstance(done, bool) and message is None and pick(event, "response") is None:
            return False
        self.begun = self.begun or _says(event)
        if done is True:
            self.ended = self.begun = True
            found = {name: pick(event, name) for name in REPORTED}
            self.report = {name: value for name, value in found.items() if value is not None}
        return True


class OllamaReader:
    """Assembles an answer of `/api/chat`."""

    def __init__(self, salt: str = "") -> None:
        self.begun = self.ended = self.called = False
        self.failed: Mapping[str, Any] | None = None
        self._salt = salt
        self._text: list[str] = []
        self._thinking: list[str] = []
        self._calls: list[tuple[str, str, str]] = []
        self._report: dict[str, Any] = {}

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(self._text)

    def take(self, event: Mapping[str, Any]) -> list[Delta]:
        """Take a line, or a whole answer; return the pieces to show."""
        if event.get("error"):
            self.failed = event
            return []
        deltas: list[Delta] = []
        message = fields(event.get("message"))
        thought, text = read_text(message.get("thinking")), read_text(message.get("content"))
        if thought:
            self._thinking.append(thought)
            deltas.append(Delta("reasoning_delta", thought))
        if text:
            self._text.append(text)
            deltas.append(Delta("text_delta", text))
        for call in members(message.get("tool_calls")):
            function = fields(call.get("function"))
            name, given = read_text(function.get("name")), as_json(function.get("arguments"))
            self._calls.append((read_text(call.get("id")), name, given))
        self.called = self.called or bool(self._calls)
        self.begun = self.begun or bool(deltas or self._calls)
        if event.get("done") is True:
            self.begun = self.ended = True
            self._report = {name: event[name] for name in REPORTED if event.get(name) is not None}
        return deltas

    def reply(self) -> Reply:
        """Return the answer as far as it has arrived."""
        thought = "".join(self._thinking)
        thoughts = ({"thinking": thought},) if thought else ()
        usage = Usage.from_report(self._report) if self._report else None
        calls = assign_ids(self._calls, self._salt)
        return Reply(self.text, thoughts, calls, self._stop(), usage, dict(self._report))

    def _stop(self) -> Stop:
        reason = read_text(self._report.get("done_reason"))
        stop = STOPS.get(reason, "other") if reason else "end"
        return "calls" if stop == "end" and self._calls else stop


def _says(event: Any) -> bool:
    """Tell whether a line of a chat or a prompt has content: text, thinking or calls."""
    message = pick(event, "message")
    held = (message, event) if message is not None else (event,)
    names = ("content", "thinking", "tool_calls", "response")
    return any(pick(value, name) for value in held for name in names)
