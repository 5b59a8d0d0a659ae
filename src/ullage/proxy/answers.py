"""The few answers that the proxy writes itself, in the shape of each dialect.

Everything else that a client gets is the upstream's own bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ullage.core.dialects import registry
from ullage.core.messages.transcript import DialectName
from ullage.proxy.body import RequestRefused

TOO_LARGE: Final = 400


def error(dialect: DialectName, status: int, code: str, text: str) -> bytes:
    """Return the body of an error in a dialect; `code` is for programs, `text` for people.

    Without a dialect, the body has the shape that all of the proxy's own endpoints use.
    """
    if not dialect:
        return _encode({"error": {"code": code, "message": text}})
    return _encode(registry.find(dialect).errors.report(status, code, text))


def refuse_too_large(dialect: DialectName, tokens: int, bound: int) -> RequestRefused:
    """Return the refusal of a prompt, in the words that clients of a dialect know.

    `tokens` is the size of the prompt, `bound` the largest allowed size. The proxy writes this only
    for a server that cuts silently, or a client with its own compaction.
    """
    refused = RequestRefused(TOO_LARGE, "context_too_large", f"{tokens:,} tokens, {bound:,} fit")
    refused.body = _encode(registry.find(dialect).errors.too_large(tokens, bound))
    return refused


def _encode(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body).encode("ascii")


def headers(refused: RequestRefused, body: bytes) -> Sequence[tuple[bytes, bytes]]:
    """Return the headers of such an answer; `x-ullage-error` tells that no upstream wrote it."""
    again = ((b"retry-after", str(refused.again_s).encode("ascii")),) if refused.again_s else ()
    allow = ((b"allow", refused.allow.encode("ascii")),) if refused.allow else ()
    return (
        *again,
        *allow,
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode("ascii")),
        (b"x-ullage-error", refused.code.encode("ascii", "replace")),
    )
