"""The routes of the proxy as data: what is guarded, in which dialect, and what is forwarded.

What stands in no row is not there: nothing is passed through blindly.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ullage.core.messages.transcript import Dialect


@dataclass(frozen=True, slots=True)
class Form:
    """Where the parts of a conversation stand in a request body.

    `output` are the fields that may limit the answer, `kept` those that say that the history is
    the server's own. `inside` is the field that holds the limit, where it is no field itself.
    A `single` request is one prompt: it is measured, and nothing of it can be left out.
    """

    dialect: Dialect
    history: str = "messages"
    system: str | None = None
    output: tuple[str, ...] = ("max_tokens",)
    kept: tuple[str, ...] = ()
    inside: str | None = None
    single: bool = False


CHAT: Final = Form("openai_chat", output=("max_completion_tokens", "max_tokens"))
RESPONSES: Final = Form(
    "openai_responses",
    history="input",
    system="instructions",
    output=("max_output_tokens",),
    kept=("previous_response_id", "conversation", "prompt"),
)
MESSAGES: Final = Form("anthropic", system="system")
OLLAMA: Final = Form("ollama_chat", output=("num_predict",), inside="options")

GENERATE: Final = Form(
    "ollama_chat", history="prompt", output=("num_predict",), inside="options", single=True
)

GUARDED: Final[Mapping[str, Form]] = {
    "/v1/chat/completions": CHAT,
    "/v1/responses": RESPONSES,
    "/v1/messages": MESSAGES,
    "/api/chat": OLLAMA,
    "/api/generate": GENERATE,
}
"""POST requests that carry a conversation."""

CHECKED: Final = frozenset({"/v1/completions", "/v1/embeddings", "/v1/messages/count_tokens"})
"""POST requests with a body that is checked and forwarded as it came."""

PLAIN: Final[Sequence[tuple[frozenset[str], re.Pattern[str]]]] = (
    (frozenset({"GET"}), re.compile(r"/v1/models(?:/[A-Za-z0-9._:@-]+(?:/[A-Za-z0-9._:@-]+)*)?")),
    (frozenset({"GET", "DELETE"}), re.compile(r"/v1/responses/[A-Za-z0-9_-]+")),
    (frozenset({"GET"}), re.compile(r"/api/(?:tags|ps|version)")),
    (frozenset({"POST"}), re.compile(r"/api/show")),
    (frozenset({"HEAD"}), re.compile(r"/")),
)
"""Methods and paths that are forwarded without a look at what they carry."""


def dialect(path: str) -> Dialect:
    """Return the dialect in which the clients of a path read errors."""
    form = GUARDED.get(path)
    if form is not None:
        return form.dialect
    if path.startswith("/api/"):
        return "ollama_chat"
    return "anthropic" if path.startswith("/v1/messages") else "openai_chat"


def plain(method: str, path: str) -> bool:
    """Tell whether a request is forwarded as it is. A path with `..` in it never is."""
    if ".." in path or "//" in path:
        return False
    return any(method in methods and shape.fullmatch(path) for methods, shape in PLAIN)
