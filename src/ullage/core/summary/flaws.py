"""Why a summary is no model's, in words for people. It knows neither requests nor models."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ullage.core.summary.request import Written

BY_RULE: Final = "kept by rule"
"""What is said of a summary that no model wrote, in the place of a strategy's name."""

WORSE: Final = "summary_worse"
"""The flaw of a summary that was good enough, with which a block would say less than without."""

WORDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "no_summariser": "no summarizer is set",
        "no_room": "the block has no room for prose in this window",
        "summariser_failed": "it did not answer",
        "summary_empty": "its answer was empty",
        "summary_malformed": "its answer had no line of a kind and a fact",
        "summary_cut": "its answer was cut off",
        "summary_inflated": "its answer was longer than the messages it was to replace",
        "summary_lossy": "its answer left out most of what it was to join",
        WORSE: "its answer would take the room of sentences that say more",
    }
)
"""Each flaw of `request`, each reason why nobody was asked, and why an answer was left out."""


def explain_flaw(flaw: str) -> str:
    """Return a flaw in words."""
    return WORDS.get(flaw, flaw)


def explain_written(written: Written | None) -> tuple[str, ...]:
    """Return what to tell of a summarizer that was asked and gave nothing, or not all of it."""
    if written is None or not written.requests:
        return ()
    if written.prose is None:
        why = explain_flaw(written.flaw or "")
        if written.flaw == WORSE:
            return (f"the summary was left out ({why}): the facts are {BY_RULE}",)
        return (f"the summarizer gave no summary ({why}): the facts are {BY_RULE}",)
    if written.by_rule:
        pieces = f"{len(written.by_rule):,} of {sum(written.levels):,} pieces"
        return (f"the summarizer gave no summary of {pieces}: they are {BY_RULE}",)
    return ()


def name_strategies(strategy: str, fallback_reason: str | None) -> str:
    """Return strategies as people are told of them: by the name of what was done.

    One that wants a summary promises more than was done where no model wrote it.
    """
    names = [name for name in strategy.split("+") if name]
    if fallback_reason is None:
        return "+".join(names)
    return "+".join([BY_RULE, *(name for name in names if name != "summarise_middle")])
