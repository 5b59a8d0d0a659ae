"""Text on its way to a terminal: what would steer one is shown as an escape, and widths in cells.

It knows no report and no session, and loads nothing but the table of characters.
"""

from __future__ import annotations

import unicodedata
from typing import Final

HIDDEN: Final = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"})
EMOJI_STYLES: Final = "\ufe0e\ufe0f"


def clean(text: object, *, ascii: bool = False) -> str:  # noqa: A002 - the name of the flag
    """Return `text` with everything that steers a terminal or hides made visible as an escape."""
    return "".join(_escape_character(character, ascii) for character in str(text))


def _escape_character(character: str, plain: bool) -> str:  # noqa: FBT001 - one of two forms
    code = ord(character)
    if character in EMOJI_STYLES:
        return ""
    if unicodedata.category(character) in HIDDEN or (plain and code > 126):
        if code < 0x100:
            return f"\\x{code:02x}"
        return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
    return character


def cells(text: str) -> int:
    """Return how many terminal cells a text without control characters takes."""
    return sum(_cell(character) for character in text)


def _cell(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def cut(text: str, room: int, mark: str = "…") -> str:
    """Return `text` in at most `room` cells, with a mark where something is missing."""
    if cells(text) <= room:
        return text
    kept, used = "", cells(mark)
    for character in text:
        used += _cell(character)
        if used > room:
            break
        kept += character
    return (kept + mark) if cells(mark) <= room else ""
