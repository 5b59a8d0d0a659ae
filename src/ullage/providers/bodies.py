"""The body and the headers of a call, by dialect, and what to change where a server refuses one.

It sends nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from ullage.providers import addresses
from ullage.providers.provider import Provider
from ullage.transport import Ask, Auth

MAX_TOKENS: Final = 4096
"""What Anthropic's API is told where the caller sets no limit: it demands one."""

ENCRYPTED: Final = "reasoning.encrypted_content"
"""Without it, reasoning that OpenAI does not keep cannot be sent back (its guide on reasoning)."""


class Quirk(NamedTuple):
    """A field of ours that some servers refuse: by these words, to be left out or renamed."""

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
    Quirk("store", re.compile(r"\bstore\b")),
)


def body(
    provider: Provider, fields: Mapping[str, Any], quirks: Sequence[Quirk] = ()
) -> dict[str, Any]:
    """Return the body of a call: defaults, then the provider's options, then what is asked."""
    made = {**_defaults(provider), **provider.options, **fields}
    for quirk in quirks:
        if quirk.name in made and quirk.name not in provider.options:
            value = made.pop(quirk.name)
            if quirk.rename is not None:
                made.setdefault(quirk.rename, value)
    return {**made, "model": provider.model, "stream": True}


def refused(sent: Mapping[str, Any], provider: Provider, words: str) -> Quirk | None:
    """Return what to change where a refusal names a field of ours, or None."""
    ours = (q for q in QUIRKS if q.name in sent and q.name not in provider.options)
    return next((quirk for quirk in ours if quirk.words.search(words)), None)


def ask(provider: Provider, made: Mapping[str, Any]) -> Ask:
    """Return the request that carries a body."""
    url = addresses.chat(provider.base_url, provider.dialect)
    extra = [("accept", "text/event-stream, application/json"), ("accept-encoding", "identity")]
    auth: Auth = "bearer"
    if provider.dialect == "anthropic":
        auth = "x-api-key"
        extra.append(("anthropic-version", addresses.VERSION))
    private = tuple((name.lower(), value) for name, value in provider.headers.items())
    return Ask(url, made, provider.api_key, auth, tuple(extra), private)


def _defaults(provider: Provider) -> dict[str, Any]:
    if provider.dialect == "openai_chat":
        return {"stream_options": {"include_usage": True}}
    if provider.dialect == "anthropic":
        return {"max_tokens": MAX_TOKENS}
    made: dict[str, Any] = {"store": False}
    if addresses.openai(provider.base_url):
        made["include"] = [ENCRYPTED]
    return made
