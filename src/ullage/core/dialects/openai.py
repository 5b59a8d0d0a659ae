"""Common parts of OpenAI's two APIs: hosts, the cache key, the form of errors."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

HOSTS: Final = ("api.openai.com", ".openai.azure.com")
"""Hosts of OpenAI's own service, including Azure's; those with a leading dot are endings."""

KEYED: Final = (*HOSTS, "api.mistral.ai")
"""Hosts that accept `prompt_cache_key`: requests with the same key are sent to where their prefix
is cached (OpenAI's guide "Prompt caching"; Mistral's, of the same name). Other servers may refuse
it.
"""


def is_openai(base_url: str) -> bool:
    """Tell whether a base URL is OpenAI's own."""
    return _serves(HOSTS, base_url)


def find_cache_key(base_url: str) -> str | None:
    """Return the field that marks requests with a shared prefix, or None."""
    return "prompt_cache_key" if _serves(KEYED, base_url) else None


def _serves(hosts: Sequence[str], base_url: str) -> bool:
    host = (urlsplit(base_url).hostname or "").lower()
    return any(host.endswith(name) if name[0] == "." else host == name for name in hosts)


def report(status: int, code: str, text: str) -> Mapping[str, Any]:
    """Return the body of an error (OpenAI API reference, "Error codes")."""
    kind = "invalid_request_error" if status < 500 else "server_error"
    return {"error": {"message": text, "type": kind, "param": None, "code": code}}


def write_too_large(tokens: int, bound: int, field: str) -> Mapping[str, Any]:
    """Return the body of a refusal of a prompt, in OpenAI's words."""
    text = (
        f"This model's maximum context length is {bound} tokens. However, your messages resulted "
        f"in {tokens} tokens. Please reduce the length of the messages."
    )
    error = {
        "message": text,
        "type": "invalid_request_error",
        "param": field,
        "code": "context_length_exceeded",
    }
    return {"error": error}


def break_off(text: str, _: bytes = b"") -> bytes:
    """Return the event that ends a stream of Chat Completions early."""
    error = {"message": text, "type": "server_error", "code": "upstream_broken"}
    return b"data: " + json.dumps({"error": error}).encode("ascii") + b"\n\n"
