"""Reasons why a compaction did nothing, or less than requested."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from ullage.core.tokens.counting import Count

Reason = Literal[
    "nothing_to_compact",
    "would_inflate",
    "would_not_last",
    "cannot_reach_target",
    "cannot_compact",
    "law_broken",
]
WORDS: Final[Mapping[str, str]] = {
    "nothing_to_compact": "nothing can be left out",
    "would_inflate": "the replacement is larger",
    "cannot_reach_target": "the messages that must stay are larger than the target",
    "cannot_compact": "the messages that must stay are larger than the window",
    "law_broken": "a rule of the wire would be broken",
}
"""Reasons in words for people."""


def explain_unchanged(reason: str, target: int, count: Count) -> str:
    """Return why nothing was changed, with the size, and with the target if it is met."""
    if reason != "nothing_to_compact" or count.high > target:
        return f"{explain_reason(reason)}; {name_most(count)}"
    where = "at" if count.high == target else "below"
    return (
        f"the conversation is already {where} the target of {target:,} tokens: {name_most(count)}"
    )


def name_most(count: Count) -> str:
    """Return the upper edge, which windows are compared with, marked as a limit."""
    return f"{'at most ' if count.high != count.tokens else ''}{count.high:,} tokens"


def explain_reason(reason: str) -> str:
    """Return a reason in words; text after its name stays as it is."""
    name, colon, rest = reason.partition(":")
    return WORDS.get(name, name) + colon + rest
