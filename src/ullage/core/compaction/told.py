"""What was told so far, by its rare words: what says nearly the same need not be told again.

It knows no text, no worth and no room.
"""

from __future__ import annotations

from collections import Counter
from itertools import chain
from typing import Final

from ullage.core.facts.salience import NAMED

ALIKE: Final = 0.8
"""The share of its rare words that a segment may have in common with another one that is told,
before it says nothing new, unless it has another name or number."""

SAME_WORD: Final = 8
"""Segments told last that are compared with one of the same word."""


class ToldWords:
    """The rare words of the segments that were told, in their order."""

    def __init__(self) -> None:
        self._sets: list[frozenset[str]] = []
        self._told: dict[str, tuple[int, ...]] = {}

    def note(self, rare: frozenset[str]) -> None:
        """Keep the words of a segment that is told now; of each word, what was told last."""
        here, told = (len(self._sets),), self._told
        self._sets.append(rare)
        for word in rare:
            told[word] = (*told[word], *here)[-SAME_WORD:] if word in told else here

    def tells(self, rare: frozenset[str]) -> bool:
        """Tell whether a told segment says nearly the same, of the same names and numbers."""
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
