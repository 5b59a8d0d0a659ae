"""Shapes of lines by other writers: times, counts, columns, labels, words of pages.

A pattern is tried only on lines that contain its required part. The combined proof of the shapes in
a text belongs to `copied`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from ullage.core.facts.patterns import LatePattern, has_digit

_MONTH: Final = r"[^\W\d_]{3,10}\.?"
_DAY: Final = (
    rf"(?:\d{{4}}[-/.]\d\d?[-/.]\d\d?|\d\d?[./]\d\d?[./]\d{{2,4}}|\d\d?\.? {_MONTH} \d{{4}}"
    rf"|{_MONTH} \d\d?(?:st|nd|rd|th)?,? \d{{4}}|\d{{4}}年\d\d?月\d\d?日)"
)
_CLOCK: Final = r"\d\d?:\d\d(?::\d\d)?(?:[,.]\d{1,6})?(?: ?[AaPp]\.?[Mm]\b\.?)?"
_WHEN: Final = rf"(?:{_DAY}[,T ]{{0,3}}{_CLOCK}|{_CLOCK}|{_DAY})"
_STAMP: Final = LatePattern(
    rf"[^\w\n]{{0,3}}(?:{_DAY}[,T ]{{0,3}}(?:{_CLOCK})?|{_CLOCK})(?:\W{{1,4}}|$)"
    rf"|(?:[^\s]{{1,24}}\s{{1,4}}){{0,5}}?[^\s\d]{{0,3}}{_WHEN}(?:[\u2013-]{_CLOCK})?[)\]]?\s*$"
)
"""A line that begins with a time, or a few words that end with a time, not a full sentence."""

FIELD: Final = LatePattern(r"\s{0,3}[^\s:\uff1a|][^:\uff1a|\n]{0,30}(?::\s+|\uff1a)\S")
_COUNT: Final = LatePattern(r"\s{0,3}[^\w\n]{0,3}\d[\d.,:]{0,11} ?[kKmM%]?[^\w\n]{0,3}$")
_SIGN: Final = LatePattern(r"\s{0,3}(?::[a-z0-9_+-]{1,30}:|[^\w\s]{1,4} ?\d{1,5})\s*$")
_HANDLE: Final = LatePattern(r"\s{0,3}@[\w.-]{1,40}\s*$")
_COLUMNS: Final = LatePattern(r"\S {4,100}\S")
_INSET: Final = LatePattern(r" {3,24}[^\s\-*+•\d]")
_BROKEN: Final = LatePattern(r"[^\n]{20,200}[^\W\d_]{2}[-\u00ad\u2010]\s*$")
_SECTION: Final = LatePattern(
    r"\s{0,3}(?:§ ?\d{1,4}[a-z]?|\d{1,3}(?:\.\d{1,3}){1,4}\.?)\s+[^\W\d_]{3}"
)
_IMPRINT: Final = LatePattern(
    r"©|\[page \d|\bpage \d{1,4} (?:of|/)|\bseite \d{1,4} von|^[-\u2013~—] ?\d{1,4} ?[-\u2013~—]$",
    re.IGNORECASE,
)
_NOTED: Final = LatePattern(
    r"[^\W_]{2}[.,)]?\[(?:\d{1,3}|[a-z]|[a-z]{4,12}(?: [a-z]{4,12})?)\](?![\w(=])"
)
SPOKEN: Final = LatePattern(r"[\"“„«][^\"“”„«»\n]{20,400}[\"”“»]")
NUMBER: Final = LatePattern(r"\d+")
_AGO: Final = LatePattern(
    r"\b\d{1,3} ?[a-z]{1,8} ago\b[^.!?\n]{0,60}$|^(?:vor|il y a|hace) \d{1,3} \w{3,10}\s*$"
    r"|\d{1,3} \w{3,10} назад\s*$|\d{1,3} ?(?:分钟?|小时|天|日|時間|か月)前\s*$",
    re.IGNORECASE,
)
_BARS: Final = LatePattern(r"[^|\n]{1,120}\S [|·•] \S[^|·•\n]{0,80}\S [|·•] \S")


def is_stamp(line: str) -> bool:
    """Tell whether a time begins a line, or ends one of few words."""
    return not line.rstrip().endswith((".", "!", "?")) and _STAMP.match(line) is not None


def _is_stamp_alone(line: str) -> bool:
    return is_stamp(line) and FIELD.match(line) is None


def _is_imprint(line: str) -> bool:
    if line.isascii() and not line.startswith(("-", "~")):
        lower = line.lower()
        if "page" not in lower and "seite" not in lower:
            return False
    return _IMPRINT.search(line) is not None


def _is_aged(line: str) -> bool:
    if line.isascii():
        lower = line.lower()
        if " ago" not in lower and not lower.startswith(("vor", "il", "hace")):
            return False
    return _AGO.search(line) is not None


_DIGIT: Final = ("",)
"""A digit of any script is required."""

SHAPES: Final[tuple[tuple[str, Callable[[str], object], int, int, tuple[str, ...]], ...]] = (
    ("stamp", is_stamp, 1, 1, _DIGIT),
    ("stamps", _is_stamp_alone, 2, 1, _DIGIT),
    ("count", _COUNT.begins, 1, 2, _DIGIT),
    ("sign", _SIGN.begins, 1, 1, (*_DIGIT, ":")),
    ("handle", _HANDLE.begins, 1, 2, ("@",)),
    ("columns", _COLUMNS.stands_in, 1, 2, ("    ",)),
    ("inset", _INSET.begins, 3, 1, ("   ",)),
    ("broken", _BROKEN.begins, 1, 1, ("-", "\u00ad", "\u2010")),
    ("section", _SECTION.begins, 1, 1, _DIGIT),
    ("sections", _SECTION.begins, 3, 1, _DIGIT),
    ("imprint", _is_imprint, 1, 1, (*_DIGIT, "©")),
    ("note", _NOTED.stands_in, 1, 1, ("[",)),
    ("notes", _NOTED.stands_in, 2, 1, ("[",)),
    ("speech", SPOKEN.stands_in, 1, 1, ('"', "“", "„", "«")),
    ("fields", FIELD.begins, 4, 1, (":", "\uff1a")),
    ("ago", _is_aged, 1, 1, _DIGIT),
    ("bars", _BARS.begins, 1, 1, ("|", "·", "•")),
)
"""For each kind of line: its name, its test, the least number of such lines, and its weight. Each
such line contains one of the last field's parts: most lines do not, so no pattern runs."""


def list_shapes(line: str) -> tuple[int, ...]:
    """Return the shapes of a line, as positions in the table."""
    return _list_kept(line) if len(line) <= LINE_KEPT else _match_shapes(line)


LINE_KEPT: Final = 500
"""The shapes of a line are cached up to this many characters."""


@lru_cache(maxsize=4_096)  # each line of a text is analysed up to three times
def _list_kept(line: str) -> tuple[int, ...]:
    return _match_shapes(line)


def _match_shapes(line: str) -> tuple[int, ...]:
    places = set(_OF_DIGITS) if has_digit(line) else set[int]()
    for part, found in _OF_PARTS:
        if part in line:
            places.update(found)
    return tuple(place for place in places if SHAPES[place][1](line))


_OF_DIGITS: Final = tuple(n for n, shape in enumerate(SHAPES) if "" in shape[-1])
_OF_PARTS: Final = tuple(
    (part, tuple(n for n, shape in enumerate(SHAPES) if part in shape[-1]))
    for part in dict.fromkeys(part for shape in SHAPES for part in shape[-1] if part)
)
"""The shapes that need a digit, and those that need a part: each part is searched once."""
