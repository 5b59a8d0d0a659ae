"""A client of an SDK whose calls go through a guard: `ullage.wrap`.

The SDKs are met by shape and never imported; what is known of each stands in the folder of its
dialect. What a method answers is what the SDK answers; a method that sends no conversation is the
client's own. It knows nothing of windows.
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

    For `OpenAI`, `AsyncOpenAI`, `Anthropic`, `AsyncAnthropic`, google-genai's `Client`, boto3's
    `bedrock-runtime`, `Mistral`, Ollama's `Client` and `AsyncClient`, the module `litellm` and its
    `Router`, and what derives from them: each method that sends a conversation, whole or streamed
    (the table is docs/wrap.md). Everything else is the client's own, and so are the answers.
    `options` are those of `Guard`; the window is asked of the client's own server, for the model of
    each request, or for `model` where the name in the requests is not the model's, such as a
    deployment's. A history that the server keeps (`previous_response_id`, `conversation`, `prompt`)
    is forwarded as it is, with one notice.

    Raises ConfigurationError for a client or a setting that cannot work, TypeError for an option
    that `Guard` does not have, and, from the calls, what `Guard.prepare` raises.
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
