"""The parts of a guard: its arguments, with the settings as defaults.

This module knows no window, and nothing of a request except its pins.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Final, Literal, cast

from ullage.config.settings import SAME, SummarizerSettings
from ullage.core.compaction.policy import Policy
from ullage.core.errors import ConfigurationError

if TYPE_CHECKING:
    from ullage.core.guard.request import Request
    from ullage.guard.same import SameModel
    from ullage.guard.summarizer import Summarize
    from ullage.runtime import Runtime
    from ullage.windows import Question

LARGEST: Final = 1_000_000
"""A window in tokens for checking shares before the real one is known."""


def find_policy(runtime: Runtime, policy: Policy | str | None) -> Policy:
    """Return the policy of a guard; raises ConfigurationError for one with `new_session`."""
    found = Policy.read(runtime.settings.policy if policy is None else policy)
    if found.new_session:
        raise ConfigurationError(
            f"the policy {found.name} wants new sessions, and a guard has none: give it to "
            "ullage.Agent, or leave new_session out"
        )
    return found


def find_shares(runtime: Runtime, shares: Mapping[str, float] | None) -> Mapping[str, float] | None:
    """Return the shares of the window; raises ConfigurationError for invalid shares."""
    if shares is None:
        return runtime.settings.shares  # checked when they were read
    from ullage.core.tokens.budget import allocate

    allocate(LARGEST, shares)
    return shares


def find_summarizer(
    runtime: Runtime, summarizer: Summarize | str | None, question: Question
) -> Summarize | SameModel | None:
    """Return the summarizer, or None; raises ConfigurationError for one that cannot be called.

    "same" in the settings applies only to conversations whose server is known.
    """
    given = summarizer is not None
    wanted = summarizer if given else make_summarizer(runtime, runtime.settings.summarizer)
    if wanted is None or (not given and wanted == SAME and not question.base_url):
        return None
    if wanted != SAME:
        return check_summarizer(wanted)
    from ullage.guard.same import SameModel

    return SameModel(runtime, question)


def make_summarizer(
    runtime: Runtime, found: SummarizerSettings | Literal["same"] | None
) -> Summarize | Literal["same"] | None:
    """Return the summarizer that the settings name, or None; "same" is returned unchanged."""
    if found is None or found == SAME:
        return found
    from ullage.guard import summarizer

    given = {name: value for name, value in asdict(found).items() if value is not None}
    return summarizer.Summarizer(**given, runtime=runtime)


def check_summarizer(summarizer: object) -> Summarize:
    """Return a summarizer; raise ConfigurationError if it cannot be called."""
    if callable(summarizer):
        return cast("Summarize", summarizer)
    raise ConfigurationError(
        f"summarizer is {summarizer!r:.80}: give ullage.Summarizer(model, base_url=...), "
        'a function from a SummaryRequest to a text, or "same" for the conversation\'s own model'
    )


def find_pins(runtime: Runtime, size: int) -> frozenset[int]:
    """Return the pins of the settings that are positions among `size` messages."""
    return frozenset(pin for pin in runtime.settings.pins if pin < size)


def add_pins(runtime: Runtime, request: Request) -> Request:
    """Return a request with the pins of the settings in addition to its own."""
    pins = find_pins(runtime, len(request.messages))
    return replace(request, pins=request.pins | pins) if pins else request
