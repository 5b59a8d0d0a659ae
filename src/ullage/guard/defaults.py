"""What a guard is made of: its arguments, and the settings where they say nothing.

It knows no window and no request beyond its pins.
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
"""A window on which shares are tried before there is a real one."""


def find_policy(runtime: Runtime, policy: Policy | str | None) -> Policy:
    """Return the policy of a guard; raises ConfigurationError for one that wants new sessions."""
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
        return runtime.settings.shares  # tried when they were read
    from ullage.core.tokens.budget import allocate

    allocate(LARGEST, shares)
    return shares


def find_summarizer(
    runtime: Runtime, summarizer: Summarize | str | None, question: Question
) -> Summarize | SameModel | None:
    """Return who writes summaries; raises ConfigurationError for what cannot be called.

    Of the settings, "same" holds for conversations whose server is known.
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
    """Return the summarizer that settings name, None without one; "same" as it is."""
    if found is None or found == SAME:
        return found
    from ullage.guard import summarizer

    given = {name: value for name, value in asdict(found).items() if value is not None}
    return summarizer.Summarizer(**given, runtime=runtime)


def check_summarizer(summarizer: object) -> Summarize:
    """Return what makes summaries; raise ConfigurationError for what cannot be called."""
    if callable(summarizer):
        return cast("Summarize", summarizer)
    raise ConfigurationError(
        f"summarizer is {summarizer!r:.80}: give ullage.Summarizer(model, base_url=...), "
        'a function from a SummaryRequest to a text, or "same" for the conversation\'s own model'
    )


def find_pins(runtime: Runtime, size: int) -> frozenset[int]:
    """Return the pins of the settings that name one of `size` messages."""
    return frozenset(pin for pin in runtime.settings.pins if pin < size)


def add_pins(runtime: Runtime, request: Request) -> Request:
    """Return a request with the pins of the settings besides its own."""
    pins = find_pins(runtime, len(request.messages))
    return replace(request, pins=request.pins | pins) if pins else request
