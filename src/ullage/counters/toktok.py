"""Counting with toktok-rs: native, offline, with compiled-in vocabularies.

toktok differs from the reference in two corners (see `ullage.counters.unicode`). Another counter
counts only the segments of a text with such a corner. It does not know which model has which
vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import toktok

from ullage.core.tokens.counting import Counter
from ullage.counters.unicode import doubtful, is_panic, replace_surrogates, segments, upper_bound

MOST_RECOUNTED: Final = 1 << 16
"""Most characters of one text that are counted again in pure Python, about 0.1 s; the rest counts
as its bytes. Only text in scripts new in Unicode 17 comes near."""


class Toktok:
    """Count the tokens of the vocabulary `key`; `exact` counts segments that toktok gets wrong.

    Exact for every string and linear in its length (at worst 0.5 microseconds per character). The
    exception is a text with more than 65,536 characters in segments with code points new in Unicode
    17: the rest of those counts as UTF-8 bytes, which is never too low.
    """

    def __init__(self, key: str, exact: Counter, library: Any = toktok) -> None:
        self.key = key
        self._exact = exact
        self._native = native(key, library)

    def count(self, text: str) -> int:
        """Return the number of tokens; never raises for any string."""
        try:
            return self._native(text) if text.isascii() else self._count(text)
        except BaseException as error:
            if not is_panic(error):
                raise
            return upper_bound(text)

    def count_many(self, texts: Sequence[str]) -> list[int]:
        """Return the number of tokens of each text."""
        try:
            if all(map(str.isascii, texts)) or not any(map(doubtful, texts)):
                return list(map(self._native, texts))  # a seventh faster than with `count`
        except UnicodeEncodeError:
            pass  # one of them holds a lone surrogate
        except BaseException as error:
            if not is_panic(error):
                raise
        return list(map(self.count, texts))

    def _count(self, text: str) -> int:
        if doubtful(text):
            return self._by_segment(text)
        try:
            return self._native(text)
        except UnicodeEncodeError:
            return self._count(replace_surrogates(text))

    def _by_segment(self, text: str) -> int:
        total, room = 0, MOST_RECOUNTED
        for segment in segments(replace_surrogates(text)):
            if not doubtful(segment):
                total += self._native(segment)
            elif len(segment) <= room:
                room -= len(segment)
                total += self._exact.count(segment)
            else:
                total += upper_bound(segment)
        return total


def native(key: str, library: Any) -> Callable[[str], int]:
    """Return toktok's own count of one text; loads the vocabulary (0.3 s).

    The call on the encoding costs 0.1 microseconds. It is private to toktok. If a version lacks it,
    the public call for a batch of one is used, at 9 microseconds.
    """
    encoding = getattr(library, "_encoding", None)
    if encoding is None:
        return lambda text: int(library.batch_count([text], key, 1)[0])
    count: Callable[[str], int] = encoding(key).count
    return count
