"""A session as messages of Chat Completions.

Calls are in the assistant's message, and each result is a tool message.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from ullage.core.dialects.form import (
    Data,
    OfferedTool,
    Placed,
    RoundParts,
    add_part,
    file_name,
    find_medium,
    find_text,
    write_json,
    write_user,
)
from ullage.core.messages.transcript import Raw

MESSAGE_FIELDS: Final = frozenset({"role", "content", "tool_calls"})
"""Fields of a message that do not hold reasoning."""


class ChatForm:
    """How Chat Completions write a history."""

    once = False

    def part(self, part: Data) -> Data | None:
        """Return a piece of content, or None if the dialect cannot represent it."""
        if (text := find_text(part)) is not None:
            return {"type": "text", "text": text}
        if (medium := find_medium(part)) is None:
            return None
        kind, media, data = medium
        url = f"data:{media};base64,{data}"
        if kind == "image":
            return {"type": "image_url", "image_url": {"url": url}}
        return {"type": "file", "file": {"filename": file_name(part), "file_data": url}}

    def answer(self, answer: RoundParts) -> list[Placed]:
        """Return the messages of a round."""
        text = "\n\n".join(answer.texts)
        message: dict[str, Any] = {"role": "assistant", "content": text or None}
        message |= _merge(block for _, block in answer.blocks)
        if answer.calls:
            message["tool_calls"] = [
                {
                    "id": asked.id,
                    "type": "function",
                    "function": {"name": asked.name, "arguments": write_json(asked.arguments)},
                }
                for asked in answer.calls
            ]
        results: list[Placed] = [
            (asked.seq, {"role": "tool", "tool_call_id": asked.id, "content": asked.text})
            for asked in answer.calls
        ]
        return [(answer.seq, message), *results]

    def user(self, content: Any) -> Raw:
        """Return a message of the user."""
        return write_user(content)

    def add_text(self, message: Raw, text: str) -> Raw:
        """Return a copy of a user message with a text added at its end."""
        return add_part(message, text)

    def tool(self, tool: OfferedTool) -> dict[str, Any]:
        """Return the definition of a tool."""
        function = {
            "name": tool.name,
            "description": tool.description,
            "parameters": dict(tool.parameters),
        }
        return {"type": "function", "function": function}


def _merge(blocks: Iterable[Data]) -> dict[str, Any]:
    """Return the reasoning fields of a message, with several blocks joined."""
    merged: dict[str, Any] = {}
    for block in blocks:
        for name, value in block.items():
            held = merged.get(name)
            joins = isinstance(held, str | list) and type(held) is type(value)
            if name not in MESSAGE_FIELDS:
                merged[name] = held + value if joins else value
    return merged
