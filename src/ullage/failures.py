"""Read the exceptions of HTTP clients and SDKs as what they mean for a window.

Duck-typed on what they all carry (a status, a body), so that no SDK is imported. The wording is
read by `core.wire.overflow`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ullage.core.errors import ErrorKind
from ullage.core.wire.overflow import classify


def classify_error(
    status: int | None, body: Any, *, headers: Mapping[str, str] | None = None
) -> ErrorKind:
    """Classify an error response: `body` is text, bytes or parsed JSON. Never raises."""
    return classify(status, body, headers=headers)


def classify_exception(error: BaseException) -> ErrorKind:
    """Classify an exception of the OpenAI or Anthropic SDK, httpx, aiohttp, or a plain one.

    Reads `status_code` or `status`, then `body`, the response's text, or the message.
    """
    response = getattr(error, "response", None)
    status = _status(error) or _status(response)
    for body in (getattr(error, "body", None), _text(response), str(error)):
        if body:
            kind = classify(status, body)
            if kind.kind != "other":
                return kind
    return classify(status, "")


def _status(carrier: Any) -> int | None:
    for name in ("status_code", "status", "code"):
        value = getattr(carrier, name, None)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return None


def _text(response: Any) -> str | None:
    """Return a response's text where it was read already; a stream that was not is left alone."""
    try:
        text = response.text
    except (AttributeError, RuntimeError):
        return None
    return text if isinstance(text, str) else None
