"""Google's Gemini API: `generateContent` and `streamGenerateContent`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from ullage.core.dialects import names
from ullage.core.dialects.dialect import (
    Address,
    Dialect,
    Endpoint,
    Errors,
    Fields,
    Routes,
    Shape,
)
from ullage.core.dialects.framing import UNKNOWN_TEMPLATE
from ullage.core.messages.fields import field_of

if TYPE_CHECKING:
    from ullage.core.dialects.client import ClientForm
    from ullage.core.dialects.form import Form
    from ullage.core.dialects.reply import Assembly, Watch
    from ullage.core.dialects.usage import Usage
    from ullage.core.messages.transcript import Codec

FIELDS: Final = Fields(
    messages="contents",
    system="systemInstruction",
    output=("maxOutputTokens",),
    limit="maxOutputTokens",
    inside="generationConfig",
    leaves_out=frozenset({"model", "stream"}),
    system_parts="parts",
    spellings={
        "systemInstruction": "system_instruction",
        "generationConfig": "generation_config",
        "maxOutputTokens": "max_output_tokens",
    },
)

MODEL: Final = r"/v1(?:beta)?/models/(?P<model>[\w.-]+)"


ROLES: Final = ("user", "model", "function")
"""Roles of contents."""

STATUSES: Final[Mapping[int, str]] = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
"""Names of errors, by status (Gemini API, "Troubleshooting guide")."""


def make_codec(*memory: Any) -> Codec:
    """Return a codec; it stores what it reads in the two arguments."""
    from ullage.core.dialects.gemini.codec import Gemini

    return Gemini(*memory)


def make_reader(salt: str) -> Assembly:
    """Return an object that assembles one answer."""
    from ullage.core.dialects.gemini.stream import GeminiReader

    return GeminiReader(salt)


def make_watch() -> Watch:
    """Return an object that watches one stream."""
    from ullage.core.dialects.gemini.stream import GeminiWatch

    return GeminiWatch()


def make_form() -> Form:
    """Return an object that writes a session."""
    from ullage.core.dialects.gemini.render import GeminiForm

    return GeminiForm()


def find_clients() -> Sequence[ClientForm]:
    """Return the forms of the SDK clients."""
    from ullage.core.dialects.gemini.clients import CLIENTS

    return CLIENTS


def read_usage(fields: Mapping[str, Any]) -> Usage | None:
    """Read a usage report."""
    from ullage.core.dialects.gemini.usage import read_usage as read

    return read(fields)


def _is_message(message: Any) -> bool:
    """Tell whether a message is a content: it has a role of this API, and parts."""
    role, parts = field_of(message, "role"), field_of(message, "parts")
    return role in ROLES and isinstance(parts, list | tuple)


def _is_tool(tool: Any) -> bool:
    names = ("functionDeclarations", "function_declarations")
    return any(field_of(tool, name) is not None for name in names)


def _base(base_url: str) -> str:
    """Return a base URL with a version, by default `v1beta`."""
    base = base_url.rstrip("/")
    return base if re.search(r"/v\d\w*$", base) else f"{base}/v1beta"


def _address(base_url: str, model: str) -> str:
    """Return the address of a streamed call."""
    name = model.removeprefix("models/")
    return f"{_base(base_url)}/models/{name}:streamGenerateContent?alt=sse"


def _listing(base_url: str) -> str:
    """Return the URL of the list of models (Gemini API, `models.list`)."""
    return f"{_base(base_url)}/models"


def _report(status: int, _: str, text: str) -> Mapping[str, Any]:
    named = STATUSES.get(status, "UNKNOWN")
    return {"error": {"code": status, "message": text, "status": named}}


def _too_large(tokens: int, bound: int) -> Mapping[str, Any]:
    text = f"The input token count ({tokens}) exceeds the maximum number of tokens allowed"
    return _report(400, "", f"{text} ({bound}).")


def _break_off(text: str, left: bytes) -> bytes:
    """Return the event that ends a stream early; for a stream that is an array, its last member."""
    error = json.dumps(_report(500, "", text)).encode("ascii")
    if not left:
        return b"data: " + error + b"\r\n\r\n"
    return (b"" if left.rstrip()[-1:] in (b"[", b",") else b",") + error + b"]"


DIALECT: Final = Dialect(
    name=names.GEMINI,
    title="Gemini",
    short="gemini",
    aliases=("google",),
    fields=FIELDS,
    shape=Shape(
        is_message=_is_message,
        is_tool=_is_tool,
        parameters=frozenset({"contents", "config"}),
    ),
    framing=UNKNOWN_TEMPLATE,
    make_codec=make_codec,
    make_reader=make_reader,
    make_watch=make_watch,
    make_form=make_form,
    telling=re.compile(rb'"(?:finishReason|blockReason|usageMetadata|error)"'),
    read_usage=read_usage,
    reports=frozenset(
        {"promptTokenCount", "prompt_token_count", "totalTokenCount", "total_token_count"}
    ),
    report_rank=2,
    endpoint=Endpoint(
        address=_address,
        auth="x-goog-api-key",
        key_in_query=True,
        listing=_listing,
        listed=("models", "name"),
        home=("generativelanguage.googleapis.com", "GEMINI_API_KEY"),
    ),
    errors=Errors(_report, _too_large, _break_off),
    routes=Routes(
        addressed=(
            Address(re.compile(f"{MODEL}:generateContent"), FIELDS),
            Address(re.compile(f"{MODEL}:streamGenerateContent"), FIELDS, streams=True),
            Address(re.compile(f"{MODEL}:countTokens")),
        ),
        plain=((frozenset({"GET"}), re.compile(r"/v1beta/models(?:/[\w.-]+)?")),),
        prefix="/v1beta/",
    ),
    clients=find_clients,
)
