"""Clients that send Chat Completions: OpenAI's, Mistral's, LiteLLM's.

Source of the shapes: openai 3.54, mistralai 3.7 (`Chat.complete`, `Chat.stream` and their async
versions), litellm 1.110 (`completion`, `acompletion`, `Router`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ullage.core.dialects.client import ClientForm, ClientMethod, Recipient, find_text
from ullage.core.dialects.openai_clients import find_litellm, make_openai
from ullage.core.messages.fields import field_of

MISTRAL: Final[Mapping[str, ClientMethod]] = {
    "complete": ClientMethod("whole", awaits=False),
    "complete_async": ClientMethod("whole", awaits=True),
    "parse": ClientMethod("whole", awaits=False),
    "parse_async": ClientMethod("whole", awaits=True),
    "stream": ClientMethod("stream", awaits=False),
    "stream_async": ClientMethod("stream", awaits=True),
    "parse_stream": ClientMethod("stream", awaits=False),
    "parse_stream_async": ClientMethod("stream", awaits=True),
}


def _find_mistral(client: Any, given: Mapping[str, Any]) -> Recipient:
    """Return the target of a call of Mistral's client: `server_url` of the call wins."""
    held = field_of(client, "sdk_configuration")
    details = field_of(held, "get_server_details")
    url = find_text(given, "server_url") or (str(details()[0]) if callable(details) else None)
    security = field_of(held, "security")
    if callable(security):
        security = security()
    versioned = None if url is None else f"{url.rstrip('/').removesuffix('/v1')}/v1"
    return Recipient(find_text(given, "model"), versioned, find_text(security, "api_key"))


CLIENTS: Final = (
    make_openai(("chat", "completions"), ("beta", "chat", "completions")),
    ClientForm(
        title="mistralai's Mistral",
        package="mistralai",
        classes={"Mistral": False, "MistralAzure": False, "MistralGCP": False},
        paths=(("chat",),),
        methods=MISTRAL,
        locate=_find_mistral,
        headers="http_headers",
    ),
    ClientForm(
        title="the module litellm and its Router",
        package="litellm",
        classes={"Router": False},
        modules=frozenset({"litellm"}),
        paths=((),),
        methods={
            "completion": ClientMethod(awaits=False),
            "acompletion": ClientMethod(awaits=True),
        },
        locate=find_litellm,
        headers="extra_headers",
    ),
)
