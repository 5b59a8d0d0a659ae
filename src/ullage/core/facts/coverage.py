"""What a text carries of sentences that were left out: one measure of a summary and an extract.

A sentence is carried where one line of the text has all of its names and numbers and most of its
other rare words, and rules something out if the sentence does. It goes by words and understands
nothing; it knows no worth and no tokens.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from ullage.core.facts.salience import NAMED
from ullage.core.facts.segments import find_words
from ullage.core.facts.sentences import normalise_sentence, rules_out
from ullage.core.facts.sheet import unquote

MOST: Final = 0.8
"""The share of its rare words, names and numbers among them, that a carried sentence has in one
line: as much as makes two sentences alike when a room is packed. With less (0.6), "my violin
lessons cost 980 each" was carried by "Goal: to make a violin lesson cost 980 each"."""


class Coverage:
    """The lines of a text, found by their words."""

    def __init__(self, text: str) -> None:
        self._lines = [unquote(line.removeprefix("- ")) for line in text.split("\n")]
        self._places: dict[str, set[int]] = {}
        self._bans: dict[int, bool] = {}
        for place, line in enumerate(self._lines):
            for word in find_words(line):
                self._places.setdefault(word.casefold(), set()).add(place)

    def carries(self, sentence: str, rare: frozenset[str]) -> bool:
        """Tell whether a line says what a sentence does; `rare` are its words as `Valued` has them.

        A sentence without a rare word is carried where it stands.
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
        """Tell whether a line rules something out too, if the sentence does."""
        if not _rules_out(sentence):
            return True
        known = self._bans.get(place)
        if known is None:
            known = self._bans[place] = _rules_out(self._lines[place])
        return known


def _rules_out(text: str) -> bool:
    return rules_out(normalise_sentence(text))
