"""Why a compaction came to nothing, or to less than was asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

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
    "would_inflate": "what would stand in its place is larger",
    "cannot_reach_target": "what must stay is larger than the target",
    "cannot_compact": "what must stay is larger than the window takes",
    "law_broken": "a rule of the wire would be broken",
}
"""Reasons in words for people."""


def explain_reason(reason: str) -> str:
    """Return a reason in words; what follows its name stays as it is."""
    name, colon, rest = reason.partition(":")
    return WORDS.get(name, name) + colon + rest
