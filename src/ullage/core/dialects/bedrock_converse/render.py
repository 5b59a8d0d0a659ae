"""A session as messages of Bedrock's Converse.

Reasoning comes first, and all results of a round are in one message after it.
"""

from __future__ import annotations

from base64 import b64decode
from typing import Any

from ullage.core.dialects.form import (
    Data,
    OfferedTool,
    Placed,
    RenderedCall,
    RoundParts,
    find_medium,
    find_text,
    write_object,
)
from ullage.core.messages.transcript import Raw


class ConverseForm:
    """How Converse writes a history."""

    once = True

    def part(self, part: Data) -> Data | None:
        """Return a piece of content, or None if the dialect cannot represent it.

        Images and files become bytes, as boto3 takes them.
        """
        if (text := find_text(part)) is not None:
            return {"text": text}
        medium = find_medium(part)
        kind, _, form = medium[1].partition("/") if medium is not None else ("", "", "")
        if medium is None or (kind != "image" and medium[1] != "application/pdf"):
            return None
        source = {"bytes": b64decode(medium[2])}
        if kind == "image":
            return {"image": {"format": form, "source": source}}
        return {"document": {"format": "pdf", "name": "file", "source": source}}

    def answer(self, answer: RoundParts) -> list[Placed]:
        """Return the messages of a round."""
        blocks: list[Data] = [block for _, block in answer.blocks]
        blocks += [{"text": text} for text in answer.texts]
        blocks += [_write_use(asked) for asked in answer.calls]
        spoken: list[Placed] = [(answer.seq, {"role": "assistant", "content": blocks})]
        if not answer.calls:
            return spoken
        results = [_write_result(asked) for asked in answer.calls]
        first = min(asked.seq for asked in answer.calls)
        return [*spoken, (first, {"role": "user", "content": results})]

    def user(self, content: Any) -> Raw:
        """Return a message of the user."""
        blocks = [{"text": content}] if isinstance(content, str) else list(content)
        return {"role": "user", "content": blocks}

    def add_text(self, message: Raw, text: str) -> Raw:
        """Return a copy of a user message with a text added at its end."""
        return {**message, "content": [*message["content"], {"text": text}]}

    def tool(self, tool: OfferedTool) -> dict[str, Any]:
        """Return the definition of a tool."""
        schema = {"json": dict(tool.parameters)}
        spec = {"name": tool.name, "description": tool.description, "inputSchema": schema}
        return {"toolSpec": spec}


def _write_use(asked: RenderedCall) -> Data:
    given = write_object(asked.arguments)
    return {"toolUse": {"toolUseId": asked.id, "name": asked.name, "input": given}}


def _write_result(asked: RenderedCall) -> Data:
    status = {"status": "error"} if asked.is_error else {}
    return {"toolResult": {"toolUseId": asked.id, "content": [{"text": asked.text}], **status}}
