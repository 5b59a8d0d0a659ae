"""The few answers that the proxy authors itself, in the shape that each dialect's clients read.

Everything else that a client gets is the upstream's own bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

ANTHROPIC: Final[Mapping[int, str]] = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    500: "api_error",
    502: "api_error",
    503: "api_error",
    504: "timeout_error",
}
"""Anthropic's names of errors, by status (its documentation, "Errors")."""


def error(dialect: str, status: int, code: str, text: str) -> bytes:
    """Return the body of an error in a dialect; `code` is for programs, `text` for people."""
    told: dict[str, Any]
    if dialect == "anthropic":
        kind = ANTHROPIC.get(status, "invalid_request_error")
        told = {"type": "error", "error": {"type": kind, "message": text}}
    elif dialect == "ollama_chat":
        told = {"error": text}
    else:
        kind = "invalid_request_error" if status < 500 else "server_error"
        told = {"error": {"message": text, "type": kind, "param": None, "code": code}}
    return json.dumps(told).encode("ascii")


def headers(code: str, body: bytes) -> Sequence[tuple[bytes, bytes]]:
    """Return the headers of such an answer; one tells that no upstream wrote it."""
    return (
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode("ascii")),
        (b"x-ullage-error", code.encode("ascii", "replace")),
    )
