"""Wrapped SDK clients, whose calls go through a guard: `ullage.wrap`.

The SDKs are recognised by shape and never imported; the knowledge about each SDK is in the folder
of its dialect. Methods return what the SDK returns. Methods that send no conversation are not
changed. This package knows nothing of windows.
"""

from __future__ import annotations

from typing import Any, TypeVar, cast

from ullage.api.wrap.methods import find_forms, list_titles
from ullage.api.wrap.parts import WrappedPart, make_part
from ullage.api.wrap.shared import SharedGuards
from ullage.core.errors import ConfigurationError

__all__ = ["wrap"]

Client = TypeVar("Client")


def wrap(client: Client, *, model: str | None = None, **options: Any) -> Client:
    """Return `client` with each conversation kept inside its window.

    ::

        client = ullage.wrap(openai.OpenAI())
        client.chat.completions.create(model="gpt-4o", messages=history)

    Takes `OpenAI`, `AsyncOpenAI`, `Anthropic`, `AsyncAnthropic`, google-genai's `Client`, boto3's
    `bedrock-runtime`, `Mistral`, Ollama's `Client` and `AsyncClient`, the module `litellm` and its
    `Router`, and their subclasses. Every method that sends a conversation is guarded, whole or
    streamed (docs/wrap.md has the table). Everything else, and every answer, is the client's own.

    `options` are those of `Guard`. The client's own server is asked for the window of each
    request's model. Give `model` if the requests name something else, such as a deployment. If the
    server keeps the history (`previous_response_id`, `conversation`, `prompt`), the request is
    forwarded unchanged, with one notice.

    Raises ConfigurationError for an unsupported client or an invalid setting, and TypeError for an
    option that `Guard` does not have. The calls raise what `Guard.prepare` raises.
    """
    kind = type(client)
    if issubclass(kind, WrappedPart):
        raise ConfigurationError("this client is wrapped already: use it as it is")
    forms = find_forms(client)
    if not forms:
        raise ConfigurationError(
            f"ullage.wrap takes {list_titles()}, and what derives from them, not "
            f"{kind.__module__}.{kind.__qualname__}: for another client use Guard.call or "
            "Guard.stream"
        )
    if "dialect" in options:
        raise ConfigurationError("dialect= follows from the method that is called: leave it out")
    shared = SharedGuards(forms, model, options)
    shared.guard(client, next(iter(shared.methods.values())), {})  # raises for invalid options
    return cast("Client", make_part(client, (), shared, client))
