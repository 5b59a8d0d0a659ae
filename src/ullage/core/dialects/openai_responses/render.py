"""A session as items of the Responses API: one item each for reasoning, text, call and result."""

from __future__ import annotations

from typing import Any

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


class ResponsesForm:
    """How the Responses API writes a history."""

    once = False

    def part(self, part: Data) -> Data | None:
        """Return a piece of content, or None if the dialect cannot represent it."""
        if (text := find_text(part)) is not None:
            return {"type": "input_text", "text": text}
        if (medium := find_medium(part)) is None:
            return None
        kind, media, data = medium
        url = f"data:{media};base64,{data}"
        if kind == "image":
            return {"type": "input_image", "image_url": url, "detail": "auto"}
        return {"type": "input_file", "filename": file_name(part), "file_data": url}

    def answer(self, answer: RoundParts) -> list[Placed]:
        """Return the items of a round."""
        # llama.cpp needs the type of an assistant's message; OpenAI does not
        words: list[Placed] = [
            (answer.seq, {"type": "message", "role": "assistant", "content": text})
            for text in answer.texts
        ]
        calls: list[Placed] = []
        results: list[Placed] = []
        for asked in answer.calls:
            call = {"type": "function_call", "call_id": asked.id, "name": asked.name}
            calls.append((asked.called, {**call, "arguments": write_json(asked.arguments)}))
            result = {"type": "function_call_output", "call_id": asked.id, "output": asked.text}
            results.append((asked.seq, result))
        return [*answer.blocks, *words, *calls, *results]

    def user(self, content: Any) -> Raw:
        """Return a message of the user."""
        return write_user(content)

    def add_text(self, message: Raw, text: str) -> Raw:
        """Return a copy of a user message with a text added at its end."""
        return add_part(message, text, "input_text")

    def tool(self, tool: OfferedTool) -> dict[str, Any]:
        """Return the definition of a tool."""
        return {
            "type": "function",
            "name": tool.name,
            "description": tool.description,
            "parameters": dict(tool.parameters),
            "strict": False,  # strict is the default, and would require every property
        }
