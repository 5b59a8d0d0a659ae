"""Reasons why no model wrote a summary, in words for people, without requests or models."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ullage.core.summary.request import Written

BY_RULE: Final = "kept by rule"
"""The name shown instead of a strategy if no model wrote the summary."""

WORSE: Final = "summary_worse"
"""The flaw of a good summary with which the block would carry less than without."""

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
"""Words for each flaw of `request`, each reason against asking, and each rejected answer."""


def explain_flaw(flaw: str) -> str:
    """Return a flaw in words."""
    return WORDS.get(flaw, flaw)


def explain_written(written: Written | None) -> tuple[str, ...]:
    """Return the report about a summarizer that gave no summary, or not all of it."""
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
    """Return strategies as shown to people: named after the actual work.

    If no model wrote the summary, the name of a summary strategy would promise too much.
    """
    names = [name for name in strategy.split("+") if name]
    if fallback_reason is None:
        return "+".join(names)
    return "+".join([BY_RULE, *(name for name in names if name != "summarise_middle")])
