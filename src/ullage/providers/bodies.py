"""The body and the headers of a call, by dialect, and the changes after a server refuses a field.

It sends nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from ullage.core.dialects import registry
from ullage.providers.provider import Provider
from ullage.transport import HttpRequest


class Quirk(NamedTuple):
    """One of our fields that some servers refuse with these words; it is left out or renamed."""

    name: str
    words: re.Pattern[str]
    rename: str | None = None


QUIRKS: Final[Sequence[Quirk]] = (
    Quirk("stream_options", re.compile(r"stream_options|include_usage")),
    # "Unsupported parameter: 'max_tokens' is not supported with this model. Use
    # 'max_completion_tokens' instead." (OpenAI, reasoning models)
    Quirk("max_tokens", re.compile(r"max_completion_tokens"), "max_completion_tokens"),
    # "Encrypted content is not supported with this model." (OpenAI, models without reasoning)
    Quirk("include", re.compile(r"encrypted[ _]content", re.IGNORECASE)),
    Quirk("prompt_cache_key", re.compile(r"prompt_cache_key")),
    Quirk("store", re.compile(r"\bstore\b")),
)


def body(
    provider: Provider, fields: Mapping[str, Any], quirks: Sequence[Quirk] = ()
) -> dict[str, Any]:
    """Return the body of a call: defaults, then the provider's options, then the call's fields."""
    spoken = registry.find(provider.dialect)
    made = {**spoken.endpoint.defaults(provider.base_url), **provider.options, **fields}
    inside = spoken.fields.inside
    if inside is not None and inside in provider.options and inside in fields:
        made[inside] = {**provider.options[inside], **fields[inside]}
    for quirk in quirks:
        if quirk.name in made and quirk.name not in provider.options:
            value = made.pop(quirk.name)
            if quirk.rename is not None:
                made.setdefault(quirk.rename, value)
    whole = {**made, "model": provider.model, "stream": True}
    return {name: value for name, value in whole.items() if name not in spoken.fields.leaves_out}


def find_quirk(sent: Mapping[str, Any], provider: Provider, words: str) -> Quirk | None:
    """Return the change to make if a refusal names one of our fields, or None."""
    ours = (q for q in QUIRKS if q.name in sent and q.name not in provider.options)
    return next((quirk for quirk in ours if quirk.words.search(words)), None)


def ask(provider: Provider, made: Mapping[str, Any]) -> HttpRequest:
    """Return the request with a body."""
    endpoint = registry.find(provider.dialect).endpoint
    url = endpoint.address(provider.base_url, provider.model)
    extra = [("accept", "text/event-stream, application/json"), ("accept-encoding", "identity")]
    extra += endpoint.headers
    private = tuple((name.lower(), value) for name, value in provider.headers.items())
    return HttpRequest(url, made, provider.api_key, endpoint.auth, tuple(extra), private)
