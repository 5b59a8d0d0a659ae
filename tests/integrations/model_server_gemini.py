"""The wire of Gemini's generateContent for the suite's model server: its words in and out.

A request becomes one of Chat Completions, so that the same checks see it. It counts nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

PATH: Final = re.compile(r"/v1beta/models/([^:]+):(stream)?[gG]enerateContent(\?alt=sse)?")


def read_request(model: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """Return a request as Chat Completions has it; calls without an id are told by their order."""
    messages: list[Any] = []
    if "systemInstruction" in body:
        messages.append({"role": "system", "content": _find_text(body["systemInstruction"])})
    asked: list[str] = []
    for content in body["contents"]:
        calls: list[Any] = []
        for part in content["parts"]:
            if "functionCall" in part:
                call = part["functionCall"]
                asked.append(call.get("id") or f"call {len(messages)} {len(calls)}")
                function = {"name": call["name"], "arguments": json.dumps(call.get("args", {}))}
                calls.append({"id": asked[-1], "type": "function", "function": function})
            if "functionResponse" in part:
                said = part["functionResponse"]["response"]
                text = said.get("result") or said.get("output") or json.dumps(said)
                name = part["functionResponse"].get("id") or (asked[0] if asked else "none")
                if name in asked:
                    asked.remove(name)
                messages.append({"role": "tool", "tool_call_id": name, "content": text})
        text = _find_text(content)
        if calls or text:
            role = "assistant" if content["role"] == "model" else "user"
            made = {"role": role, "content": text or None}
            messages.append({**made, "tool_calls": calls} if calls else made)
    declared = [d for tool in body.get("tools", ()) for d in tool.get("functionDeclarations", ())]
    tools = [{"type": "function", "function": declaration} for declaration in declared]
    asked = body.get("generationConfig", {}).get("maxOutputTokens")
    return {"model": model, "messages": messages, "tools": tools, "max_tokens": asked}


def write_answer(message: Mapping[str, Any], usage: Mapping[str, int]) -> dict[str, Any]:
    """Return an answer as Gemini has it."""
    parts: list[Any] = [
        {
            "functionCall": {
                "id": call["id"],
                "name": call["function"]["name"],
                "args": json.loads(call["function"]["arguments"]),
            }
        }
        for call in message.get("tool_calls") or ()
    ]
    if message.get("content"):
        parts.append({"text": message["content"]})
    return {
        "candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP"}],
        "usageMetadata": {
            "promptTokenCount": usage["prompt_tokens"],
            "candidatesTokenCount": usage["completion_tokens"],
            "totalTokenCount": usage["total_tokens"],
        },
    }


def write_error(text: str) -> dict[str, Any]:
    """Return a refusal as Gemini has it; an overflow in its own words."""
    found = re.search(r"maximum context length is (\d+) tokens.* resulted in (\d+) tokens", text)
    if found:
        text = (
            f"The input token count ({found[2]}) exceeds the maximum number of tokens allowed "
            f"({found[1]})."
        )
    return {"error": {"code": 400, "message": text, "status": "INVALID_ARGUMENT"}}


def _find_text(content: Mapping[str, Any]) -> str:
    return "".join(part.get("text", "") for part in content["parts"])
