"""Differences between tokenizers because of Unicode, and how to get one answer for a text.

The vocabularies split text by Unicode's character classes before they merge bytes, so a count
depends on a library's edition of the tables. The reference (tiktoken 0.14, bpe-openai 0.1) knows
Unicode 16; toktok 0.3 knows 17; pure Python knows the interpreter's edition (3.11: 14). This module
knows those differences. It knows no vocabulary.

The tables come from a comparison of toktok with bpe-openai over all 1,112,064 code points in
fifteen contexts, and of bpe-openai's classes with `unicodedata`'s; `tests/counters` repeats it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final


def _any_of(ranges: str) -> re.Pattern[str]:
    """Return the expression for one code point of "41-5A 5F"."""
    spans = (span.split("-") for span in ranges.split())
    return re.compile(f"[{''.join('-'.join(chr(int(end, 16)) for end in s) for s in spans)}]")


_NEW_IN_17: Final = """
    88F C5C CDC 1ACF-1ADD 1AE0-1AEB A7CE-A7CF A7D2 A7D4 A7F1 10940-10959 10EC5-10EC7 10EFA-10EFB
    11B60-11B67 11DB0-11DDB 11DE0-11DE9 16EA0-16EB8 16EBB-16ED3 16FF2-16FF6 187F8-187FF 18D09-18D1E
    18D80-18DF2 1E6C0-1E6DE 1E6E0-1E6F5 1E6FE-1E6FF 2B73A-2B73F 2CEA2-2CEAD 323B0-33479
"""
"""Letters, marks and digits of Unicode 17: plain symbols for the reference, which knows 16."""

_LONG_S: Final = "17F"
"""It folds to s, so the reference reads an apostrophe with it as a contraction; toktok knows only
the ASCII letters."""

_STAND_INS: Final[Mapping[str, str]] = {
    "\N{SECTION SIGN}": _NEW_IN_17,
    # letters without case
    "\N{HEBREW LETTER ALEF}": """
        105C0-105F3 10D4A-10D4F 10D6F 10EC2-10EC4 1123F-11240 11380-11389 1138B 1138E 11390-113B5
        113B7 113D1 113D3 11BC0-11BE0 11F02 11F04-11F10 11F12-11F33 1342F 13441-13446 13460-143FA
        16100-1611D 16D40-16D6C 18CFF 1B132 1B155 1E030-1E06D 1E4D0-1E4EB 1E5D0-1E5ED 1E5F0 2B739
        2EBF0-2EE5D 31350-323AF
    """,
    # upper case
    "\N{LATIN CAPITAL LETTER A WITH GRAVE}": "1C89 A7CB-A7CC A7DA A7DC 10D50-10D65",
    # lower case
    "\N{LATIN SMALL LETTER A WITH GRAVE}": "1C8A A7CD A7DB 10D70-10D85 1DF25-1DF2A",
    # marks
    "\N{COMBINING ACUTE ACCENT}": """
        897 CF3 ECE 10D69-10D6D 10EFC-10EFF 11241 113B8-113C0 113C2 113C5 113C7-113CA 113CC-113D0
        113D2 113E1-113E2 11F00-11F01 11F03 11F34-11F3A 11F3E-11F42 11F5A 13440 13447-13455
        1611E-1612F 1E08F 1E4EC-1E4EF 1E5EE-1E5EF
    """,
    # digits and numbers
    "\N{ARABIC-INDIC DIGIT ZERO}": """
        10D40-10D49 116D0-116E3 11BF0-11BF9 11F50-11F59 16130-16139 16D70-16D79 1CCF0-1CCF9
        1D2C0-1D2D3 1E4F0-1E4F9 1E5F1-1E5FA
    """,
}
"""Code points of Unicode 15 to 17 by their class in the reference; each class has a character that
every edition knows."""

# A few wide ranges that contain all of a table: about five times faster to search.
_ROUGHLY_DOUBTED: Final = _any_of("17F 88F C5C CDC 1ACF-1AEB A7CE-A7F1 10940-1E6FF 2B73A-33479")
_ROUGHLY_NEWER: Final = _any_of("88F-1C8A A7CB-A7F1 105C0-1E6FF 2B739-33479")

_DOUBTED: Final = _any_of(f"{_LONG_S} {_NEW_IN_17}")
_NEWER: Final = tuple((_any_of(ranges), stand_in) for stand_in, ranges in _STAND_INS.items())

_CUT: Final = re.compile(
    "(?<=[A-Za-z0-9\u3041-\u3096\u30a1-\u30fa\u4e00-\u9fa5\uac00-\ud7a3])"
    '(?=[\\s,.;:!?()"\u3001\u3002\uff01\uff0c\uff1a\uff1b\uff1f])'
)
"""Between a letter or digit and white space or a stop, every vocabulary here ends a pre-token: a
run of letters or digits takes none of these, and no pattern looks back. That holds for o200k,
cl100k and the splitters of all of `ullage.counters.families`; NFC joins nothing across it either.
"""

_WINDOW: Final = 256


def doubtful(text: str) -> bool:
    """Return whether toktok and the reference may count `text` differently."""
    return not text.isascii() and bool(_ROUGHLY_DOUBTED.search(text) and _DOUBTED.search(text))


def segments(text: str) -> list[str]:
    """Cut `text` where a pre-token certainly ends: the segments' counts add up to its own."""
    return _CUT.split(text)


def last_cut(text: str, start: int = 0) -> int:
    """Return the last position after `start` where a pre-token certainly ends, or `start`.

    It searches from the end, so that the cost depends on the text after that position only.
    """
    end, width = len(text), _WINDOW
    while end > start:
        begin = max(start, end - width)
        found = start
        for cut in _CUT.finditer(text, begin + 1, end + 1):
            found = cut.start()
        if found > start:
            return found
        end, width = begin, 2 * width
    return start


def shadow(text: str) -> str:
    """Return text of the same length and with the reference's classes, in well-known characters.

    It splits into pre-tokens as the reference splits `text`, whatever the interpreter's edition.
    """
    if text.isascii() or not _ROUGHLY_NEWER.search(text):
        return text
    for newer, stand_in in _NEWER:
        text = newer.sub(stand_in, text)
    return text


def replace_surrogates(text: str) -> str:
    """Join surrogate pairs and replace lone surrogates by U+FFFD, as tiktoken does."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def upper_bound(text: str) -> int:
    """Return the number of UTF-8 bytes: a token covers at least one, so no count is higher."""
    return len(text.encode("utf-8", "surrogatepass"))


def is_panic(error: BaseException) -> bool:
    """Return whether native code panicked: pyo3 raises a panic as a type that is no `Exception`.

    Every extension module has its own type, which cannot be imported, so its name decides.
    """
    return type(error).__name__ == "PanicException"
