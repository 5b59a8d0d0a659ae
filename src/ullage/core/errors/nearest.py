"""Suggestions for a mistyped name: the sentence at the end of every refusal of a name.

This module knows no names of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

ENOUGH: Final = 0.6
"""How alike two names must be, from 0 to 1; the default of `difflib.get_close_matches`."""


def find(word: str, known: Iterable[str], *, cutoff: float = ENOUGH) -> str | None:
    """Return the known name most like `word`, or None if none is close; ignores case."""
    from difflib import get_close_matches

    folded: dict[str, str] = {}
    for name in known:
        folded.setdefault(name.casefold(), name)
    near = get_close_matches(word.casefold(), folded, n=1, cutoff=cutoff)
    return folded[near[0]] if near else None


def suggest(word: str, known: Iterable[str], otherwise: str = "") -> str:
    """Return `did you mean 'x'?` for the nearest known name, else `otherwise`."""
    near = find(word, known)
    return otherwise if near is None else f"did you mean {near!r}?"
