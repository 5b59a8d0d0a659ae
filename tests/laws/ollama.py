"""Histories of Ollama's own chat, and what its server and its Python client take.

A history of Chat Completions is written in one of three forms: calls with ids, results that name
their tool, results that name nothing and go by their place.
"""

from __future__ import annotations

import json
from typing import Any, Literal

from hypothesis import strategies as st
from pydantic import ConfigDict, TypeAdapter
from typing_extensions import TypedDict

from tests.support import transcripts

Message = dict[str, Any]
Form = Literal["ids", "names", "places"]
GIF = "R0lGODlhAwAFAAAAACwAAAAAAwAFAAACAoRRADs="


class Function(TypedDict):
    """A function to be called (ollama 0.6.3, Message.ToolCall.Function)."""

    name: str
    arguments: dict[str, Any]


class ToolCall(TypedDict, total=False):
    """A call; `id` is the server's since 0.12 and not in the client's types."""

    id: str
    function: Function


class Said(TypedDict, total=False):
    """A message (ollama 0.6.3, Message; `tool_call_id` is the server's, api/types.go)."""

    __pydantic_config__ = ConfigDict(strict=True, extra="ignore")  # type: ignore[misc]  # pydantic's own way

    role: Literal["system", "user", "assistant", "tool"]
    content: str | None
    thinking: str
    images: list[str]
    tool_calls: list[ToolCall]
    tool_name: str
    tool_call_id: str


ACCEPTED: TypeAdapter[Any] = TypeAdapter(list[Said])


@st.composite
def histories(draw: st.DrawFn, /, **options: Any) -> list[Message]:
    """Draw a lawful history; options as in `transcripts.histories`."""
    return _drawn(draw, transcripts.histories(**options))


@st.composite
def broken(draw: st.DrawFn, /, max_turns: int = 4) -> list[Message]:
    """Draw a history with the faults of `transcripts.broken_histories`."""
    return _drawn(draw, transcripts.broken_histories(max_turns=max_turns))


def _drawn(draw: st.DrawFn, chat: st.SearchStrategy[list[Message]]) -> list[Message]:
    form: Form = draw(st.sampled_from(["places", "names", "ids"]))
    return written(draw(chat), form, draw(st.integers(0, 2**16)))


def written(history: list[Message], form: Form, chance: int = 0) -> list[Message]:
    """Return a Chat history as Ollama's; `chance` picks where there are images and thinking."""
    names: dict[str, str] = {}
    made: list[Message] = []
    for place, message in enumerate(history):
        pick = bool((chance >> (place % 16)) & 1)
        role, text = message["role"], _text(message)
        role = "system" if role == "developer" else role
        asked = message.get("tool_calls", ())
        names |= {call["id"]: call["function"]["name"] for call in asked}
        new: Message = {"role": role, "content": text}
        if role == "tool":
            new |= _address(message["tool_call_id"], names, form)
        if asked:
            new["tool_calls"] = [_call(call, form) for call in asked]
        if pick and role == "assistant":
            new["thinking"] = "which file?"
        if pick and role in ("user", "tool") and place % 3 == 0:
            new["images"] = [GIF] * (1 + place % 2)
        made.append(new | ({"x_trace": "t-1"} if "x_trace" in message else {}))
    return made


def _call(call: Message, form: Form) -> Message:
    function = call["function"]
    made = {"name": function["name"], "arguments": {"given": function["arguments"]}}
    return {"function": made} | ({"id": call["id"]} if form == "ids" else {})


def _address(name: str, names: dict[str, str], form: Form) -> Message:
    if form == "ids":
        return {"tool_call_id": name}
    return {"tool_name": names.get(name, "nobody")} if form == "names" else {}


def _text(message: Message) -> str:
    content = message.get("content") or message.get("refusal") or ""
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content)


def faults(messages: list[Message]) -> list[str]:
    """Return what leaves a call of a response without exactly one result right behind it.

    A result is the call's that it names, else that of the tool it names, else the next one's that
    has none.
    """
    found: list[str] = []
    asked: list[Message] = []
    waiting: list[int] = []
    behind = False
    for index, message in enumerate(messages):
        if message["role"] == "tool":
            place = _belongs(message, asked, waiting) if behind else None
            if place is None:
                found.append(f"a result of nothing at {index}")
            else:
                waiting.remove(place)
            continue
        found += [f"no result for {json.dumps(asked[place])}" for place in waiting]
        asked = message.get("tool_calls") or []
        waiting, behind = list(range(len(asked))), bool(asked)
    return found + [f"no result for {json.dumps(asked[place])}" for place in waiting]


def _belongs(result: Message, asked: list[Message], waiting: list[int]) -> int | None:
    ids = [call.get("id") for call in asked]
    if "tool_call_id" in result and any(ids):
        place = ids.index(result["tool_call_id"]) if result["tool_call_id"] in ids else None
        return place if place in waiting else None
    bearing = [i for i, c in enumerate(asked) if c["function"]["name"] == result.get("tool_name")]
    free = [i for i in bearing if i in waiting]
    if bearing:
        return free[0] if free else None
    return waiting[0] if waiting else None
