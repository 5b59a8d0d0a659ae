"""The OpenAI Responses API."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from ullage.core.dialects import names
from ullage.core.dialects.dialect import Dialect, Endpoint, Errors, Fields, Routes, Shape
from ullage.core.dialects.framing import Framing
from ullage.core.dialects.openai import find_cache_key, is_openai, report, write_too_large
from ullage.core.dialects.rounds import AddedTools
from ullage.core.dialects.server_edits import (
    NativeCompaction,
    ServerEdits,
    list_mappings,
    read_tokens,
)

if TYPE_CHECKING:
    from ullage.core.dialects.client import ClientForm
    from ullage.core.dialects.form import Form
    from ullage.core.dialects.reply import Assembly, Watch
    from ullage.core.dialects.rounds import Rounds
    from ullage.core.dialects.usage import Usage
    from ullage.core.messages.transcript import Codec

FRAMING: Final = Framing(slack=4)
"""OpenAI publishes the numbers of Chat only; an item of Responses may cost a little more."""

FIELDS: Final = Fields(
    messages="input",
    system="instructions",
    output=("max_output_tokens",),
    limit="max_output_tokens",
    stored=("previous_response_id", "conversation", "prompt", "response_id"),
    takes_text=True,
)

ENCRYPTED: Final = "reasoning.encrypted_content"
"""Without it, reasoning that OpenAI does not store cannot be sent back (its guide on reasoning)."""


def make_codec(*memory: Any) -> Codec:
    """Return a codec; it stores what it reads in the two arguments."""
    from ullage.core.dialects.openai_responses.codec import OpenAIResponses

    return OpenAIResponses(*memory)


def make_reader(salt: str) -> Assembly:
    """Return an object that assembles one answer."""
    from ullage.core.dialects.openai_responses.stream import Responses

    return Responses(salt)


def make_watch() -> Watch:
    """Return an object that watches one stream."""
    from ullage.core.dialects.openai_responses.stream import ResponsesWatch

    return ResponsesWatch()


def make_form() -> Form:
    """Return an object that writes a session."""
    from ullage.core.dialects.openai_responses.render import ResponsesForm

    return ResponsesForm()


def make_rounds(names: frozenset[str]) -> Rounds:
    """Return an object that joins several rounds into one answer."""
    from ullage.core.dialects.openai_responses.rounds import ResponsesRounds

    return ResponsesRounds(names)


def is_shaped(request: Mapping[str, Any]) -> bool:
    """Tell whether a request prescribes the form of the answer."""
    from ullage.core.dialects.openai_responses.rounds import is_shaped as tell

    return tell(request)


def find_clients() -> Sequence[ClientForm]:
    """Return the forms of the SDK clients."""
    from ullage.core.dialects.openai_responses.clients import CLIENTS

    return CLIENTS


def read_usage(fields: Mapping[str, Any]) -> Usage | None:
    """Read a usage report."""
    from ullage.core.dialects.usage import read_openai

    return read_openai(fields)


def _defaults(base_url: str) -> Mapping[str, Any]:
    return {"store": False, **({"include": [ENCRYPTED]} if is_openai(base_url) else {})}


def _read_edits(fields: Mapping[str, Any]) -> ServerEdits | None:
    """Return the compaction that a request asks for ("Compaction" of OpenAI's guides)."""
    for entry in list_mappings(fields.get("context_management")):
        if entry.get("type") == "compaction":
            return ServerEdits("compaction", read_tokens(entry.get("compact_threshold"), None))
    return None


def _read_native(answer: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the compaction among the items of an answer."""
    items = list_mappings(answer.get("output"))
    return next((dict(item) for item in items if item.get("type") == "compaction"), None)


def _break_off(text: str, _: bytes) -> bytes:
    failed = {"type": "error", "code": "server_error", "message": text, "param": None}
    return b"event: error\ndata: " + json.dumps(failed).encode("ascii") + b"\n\n"


DIALECT: Final = Dialect(
    name=names.OPENAI_RESPONSES,
    title="Responses",
    short="responses",
    aliases=("responses",),
    fields=FIELDS,
    shape=Shape(
        parts=frozenset({"input_text", "output_text", "input_image", "input_file"}),
        items=True,
        keywords=frozenset({"input", "instructions", "max_output_tokens"}),
        parameters=frozenset({"input", "instructions"}),
    ),
    framing=FRAMING,
    make_codec=make_codec,
    make_reader=make_reader,
    make_watch=make_watch,
    make_form=make_form,
    added_tools=AddedTools(make_rounds, "none", is_shaped),
    read_edits=_read_edits,
    native=NativeCompaction(_read_native, path="/compact"),
    telling=re.compile(rb'response\.(?:completed|incomplete|failed)|"error"'),
    read_usage=read_usage,
    reports=frozenset({"input_tokens"}),
    report_rank=1,
    endpoint=Endpoint(
        address=lambda base, _: f"{base.rstrip('/')}/responses",
        defaults=_defaults,
        home=("api.openai.com", "OPENAI_API_KEY"),
        counts="/v1/responses/input_tokens",
        cache_key=find_cache_key,
    ),
    errors=Errors(
        report, lambda tokens, bound: write_too_large(tokens, bound, FIELDS.messages), _break_off
    ),
    routes=Routes(
        guarded={"/v1/responses": FIELDS},
        plain=((frozenset({"GET", "DELETE"}), re.compile(r"/v1/responses/[A-Za-z0-9_-]+")),),
    ),
    clients=find_clients,
)
