"""A session as contents of the Gemini API.

All results of a round are in one user's content after it. A signature is sent back on the part that
it came with (Gemini API, "Thought signatures").
"""

from __future__ import annotations

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


class GeminiForm:
    """How the Gemini API writes a history."""

    once = True

    def part(self, part: Data) -> Data | None:
        """Return a piece of content, or None if the dialect cannot represent it."""
        if (text := find_text(part)) is not None:
            return {"text": text}
        if (medium := find_medium(part)) is None:
            return None
        return {"inlineData": {"mimeType": medium[1], "data": medium[2]}}

    def answer(self, answer: RoundParts) -> list[Placed]:
        """Return the contents of a round."""
        blocks = [block for _, block in answer.blocks]
        signs = {block["call"]: block["thoughtSignature"] for block in blocks if "call" in block}
        parts: list[Data] = [block for block in blocks if "call" not in block]
        parts += [{"text": text} for text in answer.texts]
        parts += [_write_call(asked, signs.get(n)) for n, asked in enumerate(answer.calls)]
        spoken: list[Placed] = [(answer.seq, {"role": "model", "parts": parts})]
        if not answer.calls:
            return spoken
        results = [_write_result(asked) for asked in answer.calls]
        first = min(asked.seq for asked in answer.calls)
        return [*spoken, (first, {"role": "user", "parts": results})]

    def user(self, content: Any) -> Raw:
        """Return a content of the user."""
        parts = [{"text": content}] if isinstance(content, str) else list(content)
        return {"role": "user", "parts": parts}

    def add_text(self, message: Raw, text: str) -> Raw:
        """Return a copy of a user's content with a text added at its end."""
        return {**message, "parts": [*message["parts"], {"text": text}]}

    def tool(self, tool: OfferedTool) -> dict[str, Any]:
        """Return the definition of a tool; its schema is plain JSON schema."""
        declared = {
            "name": tool.name,
            "description": tool.description,
            "parametersJsonSchema": dict(tool.parameters),
        }
        return {"functionDeclarations": [declared]}


def _write_call(asked: RenderedCall, sign: Any) -> Data:
    call = {"id": asked.id, "name": asked.name, "args": write_object(asked.arguments)}
    return {"functionCall": call, **({} if sign is None else {"thoughtSignature": sign})}


def _write_result(asked: RenderedCall) -> Data:
    response = {"error" if asked.is_error else "output": asked.text}
    return {"functionResponse": {"id": asked.id, "name": asked.name, "response": response}}
