"""Anthropic's Messages API."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from ullage.core.dialects import names
from ullage.core.dialects.dialect import Dialect, Endpoint, Errors, Fields, Routes, Shape
from ullage.core.dialects.framing import Framing
from ullage.core.dialects.rounds import AddedTools
from ullage.core.dialects.server_edits import (
    NativeCompaction,
    ServerEdits,
    list_mappings,
    read_tokens,
)
from ullage.core.messages.fields import as_text, field_of, mapping
from ullage.core.messages.size import Size

if TYPE_CHECKING:
    from ullage.core.dialects.client import ClientForm
    from ullage.core.dialects.form import Form
    from ullage.core.dialects.reply import Assembly, Watch
    from ullage.core.dialects.rounds import Rounds
    from ullage.core.dialects.usage import Usage
    from ullage.core.messages.transcript import Codec

FRAMING: Final = Framing(message=4, role=0, name=0, tools=Size(159, 346, 700), slack=4)
"""Anthropic publishes the extra tokens of tools: 159 to 530 for Claude 3, 346 (313 if a tool is
forced) for Claude 4 ("Tool use with Claude", pricing). Nothing is published about messages; the
example of count_tokens leaves about seven for a system prompt and a message together.
"""

FIELDS: Final = Fields(system="system", takes_blocks=True)

VERSION: Final = "2023-06-01"
"""Version of the API (Anthropic's documentation, "Versions")."""

LONGEST_ANSWER: Final = 4096
"""Tokens of an answer if nobody sets a limit: the API requires one (`max_tokens`)."""

KINDS: Final[Mapping[int, str]] = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    500: "api_error",
    502: "api_error",
    503: "api_error",
    504: "timeout_error",
}
"""Names of errors, by status (Anthropic's documentation, "Errors")."""

SERVER_RESULT: Final = "_tool_result"
"""The ending of result types of Anthropic's own tools (web_search_tool_result, ...)."""

SERVER_TOOL: Final = re.compile(r"_\d{8}$")
"""Anthropic's own tools have the date of their version in the type (web_search_20250305)."""


def make_codec(*memory: Any) -> Codec:
    """Return a codec; it stores what it reads in the two arguments."""
    from ullage.core.dialects.anthropic.codec import Anthropic

    return Anthropic(*memory)


def make_reader(salt: str) -> Assembly:
    """Return an object that assembles one answer."""
    from ullage.core.dialects.anthropic.stream import MessagesAnswer

    return MessagesAnswer(salt)


def make_watch() -> Watch:
    """Return an object that watches one stream."""
    from ullage.core.dialects.anthropic.stream import MessagesWatch

    return MessagesWatch()


def make_form() -> Form:
    """Return an object that writes a session."""
    from ullage.core.dialects.anthropic.render import MessagesForm

    return MessagesForm()


def make_rounds(names: frozenset[str]) -> Rounds:
    """Return an object that joins several rounds into one answer."""
    from ullage.core.dialects.anthropic.rounds import MessagesRounds

    return MessagesRounds(names)


def is_shaped(request: Mapping[str, Any]) -> bool:
    """Tell whether a request prescribes the form of the answer."""
    from ullage.core.dialects.anthropic.rounds import is_shaped as tell

    return tell(request)


def find_clients() -> Sequence[ClientForm]:
    """Return the forms of the SDK clients."""
    from ullage.core.dialects.anthropic.clients import CLIENTS

    return CLIENTS


def read_usage(fields: Mapping[str, Any]) -> Usage | None:
    """Read a usage report."""
    from ullage.core.dialects.anthropic.usage import read_usage as read

    return read(fields)


def _is_part(part: Any) -> bool:
    kind = field_of(part, "type")
    if kind in ("image", "document") and field_of(part, "source") is not None:
        return True
    return isinstance(kind, str) and kind.endswith(SERVER_RESULT)


def _is_tool(tool: Any) -> bool:
    kind = field_of(tool, "type")
    dated = isinstance(kind, str) and SERVER_TOOL.search(kind) is not None
    return dated or field_of(tool, "input_schema") is not None


def _report(status: int, _: str, text: str) -> Mapping[str, Any]:
    kind = KINDS.get(status, "invalid_request_error")
    return {"type": "error", "error": {"type": kind, "message": text}}


TRIGGERS: Final[Mapping[str, int]] = {
    "compact_20260112": 150_000,
    "clear_tool_uses_20250919": 100_000,
}
"""Edits that make room, and the input tokens from which they do by default (docs: "Compaction",
"Context editing"; the types of the Python SDK 2.12).
"""


def _read_edits(fields: Mapping[str, Any]) -> ServerEdits | None:
    """Return the first edit that makes room; a trigger by tool uses has no size."""
    asked = mapping(fields.get("compaction"))
    if asked is not None:
        return ServerEdits("compaction", 0)
    managed = mapping(fields.get("context_management")) or {}
    found = []
    for edit in list_mappings(managed.get("edits")):
        name, trigger = as_text(edit.get("type")), mapping(edit.get("trigger"))
        if name in TRIGGERS and (trigger is None or trigger.get("type") == "input_tokens"):
            at = read_tokens((trigger or {}).get("value"), TRIGGERS[name]) or 0
            found.append(ServerEdits(name, at))
    return min(found, key=lambda edit: edit.at or 0, default=None)


def _read_native(answer: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return a message with the compaction in an answer; a compaction without text failed."""
    for block in list_mappings(answer.get("content")):
        if block.get("type") == "compaction" and isinstance(block.get("content"), str):
            return {"role": "assistant", "content": [dict(block)]}
    return None


NATIVE: Final = NativeCompaction(
    _read_native,
    fields={"compaction": {"type": "summarize"}, "max_tokens": 16_000},
    headers=(("anthropic-beta", "compact-2026-09-04"),),
)
"""Types of the Python SDK 2.12: `BetaCompactionConfigParam`."""


def _too_large(tokens: int, bound: int) -> Mapping[str, Any]:
    return _report(400, "", f"prompt is too long: {tokens} tokens > {bound} maximum")


def _break_off(text: str, _: bytes) -> bytes:
    error = {"type": "error", "error": {"type": "api_error", "message": text}}
    return b"event: error\ndata: " + json.dumps(error).encode("ascii") + b"\n\n"


DIALECT: Final = Dialect(
    name=names.ANTHROPIC,
    title="Messages",
    short="anthropic",
    aliases=("messages", "claude"),
    fields=FIELDS,
    shape=Shape(
        parts=frozenset(
            {
                "tool_use",
                "tool_result",
                "thinking",
                "redacted_thinking",
                "compaction",
                "server_tool_use",
                "mcp_tool_use",
                "mcp_tool_result",
                "container_upload",
                "search_result",
            }
        ),
        typed=True,
        is_part=_is_part,
        is_tool=_is_tool,
        parameters=frozenset({"messages", "system", "stop_sequences"}),
    ),
    framing=FRAMING,
    make_codec=make_codec,
    make_reader=make_reader,
    make_watch=make_watch,
    make_form=make_form,
    added_tools=AddedTools(make_rounds, {"type": "none"}, is_shaped),
    read_edits=_read_edits,
    native=NATIVE,
    telling=re.compile(rb'message_|"error"'),
    read_usage=read_usage,
    reports=frozenset({"cache_read_input_tokens", "cache_creation_input_tokens", "cache_creation"}),
    endpoint=Endpoint(
        # Anthropic's SDK takes the URL without /v1; local servers give theirs with it.
        address=lambda base, _: f"{base.rstrip('/').removesuffix('/v1')}/v1/messages",
        auth="x-api-key",
        headers=(("anthropic-version", VERSION),),
        defaults=lambda _: {"max_tokens": LONGEST_ANSWER},
        longest_answer=LONGEST_ANSWER,
        home=("api.anthropic.com", "ANTHROPIC_API_KEY"),
        counts="/v1/messages/count_tokens",
        listing=lambda base: f"{base.rstrip('/').removesuffix('/v1')}/v1/models",
    ),
    errors=Errors(_report, _too_large, _break_off),
    routes=Routes(
        guarded={"/v1/messages": FIELDS},
        checked=frozenset({"/v1/messages/count_tokens"}),
        prefix="/v1/messages",
    ),
    clients=find_clients,
)
