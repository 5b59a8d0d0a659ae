"""Histories of the Gemini API, and what it refuses.

A history of the Messages API is written in one of two forms: calls with ids, and calls without,
whose results go by name and place. The SDK's own types say what is taken.
"""

from __future__ import annotations

import json
from typing import Any

from google.genai import types
from hypothesis import strategies as st
from pydantic import TypeAdapter

from tests.support import transcripts

Message = dict[str, Any]
GIF = "R0lGODlhAwAFAAAAACwAAAAAAwAFAAACAoRRADs="
ACCEPTED: TypeAdapter[Any] = TypeAdapter(list[types.Content])


@st.composite
def histories(draw: st.DrawFn, /, **options: Any) -> list[Message]:
    """Draw a lawful history; options as in `transcripts.histories`."""
    return written(draw(transcripts.anthropic_histories(**options)), named=draw(st.booleans()))


@st.composite
def broken(draw: st.DrawFn, /, max_turns: int = 4) -> list[Message]:
    """Draw a history with the faults of `transcripts.broken_anthropic`; its calls have ids."""
    return written(draw(transcripts.broken_anthropic(max_turns=max_turns)), named=True)


def written(history: list[Message], *, named: bool) -> list[Message]:
    """Return messages of the Messages API as contents."""
    tools: dict[str, str] = {}
    made: list[Message] = []
    for message in history:
        role = "model" if message["role"] == "assistant" else "user"
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        tools |= {b["id"]: b["name"] for b in blocks if b["type"] == "tool_use"}
        made.append({"role": role, "parts": [_part(b, tools, named=named) for b in blocks]})
    return made


def _part(block: Message, tools: dict[str, str], *, named: bool) -> Message:
    match block["type"]:
        case "text":
            return {"text": block["text"]}
        case "thinking":
            return {"text": block["thinking"], "thought": True}
        case "tool_use":
            call = {"name": block["name"], "args": block["input"]}
            given = {"id": block["id"]} if named else {}
            return {"functionCall": {**given, **call}, "thoughtSignature": "c2ln"}
        case "tool_result":
            name = tools.get(block["tool_use_id"], "nobody")
            given = {"id": block["tool_use_id"]} if named else {}
            response = {"output": _text(block.get("content"))}
            return {"functionResponse": {**given, "name": name, "response": response}}
    return {"inlineData": {"mimeType": "image/gif", "data": GIF}}


def _text(content: Any) -> str:
    if isinstance(content, str) or content is None:
        return content or ""
    return "".join(block.get("text", "") for block in content)


def faults(messages: list[Message]) -> list[str]:
    """Return what the API would refuse: results and calls that do not match, a wrong opening."""
    found = ["does not open with the user"] * (bool(messages) and messages[0]["role"] != "user")
    wanted: list[str] = []
    for index, message in enumerate(messages):
        calls = [p["functionCall"] for p in message["parts"] if "functionCall" in p]
        results = [p["functionResponse"] for p in message["parts"] if "functionResponse" in p]
        if message["role"] == "model":
            asked = [call.get("id", f"by name: {call['name']}") for call in calls]
            ids = [call["id"] for call in calls if "id" in call]
            found += [f"call ids repeat at {index}"] * (len(set(ids)) != len(ids))
            wanted += asked
            found += [f"results of the model at {index}"] * bool(results)
            continue
        given = [r.get("id", f"by name: {r['name']}") for r in results]
        if sorted(given) != sorted(wanted):
            found.append(f"{given} are the results at {index}, wanted are {wanted}")
        kinds = ["functionResponse" in part for part in message["parts"]]
        found += [f"results behind words at {index}"] * (kinds != sorted(kinds, reverse=True))
        wanted = []
    return found + [f"no result for {json.dumps(call)}" for call in wanted]
