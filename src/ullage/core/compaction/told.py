"""Words that were already told, by their rare words: nearly equal text is not repeated.

This module knows no text, no worth and no room.
"""

from __future__ import annotations

from collections import Counter
from itertools import chain
from typing import Final

from ullage.core.facts.salience import NAMED

ALIKE: Final = 0.8
"""A segment says nothing new if a told segment has this share of its rare words, unless it has
another name or number."""

SAME_WORD: Final = 8
"""The last segments with the same word that are compared."""


class ToldWords:
    """The rare words of the told segments, in order."""

    def __init__(self) -> None:
        self._sets: list[frozenset[str]] = []
        self._told: dict[str, tuple[int, ...]] = {}

    def note(self, rare: frozenset[str]) -> None:
        """Keep the words of a segment that is told now; each word remembers its last segments."""
        here, told = (len(self._sets),), self._told
        self._sets.append(rare)
        for word in rare:
            told[word] = (*told[word], *here)[-SAME_WORD:] if word in told else here

    def tells(self, rare: frozenset[str]) -> bool:
        """Tell whether a told segment says nearly the same, about the same names and numbers."""
        least, told = ALIKE * len(rare), self._told
        words = told.keys() & rare
        if not words or len(words) < least:
            return False
        seen = Counter(chain.from_iterable(map(told.__getitem__, words)))
        return any(
            number >= least and not any(map(is_named, rare - self._sets[other]))
            for other, number in seen.items()
        )


def is_named(word: str) -> bool:
    """Tell whether a rare word is a name or a number."""
    return word.startswith(NAMED)
