"""Make foreign text visible: hidden and control characters are shown as escapes."""

from __future__ import annotations

import unicodedata
from typing import Final

HIDDEN: Final = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"})
"""Categories of Unicode whose characters are invisible, or change how others are shown."""

BLANK: Final = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
"""Characters that count as letters, marks or symbols, and show nothing."""

SELECTORS: Final = (range(0x180B, 0x1810), range(0xFE00, 0xFE10), range(0xE0100, 0xE01F0))
"""Variation selectors: invisible marks (Unicode 16, `Default_Ignorable`)."""

EMOJI_STYLES: Final = ("\ufe0e", "\ufe0f")
"""Marks that choose how the character before them is drawn; they are left out."""


JOINERS: Final = "\u200c\u200d"
"""Marks that join or part letters (Persian, Indic scripts) and join several emoji into one."""


def clean(text: object, *, ascii: bool = False) -> str:  # noqa: A002 - the name of the flag
    """Return `text` with every hidden character and terminal control shown as an escape.

    Joiners between visible characters stay, as Persian and emoji need them.
    """
    said = str(text)
    if said.isascii() and said.isprintable():
        return said
    for style in EMOJI_STYLES:
        said = said.replace(style, "")
    row = f" {said} "
    return "".join(
        one if one in JOINERS and not ascii and is_joined(before, behind) else _escape(one, ascii)
        for before, one, behind in zip(row, said, row[2:], strict=False)
    )


def is_joined(before: str, behind: str) -> bool:
    """Tell whether a joiner follows a visible character, in a script that has joiners."""
    seen = not (before.isspace() or hides(before) or is_blank(before) or is_accent(before))
    return seen and not (before.isascii() and (behind.isascii() or hides(behind)))


def is_blank(character: str) -> bool:
    """Tell whether a character counts as a letter, a mark or a symbol, and shows nothing."""
    return character in BLANK or any(ord(character) in each for each in SELECTORS)


def is_accent(character: str) -> bool:
    """Tell whether a character is a combining mark of no own script, usable on any letter."""
    return unicodedata.name(character, "").startswith("COMBINING ")


def hides(character: str) -> bool:
    """Tell whether a character is invisible, or changes how others are shown."""
    return unicodedata.category(character) in HIDDEN


def clean_lines(text: str) -> str:
    """Return a text of many lines cleaned; line ends and tabs stay."""
    if text.isascii() and text.replace("\n", "").replace("\t", "").isprintable():
        return text
    return "\n".join("\t".join(map(clean, line.split("\t"))) for line in text.split("\n"))


def _escape(character: str, plain: bool) -> str:  # noqa: FBT001 - one of two forms
    code = ord(character)
    if hides(character) or (plain and code > 126):
        if code < 0x100:
            return f"\\x{code:02x}"
        return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
    return character
