"""The time before a message: the writer of the message did not write it.

Some chats put the day or the hour before the first word of each message. It counts neither as a
number nor as a value of the message, but is kept with its first sentence.
"""

from __future__ import annotations

import re
from typing import Final

from ullage.core.facts.patterns import LatePattern

LONGEST: Final = 48
"""Most characters of a time before a message."""

_BRACKETED: Final = LatePattern(
    r"\s{0,3}(?:\[(?P<square>[^\]\n]{2,40})\]|\((?P<round>[^)\n]{2,40})\))[:,]?\s{1,3}(?=[^\s(])"
    r"|\s{0,3}\u3010(?P<lenticular>[^\u3011\n]{2,40})\u3011\s{0,3}(?=\S)"
)
_BARE: Final = LatePattern(
    r"\s{0,3}\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?(?:\.\d{1,6})?(?:Z|[+-]\d\d:?\d\d)?"
    r" ?[:,|-]?|[:,|])\s{1,3}(?=[^\s\d])"
)
"""A day with an hour, or with a mark after it: otherwise the day is part of the sentence."""

_WORD: Final = LatePattern(r"[^\W\d_]+")
_MONTH: Final = (
    r"(?:jan|feb|mar|m[\u00e4a]r|apr|may|mai|jun|jul|aug|sep|oct|okt|nov|dec|dez|ene|abr|ago|dic"
    r"|f[\u00e9e]v|avr|jui|ao[\u00fbu]|d[\u00e9e]c|gen|mag|giu|lug|set|ott|\u044f\u043d\u0432"
    r"|\u0444\u0435\u0432|\u043c\u0430\u0440|\u0430\u043f\u0440|\u043c\u0430[\u044f\u0439]"
    r"|\u0438\u044e\u043d|\u0438\u044e\u043b|\u0430\u0432\u0433|\u0441\u0435\u043d"
    r"|\u043e\u043a\u0442|\u043d\u043e\u044f|\u0434\u0435\u043a)[^\W\d_]{0,8}\.?"
)
_TIME: Final = LatePattern(
    r"\d\d?:\d\d(?!\d)|\d[\u5e74\u6708\u65e5]|(?<![\d.])(?:\d{4}[/.-]\d\d?[/.-]\d\d?"
    rf"|\d\d?[/.]\d\d?[/.]\d{{4}})(?![\d.])|\b\d\d?(?:st|nd|rd|th)?\.? {_MONTH}|\b{_MONTH} \d",
    re.IGNORECASE,
)
"""An hour, a day with its year, or the day of a month."""

WORDS: Final = 4
"""Most words of a time: the day, the month, the half of the day, the zone."""

LETTERS: Final = 12
"""Letters of such a word."""


def find_stamp(text: str) -> int:
    """Return the start of a message's words: after a time before them, or 0.

    Brackets may hold anything that looks like a date or an hour. Without them the time must be in
    the form of ISO 8601.
    """
    head = text[:LONGEST]
    if head.lstrip()[:1] not in _BEGINS:
        return 0
    found = _BRACKETED.match(head)
    if found is not None:
        return found.end() if _is_time(str(found[found.lastgroup or 0])) else 0
    bare = _BARE.match(head)
    return bare.end() if bare is not None else 0


_BEGINS: Final = frozenset("[(\u30100123456789")


def _is_time(inside: str) -> bool:
    words = _WORD.findall(inside)
    if len(words) > WORDS or any(len(word) > LETTERS for word in words):
        return False
    return _TIME.search(inside.strip()) is not None and not inside.startswith("ullage")
