"""An answer of Chat Completions, assembled from its chunks.

Source: OpenAI API reference, "The chat completion chunk object"; comments name the deviations of
servers. This module knows no other dialect.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
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
from ullage.core.messages.fields import as_mapping, pick

STOPS: Final[Mapping[str, Stop]] = {
    "stop": "end",
    "tool_calls": "calls",
    "function_call": "calls",
    "length": "length",
    "content_filter": "filter",
}

THOUGHTS: Final = ("reasoning_content", "reasoning")
"""Fields with thinking. First: DeepSeek, llama.cpp, vLLM before 0.11. Second: OpenRouter, Ollama,
later vLLM. Some send both, with the same text.
"""

DETAILS: Final = "reasoning_details"
"""OpenRouter's blocks of reasoning with their signatures, to be sent back unchanged (its guide on
reasoning tokens, "Preserving reasoning").
"""


@dataclass(slots=True)
class _Asked:
    """A call, as far as it has arrived."""

    id: str = ""
    name: str = ""
    pieces: list[str] = field(default_factory=list)

    @property
    def arguments(self) -> str:
        return "".join(self.pieces)

    def complete(self) -> bool:
        """Tell whether the arguments are a whole JSON object."""
        return _is_object(self.arguments)

    def repeats(self, call_id: str, name: str, arguments: str) -> bool:
        """Tell whether this very call is repeated, as in a last chunk with the whole message."""
        same = bool(call_id) and (call_id, name) == (self.id, self.name)
        return same and arguments == self.arguments and self.complete()


class ChatAnswer:
    """Assembles an answer of Chat Completions; of several choices only the first counts."""

    def __init__(self, salt: str = "") -> None:
        self.begun = self.ended = self.called = False
        self.failed: Mapping[str, Any] | None = None
        self._salt = salt
        self._text: list[str] = []
        self._thoughts: dict[str, list[str]] = {}
        self._details: list[dict[str, Any]] = []
        self._calls: list[_Asked] = []
        self._places: dict[int, _Asked] = {}
        self._finish: str | None = None
        self._refused = False
        self._report: dict[str, Any] = {}

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(self._text)

    def take(self, event: Mapping[str, Any]) -> list[Delta]:
        """Take a chunk, or a whole completion; return the pieces to show."""
        deltas: list[Delta] = []
        if event.get("error") or event.get("object") == "error":  # the latter is vLLM's
            self.failed = event
        for choice in members(event.get("choices")):
            if choice.get("index") not in (None, 0):
                continue
            whole = "delta" not in choice and not self._calls
            said = choice.get("delta") or choice.get("message")
            self._message(fields(said), deltas, whole=whole)
            self._note_finish(choice.get("finish_reason"))
        for name in ("usage", "timings"):  # timings are llama.cpp's
            if fields(event.get(name)):
                self._report[name] = event[name]
        return deltas

    def reply(self) -> Reply:
        """Return the answer as far as it has arrived."""
        calls = assign_ids(((c.id, c.name, c.arguments) for c in self._calls), self._salt)
        usage = Usage.from_report(self._report) if self._report else None
        ends = [{"finish_reason": self._finish}] if self._finish else []
        report = {**self._report, "choices": ends}
        return Reply(self.text, self._thinking(), calls, self._stop(), usage, report)

    def _stop(self) -> Stop:
        if self._refused:
            return "filter"
        stop = STOPS.get(self._finish, "other") if self._finish else "end"
        if stop in ("end", "calls"):  # many send "stop" with calls, some "tool_calls" without
            return "calls" if self._calls else "end"
        return stop

    def _note_finish(self, reason: object) -> None:
        if read_text(reason):
            self.begun = self.ended = True
            self._finish = read_text(reason)

    def _message(self, delta: Mapping[str, Any], deltas: list[Delta], *, whole: bool) -> None:
        thought = next(
            ((n, read_text(delta[n])) for n in THOUGHTS if read_text(delta.get(n))), None
        )
        if thought is not None:
            self._thoughts.setdefault(thought[0], []).append(thought[1])
            deltas.append(Delta("reasoning_delta", thought[1]))
        for detail in members(delta.get(DETAILS)):
            _join_details(self._details, detail)
        refusal = read_text(delta.get("refusal"))
        self._refused = self._refused or bool(refusal)
        for text in (*_texts(delta.get("content")), refusal):
            if text:
                self._text.append(text)
                deltas.append(Delta("text_delta", text))
        for fragment in members(delta.get("tool_calls")):
            self._add_fragment(fragment, fields(fragment.get("function")), whole=whole)
        legacy = fields(delta.get("function_call"))
        if legacy:
            self._add_fragment({"index": 0}, legacy)
        self.begun = self.begun or bool(deltas or self._details or self.called)

    def _add_fragment(
        self, fragment: Mapping[str, Any], function: Mapping[str, Any], *, whole: bool = False
    ) -> None:
        """Add a fragment to its call, or begin another one; a `whole` call is a new one."""
        self.called = True
        index, call_id, name = (
            fragment.get("index"),
            read_text(fragment.get("id")),
            read_text(function.get("name")),
        )
        arguments = as_json(function.get("arguments"))
        call = None if whole else self._place(index, call_id)
        if call is not None and call.repeats(call_id, name, arguments):
            return
        if call is None or (name and _another(call, name, index, call_id, arguments)):
            call = _Asked()
            self._calls.append(call)
        if isinstance(index, int):
            self._places[index] = call
        call.id = call.id or call_id
        if name != call.name:  # some servers repeat it in every fragment
            call.name += name
        call.pieces.append(arguments)

    def _place(self, index: object, call_id: str) -> _Asked | None:
        """Return the call that a fragment belongs to: by index, by id, else the last one."""
        if isinstance(index, int):
            return self._places.get(index)
        if call_id:
            return next((c for c in reversed(self._calls) if c.id == call_id), None)
        return self._calls[-1] if self._calls else None

    def _thinking(self) -> tuple[Mapping[str, Any], ...]:
        made: dict[str, Any] = {name: "".join(texts) for name, texts in self._thoughts.items()}
        if self._details:
            made[DETAILS] = [dict(detail) for detail in self._details]
        return (made,) if made else ()


def _another(call: _Asked, name: str, index: object, call_id: str, arguments: str) -> bool:
    """Tell whether a fragment with a name begins another call at an index that is in use.

    Ollama and Gemini's OpenAI endpoint have sent every call whole under index 0. Some servers send
    no index at all, and some give one id to several calls.
    """
    if call_id and call.id:
        anew = name != call.name or _is_object(arguments)
        return call_id != call.id or (anew and call.complete())
    if not isinstance(index, int):
        return not call_id
    return bool(arguments) and not call_id and call.complete()


def _is_object(arguments: str) -> bool:
    """Tell whether arguments are a whole JSON object."""
    try:
        return isinstance(json.loads(arguments), dict)
    except (ValueError, RecursionError):
        return False


def _texts(content: object) -> list[str]:
    """Return the texts of a content; Mistral sends a list of parts."""
    if isinstance(content, str):
        return [content]
    return [read_text(part.get("text")) for part in members(content) if part.get("type") == "text"]


def _join_details(details: list[dict[str, Any]], detail: Mapping[str, Any]) -> None:
    """Add a piece of a block of reasoning to the block that it continues, or as a new block."""
    last: MutableMapping[str, Any] = details[-1] if details else {}
    if not last or any(last.get(key) != detail.get(key) for key in ("type", "index")):
        details.append(dict(detail))
        return
    for key, value in detail.items():
        grows = key in ("text", "summary", "data") and isinstance(value, str)
        if grows:
            last[key] = read_text(last.get(key)) + value
        elif value is not None:
            last[key] = value


class ChatWatch(Watch):
    """Watches a stream of Chat Completions; the usage is in the last chunk or after it."""

    __slots__ = ("_more",)

    def __init__(self) -> None:
        super().__init__()
        self._more: dict[str, Any] = {}

    def see(self, event: Any) -> bool:
        """Read a chunk; tell whether it is one."""
        choices = pick(event, "choices")
        if choices is None and (held := pick(event, "data")) is not None:  # Mistral's own client
            event, choices = held, pick(held, "choices")
        if not isinstance(choices, list | tuple):
            return False
        for choice in choices:
            finish = pick(choice, "finish_reason")
            if finish is not None:
                self.ended = True
                self._more["choices"] = [{"finish_reason": finish}]
            self.begun = self.begun or finish is not None or _says(pick(choice, "delta"))
        usage, timings = pick(event, "usage"), pick(event, "timings")
        if usage is not None:
            self._more["usage"] = usage
        elif timings is not None:  # llama.cpp, even if no usage was requested
            self._more["timings"] = timings
        if self.ended and ("usage" in self._more or timings is not None):
            self.report = self._more
        return True


def _says(delta: Any) -> bool:
    """Tell whether a delta has more than a role."""
    held = as_mapping(delta) or {}
    return any(value for name, value in held.items() if name != "role")
