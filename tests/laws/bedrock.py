"""Histories of Bedrock's Converse, and what it refuses.

botocore's own validator says what is taken.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from botocore.model import Shape
from botocore.session import Session
from botocore.validate import ParamValidator
from hypothesis import strategies as st

from tests.laws import judge
from tests.support import transcripts

Message = dict[str, Any]


@cache
def _request() -> Shape:
    model = Session().get_service_model("bedrock-runtime")
    shape: Shape = model.operation_model("Converse").input_shape
    return shape


class Accepted:
    """What boto3 takes: raises ValueError for a parameter that the service model does not know."""

    def validate_python(self, messages: list[Message]) -> None:
        """Raise ValueError for messages that boto3 refuses."""
        report = ParamValidator().validate({"modelId": "m", "messages": messages}, _request())
        if report.has_errors():
            raise ValueError(report.generate_report())


def histories(**options: Any) -> st.SearchStrategy[list[Message]]:
    """Return lawful histories; options as in `transcripts.histories`."""
    return transcripts.anthropic_histories(**options).map(written)


def broken(*, max_turns: int = 4) -> st.SearchStrategy[list[Message]]:
    """Return histories with the faults of `transcripts.broken_anthropic`."""
    return transcripts.broken_anthropic(max_turns=max_turns).map(written)


def written(history: list[Message]) -> list[Message]:
    """Return messages of the Messages API as those of Converse."""
    made: list[Message] = []
    for message in history:
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        made.append({"role": message["role"], "content": [_block(block) for block in blocks]})
    return made


def _block(block: Message) -> Message:
    match block["type"]:
        case "text":
            return {"text": block["text"]}
        case "thinking":
            text = {"text": block["thinking"], "signature": "s"}
            return {"reasoningContent": {"reasoningText": text}}
        case "tool_use":
            use = {"toolUseId": block["id"], "name": block["name"], "input": block["input"]}
            return {"toolUse": use}
        case "tool_result":
            inner = block.get("content")
            texts = [{"type": "text", "text": inner}] if isinstance(inner, str) else inner or []
            content = [_block(own) for own in texts]
            return {"toolResult": {"toolUseId": block["tool_use_id"], "content": content}}
    return {"image": {"format": "gif", "source": {"bytes": "R0lGODlhAwAFAAAAACwAAAAA"}}}


def faults(messages: list[Message]) -> list[str]:
    """Return what Converse would refuse of turns; messages of one role in a row are one turn."""
    return judge.anthropic_faults([_plain(message) for message in messages])


def _plain(message: Message) -> Message:
    made = []
    for block in message["content"]:
        use, result = block.get("toolUse"), block.get("toolResult")
        if use is not None:
            made.append({"type": "tool_use", "id": use["toolUseId"]})
        elif result is not None:
            made.append({"type": "tool_result", "tool_use_id": result["toolUseId"]})
        else:
            made.append({"type": "other"})
    return {"role": message["role"], "content": made}
