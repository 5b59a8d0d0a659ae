"""The score of people's words in a text: a summary must score at least as high as the extract.

It counts people's own words, with their worth for packing, and the facts in them. Model answers and
tool results do not count: prose is there to shorten them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ullage.core.compaction.packing import list_said
from ullage.core.facts.coverage import Coverage

if TYPE_CHECKING:
    from ullage.core.compaction.packing import SaidWords
    from ullage.core.facts.sheet import Facts


class SaidScore:
    """People's words among dropped messages, and their worth."""

    def __init__(self, facts: Facts, words: SaidWords) -> None:
        self._lines = list_said(facts, words)

    def judge(self, text: str) -> float:
        """Return the worth of the words that the text carries; equal sentences score the same."""
        held = Coverage(text)
        return sum(line.worth for line in self._lines if held.carries(line.text, line.rare))
