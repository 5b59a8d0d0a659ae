"""Counts text that grows, and text that may be too long, without counting it all again.

Both cut the text where a pre-token certainly ends (`ullage.counters.unicode`): the counts of the
pieces add up to that of the whole. It knows no vocabulary and no window.
"""

from __future__ import annotations

from typing import Final

from ullage.core.tokens.counting import Counter
from ullage.counters.unicode import last_cut, upper_bound

_CHARACTERS_A_TOKEN: Final = 4
"""For the size of the first block in `until`; prose and code have about four."""

_LEAST: Final = 1024
"""Least characters of a block; with fewer, the calls cost more than the counting."""

_DECOMPOSED: Final = 3
"""Most UTF-8 bytes after NFC, as a multiple of those before (Unicode FAQ, normalisation); some
families' vocabularies normalise before they count."""


class AppendCounter:
    """Count a text that is appended to, exactly at any time.

    The text before the last certain end of a pre-token is counted once and dropped. Only the tail
    after it, mostly a word or two, is counted when `tokens` is read. A run without such an end (one
    letter a million times, base64) stays in the tail until one comes: each read after an append
    then counts the whole tail. Not for two threads at once.

    Equal to the count of the whole text, unless that counter itself is no longer exact for huge
    texts (`ullage.counters.toktok.MOST_RECOUNTED`): the pieces stay exact for longer.
    """

    def __init__(self, counter: Counter) -> None:
        self.key = counter.key
        self._counter = counter
        self._settled = 0
        self._tail = ""
        self._new: list[str] = []
        self._tail_tokens = 0

    def append(self, text: str) -> None:
        """Add text at the end, without counting it yet."""
        if text:
            self._new.append(text)

    @property
    def tokens(self) -> int:
        """The number of tokens of all appended text."""
        if self._new:
            searched = max(0, len(self._tail) - 1)
            text = "".join((self._tail, *self._new))
            cut = last_cut(text, searched)
            if cut == searched:
                cut = 0  # none in the new text
            # A counter with a cache of single texts need not keep these.
            settled, self._tail_tokens = self._counter.count_many([text[:cut], text[cut:]])
            self._settled += settled
            self._tail = text[cut:]
            self._new.clear()
        return self._settled + self._tail_tokens


def until(text: str, limit: int, counter: Counter) -> tuple[int, bool]:
    """Return the tokens of `text` and True, or a number and False if they exceed `limit`.

    That number is above `limit` and at most the count. A text far over the limit costs about as
    much as one at the limit; one that fits costs as much as its count.
    """
    start, tokens = 0, 0
    block = max(_LEAST, _CHARACTERS_A_TOKEN * limit)
    while len(text) - start > 2 * block:
        cut = last_cut(text[start : start + block])
        if not cut:
            block *= 2
            continue
        tokens += counter.count_many([text[start : start + cut]])[0]
        if tokens > limit:
            return tokens, False
        start += cut
        block = max(_LEAST, _CHARACTERS_A_TOKEN * (limit - tokens))
    tokens += counter.count_many([text[start:]])[0]
    return tokens, tokens <= limit


def fits(text: str, limit: int, counter: Counter) -> bool:
    """Return whether `text` takes at most `limit` tokens; a short text is not even counted."""
    bytes_ = len(text) if text.isascii() else _DECOMPOSED * upper_bound(text)
    return bytes_ <= limit or until(text, limit, counter)[1]
