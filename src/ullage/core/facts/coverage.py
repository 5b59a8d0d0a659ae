"""Coverage: which removed sentences a text carries. The same measure for summaries and extracts.

A sentence is carried if one line of the text has all of its names and numbers and most of its other
rare words, and forbids something if the sentence does. The test uses words and has no
understanding. This module knows no worth and no tokens.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from ullage.core.facts.salience import NAMED
from ullage.core.facts.segments import find_words
from ullage.core.facts.sentences import normalise_sentence, rules_out
from ullage.core.facts.sheet import unquote

MOST: Final = 0.8
"""A line carries a sentence if it has this share of its rare words, including names and numbers.
The same share makes two sentences alike during packing. With less (0.6), "my violin lessons cost
980 each" was carried by "Goal: to make a violin lesson cost 980 each"."""


class Coverage:
    """The lines of a text, indexed by their words."""

    def __init__(self, text: str) -> None:
        self._lines = [unquote(line.removeprefix("- ")) for line in text.split("\n")]
        self._places: dict[str, set[int]] = {}
        self._bans: dict[int, bool] = {}
        for place, line in enumerate(self._lines):
            for word in find_words(line):
                self._places.setdefault(word.casefold(), set()).add(place)

    def carries(self, sentence: str, rare: frozenset[str]) -> bool:
        """Tell whether a line says the same as a sentence; `rare` are its words as in `Valued`.

        A sentence without a rare word is carried if a line contains it.
        """
        if not rare:
            return any(sentence in line for line in self._lines)
        if not self._places:
            return False
        named = [self._find(word) for word in rare if word.startswith(NAMED)]
        among = set.intersection(*named) if named else None
        if among is not None and not among:
            return False
        found = Counter(
            place for word in rare for place in self._find(word) if among is None or place in among
        )
        least = MOST * len(rare)
        return any(self._agrees(sentence, place) for place, n in found.items() if n >= least)

    def _find(self, word: str) -> set[int]:
        return self._places.get(word.removeprefix(NAMED), set())

    def _agrees(self, sentence: str, place: int) -> bool:
        """Tell whether a line also forbids something, if the sentence does."""
        if not _rules_out(sentence):
            return True
        known = self._bans.get(place)
        if known is None:
            known = self._bans[place] = _rules_out(self._lines[place])
        return known


def _rules_out(text: str) -> bool:
    return rules_out(normalise_sentence(text))
