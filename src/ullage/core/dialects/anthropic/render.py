"""A session as messages of Anthropic's Messages API.

Thinking comes first, and all results of a round are in one message after it. The API refuses text
without a visible character ("text content blocks must contain non-whitespace text"), so no block
has such text.
"""

from __future__ import annotations

from typing import Any

from ullage.core.dialects.form import (
    Data,
    OfferedTool,
    Placed,
    RenderedCall,
    RoundParts,
    add_part,
    find_medium,
    find_text,
    write_object,
    write_user,
)
from ullage.core.messages.transcript import Raw


class MessagesForm:
    """How the Messages API writes a history."""

    once = True

    def part(self, part: Data) -> Data | None:
        """Return a piece of content, or None if the dialect cannot represent it."""
        if (text := find_text(part)) is not None:
            return {"type": "text", "text": text}
        if (medium := find_medium(part)) is None:
            return None
        kind, media, data = medium
        source = {"type": "base64", "media_type": media, "data": data}
        if kind == "image":
            return {"type": "image", "source": source}
        # the only file type that the API accepts as base64 (reference, Base64PDFSource)
        return {"type": "document", "source": source} if media == "application/pdf" else None

    def answer(self, answer: RoundParts) -> list[Placed]:
        """Return the messages of a round."""
        blocks: list[Data] = [block for _, block in answer.blocks]
        blocks += [{"type": "text", "text": text} for text in answer.texts]
        blocks += [_write_use(asked) for asked in answer.calls]
        spoken: list[Placed] = [(answer.seq, {"role": "assistant", "content": blocks})]
        if not answer.calls:
            return spoken
        results = [_write_result(asked) for asked in answer.calls]
        first = min(asked.seq for asked in answer.calls)
        return [*spoken, (first, write_user(results))]

    def user(self, content: Any) -> Raw:
        """Return a message of the user."""
        return write_user(content)

    def add_text(self, message: Raw, text: str) -> Raw:
        """Return a copy of a user message with a text added at its end."""
        return add_part(message, text)

    def tool(self, tool: OfferedTool) -> dict[str, Any]:
        """Return the definition of a tool."""
        return {
            "name": tool.name,
            "description": tool.description,
            "input_schema": dict(tool.parameters),
        }


def _write_use(asked: RenderedCall) -> Data:
    given = write_object(asked.arguments)
    return {"type": "tool_use", "id": asked.id, "name": asked.name, "input": given}


def _write_result(asked: RenderedCall) -> Data:
    result = {"type": "tool_result", "tool_use_id": asked.id, "content": asked.text}
    return {**result, "is_error": True} if asked.is_error else result
