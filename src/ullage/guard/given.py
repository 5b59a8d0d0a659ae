"""What a caller gives to a guard, read as a request; and the answer to one that can never fit.

It knows no guard.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ullage.core.compaction.pins import read_pins
from ullage.core.errors import ConfigurationError, ContextTooLargeError
from ullage.core.guard.request import Request
from ullage.core.tokens.gauge import Assessment
from ullage.guard.summarizer import Summarize
from ullage.runtime import Body, system_text


def read_request(
    body: Body,
    max_tokens: int | None = None,
    pins: Iterable[int] = (),
    sections: Mapping[int, str] | None = None,
) -> Request:
    """Return a request as the machine takes it; raises ConfigurationError for bad pins."""
    system, marks = system_text(body.system), sections or {}
    return Request(
        body.messages,
        body.tools,
        system,
        max_tokens,
        read_pins(pins, len(body.messages)),
        marks,
        body.system,
    )


def assess_overflow(error: ContextTooLargeError) -> Assessment:
    """Return how full the window is with a request that was refused as too large."""
    ratio = error.tokens / error.bound
    return Assessment(True, "overflow", ratio, error.tokens, error.bound, "estimated")


def check_summarizer(summarizer: Summarize | None) -> Summarize | None:
    """Return what makes summaries; raise ConfigurationError for what cannot be called."""
    if summarizer is None or callable(summarizer):
        return summarizer
    raise ConfigurationError(
        f"summarizer is {summarizer!r:.80}: give ullage.Summarizer(model, base_url=...), "
        "or a function from a SummaryRequest to a text"
    )
