"""What families of models demand of a history beyond their dialect: a table, with its sources.

A model is found by its name, as providers, gateways and clouds spell it. What no row names is
unknown: then a refusal teaches the law. It knows no codec and no window.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

Law = Literal["whole_loops", "bound_thinking", "alternation"]
"""What a model may demand: `whole_loops`, that a tool loop is kept whole or left out whole;
`bound_thinking`, that reasoning stands behind the very system text, tools and messages that it was
made behind, or goes; `alternation`, that user and assistant take turns, the user first."""

Thinking = Literal["demanded", "bound", "unknown"]
"""What becomes of reasoning in kept messages: `demanded` in the open tool loop, `bound` to what
stands before it."""


@dataclass(frozen=True, slots=True)
class ModelFamily:
    """The laws of a family; `source` and `date` say who states them, and when that was read."""

    name: str
    thinking: Thinking = "unknown"
    laws: frozenset[Law] = frozenset()
    source: str = ""
    date: str = ""


_BINDING: Final = "https://platform.claude.com/docs/en/build-with-claude/preserved-thinking"
_EXTENDED: Final = "https://platform.claude.com/docs/en/build-with-claude/extended-thinking"

ROWS: Final = (
    (
        re.compile(
            r"claude-(?:fable-5[-.][12]|mythos-5[-.]2|(?:opus|sonnet|haiku)-5[-.]5)(?!\d)",
            re.IGNORECASE,
        ),
        ModelFamily(
            "Claude with preserved thinking",
            "bound",
            frozenset({"bound_thinking"}),
            _BINDING,
            "2026-11-23",
        ),
    ),
    (
        re.compile(
            r"claude-(?:[1-4]\b|\w+-[1-4]\b|\w+-5(?!\d)(?![-.]\d{1,2}(?!\d))|instant)",
            re.IGNORECASE,
        ),
        ModelFamily("Claude up to 5", "demanded", frozenset(), _EXTENDED, "2026-11-23"),
    ),
)
"""Names and families; the first row that fits is believed."""

UNKNOWN: Final = ModelFamily("unknown")


def find_family(model: str | None) -> ModelFamily:
    """Return the family of a model, by its name; `UNKNOWN` where no row names it."""
    rows = ((pattern, family) for pattern, family in ROWS if pattern.search(model or ""))
    return next((family for _, family in rows), UNKNOWN)


TAUGHT: Final[Mapping[str, Law]] = {
    "thinking": "whole_loops",
    "binding": "bound_thinking",
    "alternation": "alternation",
}
"""The law that a refusal names, by what it is about."""
