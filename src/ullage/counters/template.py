"""Finds the parts that a chat template leaves out: a server renders a conversation full of marks.

Small models' templates often render only the text of messages. It knows only llama.cpp (`POST
/apply-template` of its server) and sends nothing to a model.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ullage.transport import HttpRequest, HttpResponse

SERVER: Final = "llama.cpp"

_MARKS: Final[Mapping[str, str]] = {
    "tools": "ullage-mark-schema",
    "reasoning": "ullage-mark-thought",
    "tool_calls": "ullage-mark-call",
    "tool_results": "ullage-mark-result",
}
"""The rows of a context report that a template may leave out, and the mark for each."""

_SPOKEN: Final = "ullage-mark-spoken"


def asking(base: str, api_key: str | None) -> HttpRequest:
    """Return the request to a server at its root URL."""
    function: dict[str, Any] = {"name": "probe", "description": _MARKS["tools"]}
    function["parameters"] = {"type": "object", "properties": {"value": {"type": "string"}}}
    arguments = f'{{"value": "{_MARKS["tool_calls"]}"}}'
    call = {"name": "probe", "arguments": arguments}
    messages = [
        {"role": "user", "content": _SPOKEN},
        {
            "role": "assistant",
            "content": "",
            "reasoning_content": _MARKS["reasoning"],
            "tool_calls": [{"id": "probe00001", "type": "function", "function": call}],
        },
        {"role": "tool", "tool_call_id": "probe00001", "content": _MARKS["tool_results"]},
    ]
    body = {"messages": messages, "tools": [{"type": "function", "function": function}]}
    return HttpRequest(f"{base}/apply-template", body, api_key)


def find_dropped(answer: HttpResponse) -> frozenset[str] | None:
    """Return the rows that the template leaves out, or None if the answer does not tell."""
    said = answer.json() if answer.status == 200 else None
    prompt = said.get("prompt") if isinstance(said, Mapping) else None
    if not isinstance(prompt, str) or _SPOKEN not in prompt:
        return None
    return frozenset(row for row, mark in _MARKS.items() if mark not in prompt)
