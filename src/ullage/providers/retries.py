"""Decides whether a failed call is worth a retry, and after how long.

It reads a clock only if a server names a date but not its own time. It sends nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from ullage.core.messages.fields import as_mapping
from ullage.providers.failure import CallFailed

AGAIN: Final = frozenset({408, 409, 425, 429})
"""Temporary refusals: time-out, lock time-out, too early, too many (RFC 9110 and 6585; 409 as in
the SDKs of OpenAI and Anthropic). Most errors of the server itself are temporary, too."""

NEVER: Final = frozenset({501, 505, 511})
"""Lasting server errors: not implemented, HTTP version, network login (RFC 9110, 6585)."""

PASSING: Final = frozenset({"other", "rate_limit"})
"""Kinds of errors that a retry may fix; the others are about the request, or about money."""

PASSING_CODES: Final = frozenset(
    {
        "api_error", "overloaded_error", "rate_limit_error", "timeout_error",  # Anthropic
        "server_error", "rate_limit_exceeded", "internal_server_error",  # OpenAI
        "internal_error", "unavailable_error", "service_unavailable", "overloaded",  # others
    }
)  # fmt: skip
"""Types and codes of errors inside a stream that a retry may fix."""

FIRST_WAIT_S: Final = 1.0
GROWTH: Final = 3.0
"""Growth of the pauses without a word from the server: 1, 3, 9 s; a restart takes about ten."""

JITTER: Final = 0.5
"""The random part of a pause, so that many callers do not return at the same time."""


def worthwhile(failed: CallFailed) -> bool:
    """Tell whether to retry: never after content, a stall, or a lasting error."""
    if failed.begun or failed.stalled or failed.kind.kind not in PASSING:
        return False
    if failed.unreached or failed.lost:
        return True
    status = failed.status or 0
    if status == 200:
        return failed.kind.kind == "rate_limit" or _passes(failed.body)
    return status in AGAIN or (status >= 500 and status not in NEVER)


def wait_s(
    failed: CallFailed, attempt: int, longest_s: float, chance: Callable[[], float]
) -> float:
    """Return the seconds to wait after the n-th attempt (from 1 on), `longest_s` at most.

    The pause that the server asks for is kept in full, plus a little. `chance` returns 0 to 1.
    """
    told = read_retry_after(failed.headers)
    if told is not None:
        return min(told + chance() * min(told, FIRST_WAIT_S), longest_s)
    wait = FIRST_WAIT_S * GROWTH ** (attempt - 1)
    return min(wait, longest_s) * (1 - JITTER * chance())


def read_retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that a server asks to wait, or None.

    Reads `retry-after-ms` (OpenAI, Azure) and `Retry-After` in seconds or as a date (RFC 9110,
    10.2.3). A date is compared with the server's own date if it sends one.
    """
    named = {name.lower(): value for name, value in headers.items()}
    milliseconds = _number(named.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    told = named.get("retry-after")
    seconds = _number(told)
    if seconds is not None or told is None:
        return seconds
    until = _date(told)
    if until is None:
        return None
    now = _date(named.get("date")) or datetime.now(UTC)
    return max((until - now).total_seconds(), 0.0)


def _number(text: str | None) -> float | None:
    try:
        value = float(text) if text is not None else math.nan
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None


def _date(text: str | None) -> datetime | None:
    from email.utils import parsedate_to_datetime  # loads sockets

    try:
        date = parsedate_to_datetime(text) if text is not None else None
    except (ValueError, OverflowError):
        return None
    return date.replace(tzinfo=date.tzinfo or UTC) if date is not None else None


def _passes(body: Any) -> bool:
    """Tell from its codes whether an error inside a stream is temporary."""
    event = as_mapping(body) or {}
    response = as_mapping(event.get("response")) or {}
    for holder in (event, as_mapping(event.get("error")), as_mapping(response.get("error"))):
        for name in ("code", "type", "status"):
            code = holder.get(name) if holder is not None else None
            if isinstance(code, str) and (code.lower() in PASSING_CODES or _server(code)):
                return True
            if isinstance(code, int) and _server(str(code)):
                return True
    return False


def _server(code: str) -> bool:
    status = int(code) if code.isascii() and code.isdigit() and len(code) == 3 else 0
    return status in AGAIN or (500 <= status < 600 and status not in NEVER)
