"""What OpenAI's two APIs have in common: errors, as their clients read them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def report(status: int, code: str, text: str) -> Mapping[str, Any]:
    """Return the body of an error (OpenAI API reference, "Error codes")."""
    kind = "invalid_request_error" if status < 500 else "server_error"
    return {"error": {"message": text, "type": kind, "param": None, "code": code}}


def write_too_large(tokens: int, bound: int, field: str) -> Mapping[str, Any]:
    """Return the body that refuses a prompt in the words of OpenAI."""
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
