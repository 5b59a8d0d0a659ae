"""Where a base URL takes each dialect, and what its host is known for.

It sends nothing.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from ullage.core.messages.transcript import Dialect

VERSION: Final = "2023-06-01"
"""Of Anthropic's API (its documentation, "Versions")."""

OPENAI: Final = ("api.openai.com", ".openai.azure.com")
"""Hosts of OpenAI's own service, also as Azure runs it; those with a dot are endings."""


def chat(base_url: str, dialect: Dialect) -> str:
    """Return the address that takes the messages of a dialect."""
    base = base_url.rstrip("/")
    if dialect == "openai_chat":
        return f"{base}/chat/completions"
    if dialect == "openai_responses":
        return f"{base}/responses"
    # Anthropic's SDK takes the address without /v1, local servers name theirs with it.
    return f"{base.removesuffix('/v1')}/v1/messages"


def openai(base_url: str) -> bool:
    """Tell whether a base URL is OpenAI's own."""
    host = (urlsplit(base_url).hostname or "").lower()
    return any(host.endswith(name) if name[0] == "." else host == name for name in OPENAI)
