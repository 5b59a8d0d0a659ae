"""The terms of a text: words, their beginnings, pairs of characters in scripts without spaces.

The rules do not depend on a language. Words lose case and accents. Parts of a compound name
(`maxRetries`, `run_id`, `v2beta`) are terms too.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

UNSPACED: Final = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai and Lao, Burmese, Khmer
    "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"  # Japanese, Chinese
    "\U00020000-\U0003134f"  # rare Chinese characters
)
"""Scripts without spaces between words (Unicode 15, chapters 16 and 18)."""

MARKED: Final = "\u0300-\u036f\u0591-\u05c7\u064b-\u065f\u0900-\u0963\u0966-\u0dff"
"""Marks that belong to a word: accents, vowels of Hebrew and Arabic, the scripts of India."""

WORD: Final = re.compile(rf"[{UNSPACED}]+|(?:(?![{UNSPACED}])[^\W_]|[{MARKED}])+")
PLAIN: Final = re.compile(r"[A-Za-z0-9]+")
PARTS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
BEGINS_UNSPACED: Final = re.compile(f"[{UNSPACED}]")
ACCENT: Final = re.compile("[\u0300-\u036f]+")

STEM: Final = 5
"""The first letters of a longer word that form an extra term: the endings after them differ."""

STEMMED: Final = "\u02e3"
"""Suffix that marks a beginning as no whole word: a small x that no word ends with."""

MOST_KNOWN: Final = 20_000
"""Words whose terms are cached: nearly all words of a text repeat."""

LONGEST: Final = 64
"""Characters of a term that count; a longer word is a key or a hash, found by its beginning."""


def list_terms(text: str) -> list[str]:
    """Return the terms of a text, in order, each as often as it occurs."""
    if text.isascii():
        words: Iterator[str] = (found.group() for found in PLAIN.finditer(text))
    else:
        words = (found.group() for found in WORD.finditer(_fold_accents(text)))
    terms: list[str] = []
    for word in words:
        terms += _split_word(word)
    return terms


def _fold_accents(text: str) -> str:
    """Return a text in one form of each letter, Latin and Greek ones without accents."""
    apart = unicodedata.normalize("NFKD", text)
    return unicodedata.normalize("NFC", ACCENT.sub("", apart))


@lru_cache(maxsize=MOST_KNOWN)
def _split_word(word: str) -> tuple[str, ...]:
    """Return the terms of one word."""
    if BEGINS_UNSPACED.match(word):
        return tuple(word[i : i + 2] for i in range(max(len(word) - 1, 1)))
    whole = word.casefold()[:LONGEST]
    terms = [whole]
    plain = word.isalpha() and word.islower()
    parts = PARTS.findall(word) if word.isascii() and not plain else ()
    if len(parts) > 1:
        terms += (part.lower() for part in parts)
    if len(whole) > STEM and not whole.isdigit():
        terms.append(whole[:STEM] + STEMMED)
    return tuple(terms)
