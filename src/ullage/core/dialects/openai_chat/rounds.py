"""Several rounds of Chat Completions as one answer.

Source: OpenAI API reference, "The chat completion chunk object". This module knows no other
dialect.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ullage.core.dialects.reply import fields, members, read_text
from ullage.core.dialects.rounds import Event, Rounds, write_frame

CALLING: Final = frozenset({"tool_calls", "function_call"})
"""Finish reasons that mean calls."""

BETWEEN: Final = "\n\n"
"""The text between the texts of two rounds, which are one text here."""

SHAPES: Final = ("grammar", "json_schema", "guided_json", "guided_grammar", "guided_regex")
"""Fields of llama.cpp and vLLM that prescribe the form of an answer."""


def is_shaped(request: Mapping[str, Any]) -> bool:
    """Tell whether a request prescribes the form of the answer, or has the old `functions`."""
    asked = request.get("response_format")
    form = fields(asked).get("type", "text") if asked is not None else "text"
    given = (request.get(name) for name in (*SHAPES, "functions", "function_call"))
    return form != "text" or any(value is not None for value in given)


class ChatRounds(Rounds):
    """Rounds of Chat Completions; all chunks have the id of the first one that was shown."""

    def __init__(self, names: frozenset[str]) -> None:
        self._id: object = None
        self._spoke = False
        self._speaks = False
        super().__init__(names)

    def take_whole(self, answer: Event) -> Event:
        """Take a completion; return the client's view of it."""
        choices = members(answer.get("choices"))
        calls = members(fields(choices[0].get("message")).get("tool_calls")) if choices else []
        if self._keeps_whole(map(_name, calls)) or self.turned:
            return answer
        message = dict(choices[0]["message"])
        kept = [call for call in calls if _name(call) not in self.names]
        finish = self._find_end(choices[0].get("finish_reason"))
        choice = {**choices[0], "message": _put(message, kept), "finish_reason": finish}
        return {**answer, "choices": [choice, *choices[1:]]}

    def _reset(self) -> None:
        self._stripped: set[int] = set()
        self._spoke, self._speaks = self._spoke or self._speaks, False

    def _see(self, event: Event, frame: bytes) -> bytes:
        choices = members(event.get("choices"))
        if not choices:
            return self._write(frame, says=False)
        delta, finish = fields(choices[0].get("delta")), choices[0].get("finish_reason")
        made = self._filter(delta)
        end = None if self.turned else self._find_end(finish)
        if not end and not any(value for name, value in made.items() if name != "role"):
            if made != delta or (self._follows and not event.get("usage")):
                return b""
            return self._write(frame, says=False)
        made = self._part_texts(made)
        if not self.shown:
            self._id = event.get("id")
        again = self._follows and event.get("id") != self._id
        if made == delta and end == finish and not again:
            return self._write(frame)
        named = {"id": self._id} if again else {}
        choice = {**choices[0], "delta": made, "finish_reason": end}
        return self._write(write_frame({**event, **named, "choices": [choice, *choices[1:]]}))

    def _filter(self, delta: Event) -> Event:
        """Return the client's view of a delta: no calls of added tools, no gaps in indexes."""
        fragments = members(delta.get("tool_calls"))
        self._theirs = self._theirs or bool(delta.get("function_call"))
        kept = [made for one in fragments if (made := self._place(one)) is not None]
        return delta if kept == fragments else _put(dict(delta), kept)

    def _place(self, fragment: Event) -> Event | None:
        """Return a fragment of a call with the client's index, or None if the call is hidden."""
        given, name = fragment.get("index"), _name(fragment)
        index = given if isinstance(given, int) else 0
        if self.turned:
            return None
        if name and not self._keeps(name):
            self._stripped.add(index)
        elif name:
            self._stripped.discard(index)
        if index in self._stripped:
            return None
        less = sum(gone < index for gone in self._stripped)
        return {**fragment, "index": index - less} if less else fragment

    def _find_end(self, finish: Any) -> Any:
        """Return the finish reason for the client: calls only if it sees a call."""
        return "stop" if finish in CALLING and self._left_out and not self._theirs else finish

    def _part_texts(self, delta: Event) -> Event:
        """Return a delta whose text is separated from that of an earlier round."""
        text = read_text(delta.get("content"))
        parts = bool(text) and self._spoke and not self._speaks
        self._speaks = self._speaks or bool(text)
        return {**delta, "content": BETWEEN + text} if parts else delta


def _name(call: Event) -> str:
    return read_text(fields(call.get("function")).get("name"))


def _put(holder: dict[str, Any], calls: Sequence[Event]) -> dict[str, Any]:
    """Return a delta or message with these calls, or without the field for an empty list."""
    holder.pop("tool_calls", None)
    return {**holder, "tool_calls": calls} if calls else holder
