"""Find segments in the text that they were cut from.

A segment's white space is normalised, and an item may have its heading before it, so it does not
occur in the text literally. This module cuts nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from ullage.core.facts.patterns import LatePattern
from ullage.core.facts.segments import COLONS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Span: TypeAlias = tuple[int, int]
"""The start and end of a part of a text."""

_ITEM: Final = LatePattern(r"\s{0,12}(?:[-*+\u2022\u2013]|\d{1,3}[.)]|\(\d{1,3}\)|[a-z][.)])\s+")


class _Heading(NamedTuple):
    """A heading for the lines below it: its span, its bare words, and the end of those lines."""

    span: Span
    bare: str
    stop: int


class TextPlaces:
    """A text in which segments are found, whatever the white space in either."""

    def __init__(self, text: str) -> None:
        self._bare = _squeeze(text)
        self._offsets = [place for place, sign in enumerate(text) if not sign.isspace()]
        self._headings, self._items = _read_lines(text)

    def find(self, segment: str, begin: int = 0) -> Sequence[Span]:
        """Return the spans of a segment, not before `begin`; for an item, its heading's span first.

        The heading may be before `begin`, because other items share it. The span of an item
        includes its mark.
        """
        bare = _squeeze(segment)
        start = bisect_left(self._offsets, begin)
        at = self._bare.find(bare, start) if bare else -1
        below = self._find_below(bare, begin, at)
        if below is not None:
            at, bare = below
        if at < 0:
            return []
        span = self._span(at, bare)
        return [*(heading.span for heading in self._list_above(span)), span]

    def has(self, segment: str) -> bool:
        """Tell whether the text contains a segment, or an item below its heading."""
        bare = _squeeze(segment)
        return bool(bare) and (bare in self._bare or self._find_below(bare, 0, -1) is not None)

    def _find_below(self, bare: str, begin: int, before: int) -> tuple[int, str] | None:
        """Return the position of an item below the heading that it begins with, and the item alone.

        If `before` is not negative, the position must be before it.
        """
        for heading in self._headings:
            item = bare.removeprefix(heading.bare)
            if item in (bare, "") or heading.stop <= begin:
                continue
            start = bisect_left(self._offsets, max(heading.span[1], begin))
            stop = bisect_left(self._offsets, heading.stop)
            at = self._bare.find(item, start, stop)
            if at >= 0 and (before < 0 or at < before):
                return at, item
        return None

    def _list_above(self, span: Span) -> Iterator[_Heading]:
        """Yield the headings above a part of the text that belong to it."""
        for heading in self._headings:
            if heading.span[1] <= span[0] < heading.stop:
                yield heading

    def _span(self, at: int, bare: str) -> Span:
        """Return the span of some words in the text, including the mark of an item."""
        start = self._offsets[at]
        return self._items.get(start, start), self._offsets[at + len(bare) - 1] + 1


def _squeeze(text: str) -> str:
    """Return a text without white space."""
    return "".join(text.split())


def _read_lines(text: str) -> tuple[Sequence[_Heading], dict[int, int]]:
    """Return the headings of a text, and the start of each item: from its words to its mark.

    A line that ends in a colon belongs to the items directly below it, or to the text. A marked
    heading belongs to everything up to the next marked one.
    """
    lines = text.splitlines(keepends=True)
    starts = [0, *accumulate(map(len, lines))]
    items = {
        start + item.end(): start + len(line) - len(line.lstrip())
        for start, line in zip(starts, lines, strict=False)
        if (item := _ITEM.match(line))
    }
    marked = [n for n, line in enumerate(lines) if line.lstrip().startswith("#")]
    behind_marked = dict(pairwise([*marked, len(lines)]))
    headings: list[_Heading] = []
    for number, line in enumerate(lines):
        words = line.strip("#*_ \t\r\n")
        if not words or len(words) > HEADING_MOST or _ITEM.match(line):
            continue
        if number in behind_marked:
            behind = behind_marked[number]
        elif words.endswith(COLONS):
            behind = _find_end(lines, number)
        else:
            continue
        start = starts[number] + line.index(words)
        span = (start, start + len(words))
        headings.append(_Heading(span, _squeeze(words), starts[behind]))
    return [heading for heading in headings if heading.stop > heading.span[1] + 1], items


def _find_end(lines: Sequence[str], number: int) -> int:
    """Return the line after the last item directly below a line, or after the text below it."""
    end, listed = number + 1, False
    for below in range(number + 1, len(lines)):
        if _ITEM.match(lines[below]):
            end, listed = below + 1, True
        elif lines[below].strip():
            return end if listed else below + 1
    return end


HEADING_MOST: Final = 160
"""Most characters of a heading: a longer line says more than the text below it."""
