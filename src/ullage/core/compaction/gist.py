"""The gist of a long task: its first and last sentence, and the most informative between them.

Sentences stay as written and in order, with items below their headings, and a mark shows a cut.
This module uses the given sizes and weighs nothing.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from ullage.core.compaction.situation import CUT
from ullage.core.facts.places import TextPlaces
from ullage.core.facts.segments import GAP, cut_message

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ullage.core.facts.places import Span
    from ullage.core.messages.transcript import Message

LEAST: Final = 3
"""With fewer sentences, the head and tail of a task carry as much."""

MISSES: Final = 20
"""Sentences that may be too large for the rest before the room counts as full."""


def choose_sentences(
    message: Message,
    text: str,
    worths: Mapping[int, float],
    tokens: int,
    count: Callable[[str], int],
    mark: str,
) -> str:
    """Return the most informative sentences of a text in at most so many tokens, "" if none fit.

    `worths` are those of the message's segments, by number. A segment without one stays only if it
    is the first or last that is not quoted, and fits. `mark` marks the longest cut; its `{tokens}`
    is replaced by the number of removed tokens, including earlier cuts.
    """
    spans = _find_own(message, text)
    if len(spans) < LEAST:
        return ""
    first, *_, last = spans
    best = sorted(spans.keys() & worths.keys(), key=lambda place: (-worths[place], place))
    room, misses, chosen = tokens - count(mark), 0, list[int]()
    taken: set[Span] = set()
    for place in dict.fromkeys((last, first, *best)):
        new = [span for span in spans[place] if span not in taken]
        size = count(GAP) + sum(count(text[start:stop]) for start, stop in new)
        if size <= room:
            room -= size
            chosen.append(place)
            taken.update(new)
        else:
            misses += 1
            if misses > MISSES:
                break
    while chosen:
        parts = _merge(span for place in chosen for span in spans[place])
        written = _write(text, parts, mark, count)
        if count(written) <= tokens:
            return written
        chosen.pop()
    return ""


def _merge(spans: Iterable[Span]) -> list[Span]:
    """Return parts of a text in order; overlapping parts become one."""
    merged: list[Span] = []
    for start, stop in sorted(spans):
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(stop, merged[-1][1]))
        else:
            merged.append((start, stop))
    return merged


def _find_own(message: Message, text: str) -> dict[int, Sequence[Span]]:
    """Return the places of the segments that are not quoted, by their number.

    Marks of earlier cuts are excluded. A message with several texts gives an empty result.
    """
    found: dict[int, Sequence[Span]] = {}
    if sum(part.kind == "text" for part in message.parts) > 1:
        return found
    places, begin = TextPlaces(text), 0
    for number, segment in enumerate(cut_message(message)):
        spans = places.find(segment.text, begin)
        if spans:
            begin = spans[-1][1]
            if segment.origin != "quoted" and CUT not in segment.text:
                found[number] = spans
    return found


def _write(text: str, spans: Iterable[Span], mark: str, count: Callable[[str], int]) -> str:
    """Return these parts of a text, with the mark at the longest cut."""
    edges = [0, *(edge for span in spans for edge in span), len(text)]
    pieces = [text[start:stop] for start, stop in pairwise(edges)]  # gaps have even numbers
    gaps = {n: piece for n, piece in enumerate(pieces) if n % 2 == 0 and _tells(piece)}
    longest = max(gaps, key=lambda n: len(gaps[n]), default=-1)
    left = sum(count(gap) + _count_cut(gap) for gap in gaps.values())
    told = mark.format(tokens=left)
    rows = (told if n == longest else GAP if n in gaps else piece for n, piece in enumerate(pieces))
    return "".join(rows)


def _count_cut(gap: str) -> int:
    """Return the tokens removed by earlier cuts, from the marks in a gap."""
    return sum(int(mark[1].replace(",", "")) for mark in _MARK.finditer(gap))


_MARK: Final = re.compile(re.escape(CUT) + r"([\d,]{1,12}) tokens left out here")


def _tells(gap: str) -> bool:
    """Tell whether a gap between two parts has more than signs and spaces."""
    return any(map(str.isalnum, gap))
