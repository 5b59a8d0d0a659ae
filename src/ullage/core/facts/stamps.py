"""The time that stands in front of a message: who wrote it did not say it.

Chats are handed on with the day or the hour of each message before its first word. It counts as
neither a number nor a value of what is said; with the first sentence it is told.
"""

from __future__ import annotations

import re
from typing import Final

_BRACKETED: Final = re.compile(
    r"\s*[\[(\u3010](?!ullage:)(?=[^\])\u3011\n]{0,40}\d)"
    r"(?:[^\W\d_]{1,12}|\d{1,4}|[ ,.:/+()-]|[\u5e74\u6708\u65e5]){2,24}"
    r"(?:[\])][:,]?\s+(?=[^\s(])|\u3011\s*(?=\S))"
)
_ZONE: Final = r"(?:Z|[+-]\d\d:?\d\d)?"
_BARE: Final = re.compile(
    rf"\s*\d{{4}}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?(?:\.\d{{1,6}})?{_ZONE})?\s*[:,|-]?\s+"
    r"(?=[^\s\d])"
)
_TIME: Final = re.compile(
    r"\d:\d\d|\d{1,4}[/.-]\d{1,2}[/.-]|\d\.?\s?[^\W\d_]{3,}|[^\W\d_]{3,}\.?\s\d"
    r"|\d[\u5e74\u6708\u65e5]"
)


def find_stamp(text: str) -> int:
    """Return where the words of a message begin: behind a time in front of them, or at 0.

    In brackets stand a few short words and numbers, which look like a date or an hour; without them
    the time is written as ISO 8601 has it.
    """
    if not text or text.lstrip()[:1] not in _BEGINS:
        return 0
    found = _BRACKETED.match(text)
    if found is not None:
        return found.end() if _TIME.search(found[0]) else 0
    bare = _BARE.match(text)
    return bare.end() if bare is not None else 0


_BEGINS: Final = frozenset("[(\u30100123456789")
