"""Traces of layout: titles, headings and letters, which people set when they write for others.

It knows shapes of lines in any language; `copied` weighs them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from ullage.core.facts import cues

_STOPS: Final = tuple(".!?:;,\u2026\u3002\uff01\uff1f\uff1a\uff1b\uff0c\u3001")
_GREETS: Final = (",", "!", "\uff0c", "\uff01", "\u3001")
_CLOSES: Final = (",", "\uff0c", "\u3001")
_LISTED: Final = re.compile(r"[-#*+\u2022\u2013\u2610\u2713]|\d{1,3}[.)]|[A-Za-z][.)]\s")
_ADDED: Final = re.compile(r"\s{0,3}p\.? ?s\b", re.IGNORECASE)

TITLE_LEAST: Final = 8
"""Letters of a line in capitals that is a title: fewer may be a name, or loud."""

TITLE_MOST: Final = 90
"""Characters of a title."""

NAMES: Final = 4
"""Lines of a signature: a name, what somebody is, where, and a number."""


def find_titles(lines: Sequence[str], opening: int) -> Iterator[int]:
    """Yield titles in capitals behind somebody's first words, unless they say that rules follow."""
    for number in range(max(opening, 1), len(lines)):
        if is_title(lines[number]) and not cues.RULE_HEADING.search(lines[number].lower()):
            yield number


def is_title(line: str) -> bool:
    """Tell whether a line is words in capitals, and no cry."""
    bare = line.strip()
    if not bare or len(bare) > TITLE_MOST or bare.endswith((":", "!", "?", "\uff1a", "\uff01")):
        return False
    large = sum(map(str.isupper, bare))
    return large >= TITLE_LEAST and large >= 0.9 * sum(map(str.isalpha, bare))


def find_headings(lines: Sequence[str], opening: int) -> Iterator[int]:
    """Yield lines of a few words above which a line is blank, and below which a text begins."""
    for number in range(max(opening, 1), len(lines) - 1):
        below = lines[number + 1] or (lines[number + 2] if number + 2 < len(lines) else "")
        alone = not lines[number - 1].strip() and is_label(lines[number])
        if alone and len(below.split()) > 5:
            yield number


def is_label(line: str) -> bool:
    """Tell whether a line is a name, a place or a heading: a few words without a stop."""
    bare = line.strip()
    return (
        0 < len(bare) <= 60
        and not bare.endswith(_STOPS)
        and not bare[0].islower()
        and len(bare.split()) <= 8
        and _LISTED.match(bare) is None
    )


def find_letters(lines: Sequence[str]) -> Iterator[range]:
    """Yield letters from the greeting to the signature, where words of another hand are beside.

    A letter that is all of a message may be to the model.
    """
    begun = 0
    for number in range(1, len(lines) - 1):
        if not _is_closing(lines, number):
            continue
        end = number + 1
        while end < min(number + 1 + NAMES, len(lines)) and is_label(lines[end]):
            end += 1
        greeted = _find_greeting(lines, begun, number)
        if end == number + 1 or greeted is None:
            continue
        below = next(filter(str.strip, lines[end:]), "")
        beside = any(map(str.strip, lines[begun:greeted])) or below
        if beside and not _ADDED.match(below):
            yield range(greeted, end)
            begun = end


def _is_closing(lines: Sequence[str], number: int) -> bool:
    """Tell whether a line is the few words above a signature, a blank line above them."""
    bare = lines[number].strip()
    if not bare or lines[number - 1].strip() or bare[0].islower() or len(bare) > 48:
        return False
    words = len(bare.split())
    return (bare.endswith(_CLOSES) and words <= 6) or (is_label(bare) and words <= 4)


def _find_greeting(lines: Sequence[str], begun: int, end: int) -> int | None:
    """Return where somebody is greeted: the first words of a text, alone on their line."""
    for number in range(begun, end - 1):
        bare = lines[number].strip()
        above = lines[number - 1].rstrip() if number > begun else ""
        few = 0 < len(bare) <= 60 and len(bare.split()) <= 7 and not bare[0].islower()
        if few and bare.endswith(_GREETS) and (not above or above.endswith((":", "\uff1a"))):
            return number
    return None
