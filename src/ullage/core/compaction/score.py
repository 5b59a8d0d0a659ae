"""How much of what people said a text carries: by this one score a summary is held to the extract.

It counts people's own words, with the worth by which they are packed, and the facts found in them.
What models answered and tools returned is not counted: to say that shorter is what prose is for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ullage.core.compaction.packing import list_said
from ullage.core.facts.coverage import Coverage

if TYPE_CHECKING:
    from ullage.core.compaction.packing import SaidWords
    from ullage.core.facts.sheet import Facts


class SaidScore:
    """What people said among messages that go, and its worth."""

    def __init__(self, facts: Facts, words: SaidWords) -> None:
        self._lines = list_said(facts, words)

    def judge(self, text: str) -> float:
        """Return the worth of what the text carries: the same for the same sentences."""
        held = Coverage(text)
        return sum(line.worth for line in self._lines if held.carries(line.text, line.rare))
