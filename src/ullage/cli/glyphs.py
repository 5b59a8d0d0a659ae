"""Text for a terminal: control characters are shown as escapes, widths are counted in cells.

The module knows no reports and no sessions, and loads only the table of characters.
"""

from __future__ import annotations

import unicodedata

from ullage.core.values.visible import JOINERS, clean

__all__ = ["cells", "clean", "cut"]


def cells(text: str) -> int:
    """Return how many terminal cells a text without control characters takes."""
    return sum(_cell(character) for character in text)


def _cell(character: str) -> int:
    if character in JOINERS or unicodedata.category(character) in ("Mn", "Me"):
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
