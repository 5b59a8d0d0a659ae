"""Where segments stand in the text that they were cut from.

A segment's white space is normalised, and an item has its heading in front of it: neither stands so
in the text. It cuts nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, TypeAlias

from ullage.core.facts.segments import COLONS, LEAD_MOST

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Span: TypeAlias = tuple[int, int]
"""Where a part of a text begins, and where it ends."""


class TextPlaces:
    """A text in which segments are looked for, whatever white space is in either."""

    def __init__(self, text: str) -> None:
        self._bare = _squeeze(text)
        self._offsets = [place for place, sign in enumerate(text) if not sign.isspace()]

    def find(self, segment: str, begin: int = 0) -> Sequence[Span]:
        """Return where a segment stands, not in front of `begin`; an item after its heading.

        The heading may stand in front of `begin`: other items had it, too.
        """
        start = bisect_left(self._offsets, begin)
        bare = _squeeze(segment)
        at = self._bare.find(bare, start) if bare else -1
        if at >= 0:
            return [self._span(at, bare)]
        for lead, item in self._split(segment):
            at = self._bare.find(item, start)
            head = self._bare.rfind(lead, 0, at) if at >= 0 else -1
            if head >= 0:
                return [self._span(head, lead), self._span(at, item)]
        return []

    def has(self, segment: str) -> bool:
        """Tell whether a segment stands in the text."""
        return bool(self.find(segment))

    def _split(self, segment: str) -> Iterator[tuple[str, str]]:
        """Yield what may be the heading of a segment, and what is behind it."""
        words, lead = segment.split(), ""
        for number, word in enumerate(words[:-1], 1):
            lead += word
            if len(lead) > LEAD_MOST:
                return
            if word.endswith(COLONS) or f"#{lead}" in self._bare:
                yield lead, "".join(words[number:])

    def _span(self, at: int, bare: str) -> Span:
        return self._offsets[at], self._offsets[at + len(bare) - 1] + 1


def _squeeze(text: str) -> str:
    """Return a text without white space."""
    return "".join(text.split())
