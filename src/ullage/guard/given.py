"""A caller's arguments for a guard, read as a request; and the assessment of one that cannot fit.

This module knows no guard.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

from ullage.core.compaction.pins import read_pins
from ullage.core.dialects import registry as dialects
from ullage.core.errors import ConfigurationError, ContextTooLargeError
from ullage.core.guard.request import Request
from ullage.core.tokens.gauge import Assessment
from ullage.runtime import Measurable, system_text

EMPTY: Final[Mapping[str, Any]] = MappingProxyType({})


def read_request(
    body: Measurable,
    max_tokens: int | None = None,
    pins: Iterable[int] = (),
    sections: Mapping[int, str] | None = None,
    beside: Mapping[str, Any] = EMPTY,
) -> Request:
    """Return a request in the form of the machine; `beside` has the request's other fields.

    Raises ConfigurationError for bad pins, and for a `reserve` that is no number of tokens.
    """
    spoken = dialects.find(body.find_dialect())
    system, marks = system_text(body.system), sections or {}
    return Request(
        body.messages,
        body.tools,
        system,
        max_tokens,
        read_pins(pins, len(body.messages)),
        marks,
        body.system,
        server_edits=spoken.read_edits(beside),
        reserve=_read_reserve(beside.get("reserve")),
    )


def _read_reserve(given: Any) -> int:
    if given is None:
        return 0
    if type(given) is not int or given < 0:
        raise ConfigurationError(f"reserve is a number of tokens from 0 on, not {given!r:.80}")
    return given


def assess_overflow(error: ContextTooLargeError) -> Assessment:
    """Return the assessment of a request that was refused as too large."""
    ratio = error.tokens / error.bound
    return Assessment(True, "overflow", ratio, error.tokens, error.bound, "estimated")
