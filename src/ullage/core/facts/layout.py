"""Traces of layout: titles, headings and letters, as people write them for others.

This module knows shapes of lines in any language; `copied` weighs them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from ullage.core.facts import cues
from ullage.core.facts.patterns import LatePattern

_STOPS: Final = tuple(".!?:;,\u2026\u3002\uff01\uff1f\uff1a\uff1b\uff0c\u3001")
_GREETS: Final = (",", "!", "\uff0c", "\uff01", "\u3001")
_CLOSES: Final = (",", "\uff0c", "\u3001")
_LISTED: Final = LatePattern(r"[-#*+\u2022\u2013\u2610\u2713]|\d{1,3}[.)]|[A-Za-z][.)]\s")
_ADDED: Final = LatePattern(r"\s{0,3}p\.? ?s\b", re.IGNORECASE)

_CLOSING: Final = LatePattern(
    r"\b(?:regards|wishes|thanks|thank you|hugs?|love|cheers|yours|sincerely|faithfully|best"
    r"|greetings|gr(?:u|\u00fc)(?:\u00df|ss)e?n?|mfg|lg|cordialement|salutations|bises"
    r"|amiti\u00e9s|saludos|atentamente|abrazos?|saluti|abbracci\w*|cumprimentos"
    r"|abra\u00e7os?|pozdrawiam|pozdrowieni\w+"
    r"|\u0443\u0432\u0430\u0436\u0435\u043d\u0438\u0435\u043c)\b",
    re.IGNORECASE,
)
"""Closings of letters without a comma."""

TITLE_LEAST: Final = 8
"""Letters of a title in capitals: a shorter line may be a name, or shouted."""

TITLE_MOST: Final = 90
"""Characters of a title."""

NAMES: Final = 4
"""Lines of a signature: a name, a role, a place, and a number."""


def find_titles(lines: Sequence[str], opening: int) -> Iterator[int]:
    """Yield titles in capitals after a person's first words, unless they announce rules."""
    for number in range(max(opening, 1), len(lines)):
        if _is_title(lines[number]) and not cues.RULE_HEADING.search(lines[number].lower()):
            yield number


def wants(told: str) -> bool:
    """Tell whether words request a product: titles then belong to the request."""
    return _WANTED.search(told) is not None


_WANTED: Final = LatePattern(
    r"\b(?:want|need|would like|build|make|create|write|implement|brauche\w*|m\u00f6cht\w+|will"
    r"|bau\w*|schreib\w*|veux|voulons|voudrais|besoin|\u00e9cri\w*|quiero|queremos|necesit\w+"
    r"|escrib\w+|voglio|vorrei|vogliamo|scriv\w+|chc\w+|potrzebuj\w+"
    r"|\u043d\u0443\u0436\w+|\u0445\u043e\u0447\w+)\b",
    re.IGNORECASE,
)
"""Words that request a product."""


def _is_title(line: str) -> bool:
    """Tell whether a line is words in capitals, and not an exclamation."""
    bare = line.strip()
    if not bare or len(bare) > TITLE_MOST or bare.endswith((":", "!", "?", "\uff1a", "\uff01")):
        return False
    large = sum(map(str.isupper, bare))
    return large >= TITLE_LEAST and large >= 0.9 * sum(map(str.isalpha, bare))


def find_headings(lines: Sequence[str], opening: int) -> Iterator[int]:
    """Yield lines of a few words with a blank line above and a text below."""
    for number in range(max(opening, 1), len(lines) - 1):
        below = lines[number + 1] or (lines[number + 2] if number + 2 < len(lines) else "")
        alone = not lines[number - 1].strip() and _is_label(lines[number])
        if alone and len(below.split()) > 5:
            yield number


def _is_label(line: str) -> bool:
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
    """Yield letters from the greeting to the signature, if the message has other words too.

    A letter that is the whole message may be addressed to the model.
    """
    begun, greeted, own = 0, -1, False
    for number in range(len(lines) - 1):
        if greeted < 0:
            above = lines[number - 1] if number > begun else ""
            if _is_greeting(lines[number], above):
                greeted = number
            own = own or (greeted < 0 and bool(lines[number].strip()))
            continue
        end = _find_end(lines, number) if number > greeted + 1 else number
        if end == number:
            continue
        below = next((lines[n] for n in range(end, len(lines)) if lines[n].strip()), "")
        if (own or below) and not _ADDED.match(below):
            yield range(greeted, end)
            begun, greeted, own = end, -1, True


def _find_end(lines: Sequence[str], number: int) -> int:
    """Return the line after the signature below a closing, the same line without a signature."""
    if not _is_closing(lines, number):
        return number
    end = number + 1
    while end < min(number + 1 + NAMES, len(lines)) and _is_label(lines[end]):
        end += 1
    return end if end > number + 1 else number


def _is_closing(lines: Sequence[str], number: int) -> bool:
    """Tell whether a line is the few words above a signature, after a blank line."""
    bare = lines[number].strip()
    if not bare or lines[number - 1].strip() or bare[0].islower() or len(bare) > 48:
        return False
    if len(bare.split()) > 6:
        return False
    return bare.endswith(_CLOSES) or (_is_label(bare) and _CLOSING.search(bare) is not None)


def _is_greeting(line: str, above: str) -> bool:
    """Tell whether a line is a greeting: the first words of a text, alone on the line."""
    bare = line.strip()
    few = 0 < len(bare) <= 60 and len(bare.split()) <= 7 and not bare[0].islower()
    begins = not above.strip() or above.rstrip().endswith((":", "\uff1a"))
    return few and begins and bare.endswith(_GREETS)
