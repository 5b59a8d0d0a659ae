"""Amazon Bedrock's Converse API: `converse` and `converse_stream`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from ullage.core.dialects import names
from ullage.core.dialects.dialect import Dialect, Endpoint, Errors, Fields, Shape
from ullage.core.dialects.framing import UNKNOWN_TEMPLATE
from ullage.core.messages.fields import field_of

if TYPE_CHECKING:
    from ullage.core.dialects.client import ClientForm
    from ullage.core.dialects.form import Form
    from ullage.core.dialects.reply import Assembly, Watch
    from ullage.core.dialects.usage import Usage
    from ullage.core.messages.transcript import Codec, Raw

FIELDS: Final = Fields(
    system="system",
    output=("maxTokens",),
    limit="maxTokens",
    inside="inferenceConfig",
    leaves_out=frozenset({"model", "stream"}),
)

BLOCKS: Final = frozenset(
    {
        *("text", "image", "document", "video", "audio", "toolUse", "toolResult", "guardContent"),
        *("cachePoint", "reasoningContent", "citationsContent", "searchResult"),
    }
)
"""Fields of content blocks (botocore 1.44, ContentBlock)."""

ALONE: Final = frozenset({"role", "content"})
"""Fields of a message; Haystack's messages, with similar parts, have more."""


def make_codec(*memory: Any) -> Codec:
    """Return a codec; it stores what it reads in the two arguments."""
    from ullage.core.dialects.bedrock_converse.codec import Converse

    return Converse(*memory)


def make_reader(salt: str) -> Assembly:
    """Return an object that assembles one answer."""
    from ullage.core.dialects.bedrock_converse.stream import ConverseReader

    return ConverseReader(salt)


def make_watch() -> Watch:
    """Return an object that watches one stream."""
    from ullage.core.dialects.bedrock_converse.stream import ConverseWatch

    return ConverseWatch()


def make_form() -> Form:
    """Return an object that writes a session."""
    from ullage.core.dialects.bedrock_converse.render import ConverseForm

    return ConverseForm()


def find_clients() -> Sequence[ClientForm]:
    """Return the forms of the SDK clients."""
    from ullage.core.dialects.bedrock_converse.clients import CLIENTS

    return CLIENTS


def read_usage(fields: Mapping[str, Any]) -> Usage | None:
    """Read a usage report."""
    from ullage.core.dialects.bedrock_converse.usage import read_usage as read

    return read(fields)


def join_turns(messages: Sequence[Raw]) -> list[Raw]:
    """Return messages in which user and assistant take turns."""
    from ullage.core.dialects.bedrock_converse.codec import join_turns as join

    return join(messages)


def _is_message(message: Any) -> bool:
    """Tell whether a message has blocks that are named by a field and have no type."""
    if not isinstance(message, Mapping) or not message.keys() <= ALONE:
        return False
    content = message.get("content")
    first = content[0] if isinstance(content, list | tuple) and content else None
    if not isinstance(first, Mapping) or "type" in first:
        return False
    return not BLOCKS.isdisjoint(first)


def _is_tool(tool: Any) -> bool:
    return field_of(tool, "toolSpec") is not None


def _address(base_url: str, model: str) -> str:
    from urllib.parse import quote

    return f"{base_url.rstrip('/')}/model/{quote(model, safe='')}/converse-stream"


def _report(status: int, code: str, text: str) -> Mapping[str, Any]:
    del status, code
    return {"message": text}


def _too_large(tokens: int, bound: int) -> Mapping[str, Any]:
    return {"message": f"prompt is too long: {tokens} tokens > {bound} maximum"}


def _break_off(text: str, _: bytes) -> bytes:
    return json.dumps({"message": text}).encode("ascii")


DIALECT: Final = Dialect(
    name=names.BEDROCK_CONVERSE,
    title="Bedrock Converse",
    short="bedrock",
    aliases=("bedrock", "converse"),
    fields=FIELDS,
    shape=Shape(is_message=_is_message, is_tool=_is_tool),
    framing=UNKNOWN_TEMPLATE,
    make_codec=make_codec,
    make_reader=make_reader,
    make_watch=make_watch,
    make_form=make_form,
    telling=re.compile(rb'"(?:stopReason|usage|message)"'),
    read_usage=read_usage,
    reports=frozenset({"inputTokens", "cacheReadInputTokens", "cacheWriteInputTokens"}),
    report_rank=2,
    endpoint=Endpoint(address=_address),
    errors=Errors(_report, _too_large, _break_off),
    join_turns=join_turns,
    clients=find_clients,
)
