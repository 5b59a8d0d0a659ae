"""Ollama's own API: `/api/chat`, and `/api/generate` as a request of one prompt."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from ullage.core.dialects import names
from ullage.core.dialects.dialect import Dialect, Endpoint, Errors, Fields, Options, Routes, Shape
from ullage.core.dialects.framing import UNKNOWN_TEMPLATE
from ullage.core.messages.fields import field_of

if TYPE_CHECKING:
    from ullage.core.dialects.client import ClientForm
    from ullage.core.dialects.form import Form
    from ullage.core.dialects.reply import Assembly, Watch
    from ullage.core.dialects.usage import Usage
    from ullage.core.messages.transcript import Codec

FIELDS: Final = Fields(
    output=("num_predict",), limit="num_predict", inside="options", streams_unasked=True, lines=True
)

GENERATE: Final = Fields(
    messages="prompt",
    output=("num_predict",),
    limit="num_predict",
    inside="options",
    streams_unasked=True,
    lines=True,
    single=True,
)

TEXTS: Final = ("tool_name", "thinking")
"""Fields of a message that are text here and exist in no other dialect."""


def make_codec(*memory: Any) -> Codec:
    """Return a codec; it stores what it reads in the two arguments."""
    from ullage.core.dialects.ollama_chat.codec import OllamaChat

    return OllamaChat(*memory)


def make_reader(salt: str) -> Assembly:
    """Return an object that assembles one answer."""
    from ullage.core.dialects.ollama_chat.stream import OllamaReader

    return OllamaReader(salt)


def make_watch() -> Watch:
    """Return an object that watches one stream."""
    from ullage.core.dialects.ollama_chat.stream import OllamaWatch

    return OllamaWatch()


def make_form() -> Form:
    """Return an object that writes a session."""
    from ullage.core.dialects.ollama_chat.render import OllamaForm

    return OllamaForm()


def find_clients() -> Sequence[ClientForm]:
    """Return the forms of the SDK clients."""
    from ullage.core.dialects.ollama_chat.clients import CLIENTS

    return CLIENTS


def read_usage(fields: Mapping[str, Any]) -> Usage | None:
    """Read a usage report."""
    from ullage.core.dialects.ollama_chat.usage import read_usage as read

    return read(fields)


def _find_window(fields: Mapping[str, Any], num_ctx: int | None) -> int | None:
    from ullage.core.dialects.ollama_chat import options

    return options.find_window(fields, num_ctx)


def _write_options(
    fields: Mapping[str, Any], num_ctx: int | None, num_predict: int | None
) -> Mapping[str, Any] | None:
    from ullage.core.dialects.ollama_chat import options

    return options.write_options(fields, num_ctx, num_predict)


def _read_single(fields: Mapping[str, Any]) -> tuple[Sequence[Mapping[str, Any]], int]:
    from ullage.core.dialects.ollama_chat import options

    return options.read_single(fields)


def _is_message(message: Any) -> bool:
    """Tell whether a message has a mark that only Ollama's messages have.

    The marks are these fields, and calls that lack an id or a type and have an object as arguments:
    calls of Chat have both, and arguments as text.
    """
    if any(isinstance(field_of(message, name), str) for name in TEXTS):
        return True
    images = field_of(message, "images")
    if isinstance(images, list | tuple) and images and isinstance(images[0], str):
        return True
    calls = field_of(message, "tool_calls")
    for call in calls[:1] if isinstance(calls, list | tuple) else ():
        arguments = field_of(field_of(call, "function"), "arguments")
        whole = field_of(call, "id") and field_of(call, "type")
        return isinstance(arguments, Mapping) and not whole
    return False


def _root(base_url: str) -> str:
    """Return the URL of a server, from that URL or from the base URL of either of its APIs."""
    return base_url.rstrip("/").removesuffix("/v1").removesuffix("/api")


def _address(base_url: str, _: str) -> str:
    return f"{_root(base_url)}/api/chat"


def _listing(base_url: str) -> str:
    """Return the URL of the list of local models (ollama docs/api.md, "List Local Models")."""
    return f"{_root(base_url)}/api/tags"


def _report(_: int, __: str, text: str) -> Mapping[str, Any]:
    return {"error": text}


def _too_large(tokens: int, bound: int) -> Mapping[str, Any]:
    text = (
        f"the prompt is longer than the context length currently available to the model: "
        f"{tokens} tokens > {bound}; shorten the prompt, adjust the context length in "
        "settings, or use a model with a longer context length"
    )
    return {"error": text}


def _break_off(text: str, left: bytes) -> bytes:
    """Return the line that ends a stream early; an unfinished line is ended first."""
    line = json.dumps({"error": text}).encode("ascii") + b"\n"
    return b"\n" + line if left and not left.endswith(b"\n") else line


DIALECT: Final = Dialect(
    name=names.OLLAMA_CHAT,
    title="Ollama's chat API",
    short="ollama",
    aliases=("ollama",),
    fields=FIELDS,
    shape=Shape(
        is_message=_is_message,
        keywords=frozenset({"num_predict"}),
        parameters=frozenset({"messages", "options", "keep_alive"}),
    ),
    framing=UNKNOWN_TEMPLATE,
    make_codec=make_codec,
    make_reader=make_reader,
    make_watch=make_watch,
    make_form=make_form,
    telling=re.compile(rb'"done"\s*:\s*true|"error"'),
    read_usage=read_usage,
    reports=frozenset({"prompt_eval_count", "eval_count"}),
    report_rank=1,
    endpoint=Endpoint(address=_address, listing=_listing, listed=("models", "name")),
    errors=Errors(_report, _too_large, _break_off),
    options=Options(_find_window, _write_options, _read_single),
    routes=Routes(
        guarded={"/api/chat": FIELDS, "/api/generate": GENERATE},
        plain=(
            (frozenset({"GET"}), re.compile(r"/api/(?:tags|ps|version)")),
            (frozenset({"POST"}), re.compile(r"/api/show")),
            (frozenset({"HEAD"}), re.compile(r"/")),
        ),
        prefix="/api/",
    ),
    clients=find_clients,
)
