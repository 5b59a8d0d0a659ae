"""A session as messages of Ollama's own chat API.

Calls have no id, and their arguments are an object. Results name the tool and are in the order of
the calls (ollama docs/api.md, "Chat request (with history, with tools)").
"""

from __future__ import annotations

from typing import Any

from ullage.core.dialects.form import (
    Data,
    OfferedTool,
    Placed,
    RoundParts,
    find_medium,
    find_text,
    write_object,
)
from ullage.core.messages.transcript import Raw


class OllamaForm:
    """How Ollama's chat API writes a history."""

    once = False

    def part(self, part: Data) -> Data | None:
        """Return a piece of content for `user`, or None for a file: messages have no files."""
        if (text := find_text(part)) is not None:
            return {"type": "text", "text": text}
        medium = find_medium(part)
        if medium is None or medium[0] != "image":
            return None
        return {"type": "image", "data": medium[2]}

    def answer(self, answer: RoundParts) -> list[Placed]:
        """Return the messages of a round."""
        message: dict[str, Any] = {"role": "assistant", "content": "\n\n".join(answer.texts)}
        thought = "".join(str(block.get("thinking") or "") for _, block in answer.blocks)
        if thought:
            message["thinking"] = thought
        if answer.calls:
            message["tool_calls"] = [
                {"function": {"name": asked.name, "arguments": write_object(asked.arguments)}}
                for asked in answer.calls
            ]
        results: list[Placed] = [
            (asked.seq, {"role": "tool", "tool_name": asked.name, "content": asked.text})
            for asked in answer.calls
        ]
        return [(answer.seq, message), *results]

    def user(self, content: Any) -> Raw:
        """Return a message of the user: its text in one piece, and its images in their field."""
        if isinstance(content, str):
            return {"role": "user", "content": content}
        text = "\n\n".join(str(part["text"]) for part in content if "text" in part)
        images = [part["data"] for part in content if "data" in part]
        return {"role": "user", "content": text, **({"images": images} if images else {})}

    def add_text(self, message: Raw, text: str) -> Raw:
        """Return a copy of a user message with a text added at its end."""
        return {**message, "content": f"{message.get('content') or ''}\n\n{text}"}

    def tool(self, tool: OfferedTool) -> dict[str, Any]:
        """Return the definition of a tool."""
        function = {
            "name": tool.name,
            "description": tool.description,
            "parameters": dict(tool.parameters),
        }
        return {"type": "function", "function": function}
