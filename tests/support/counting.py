"""A counter that anybody can check by hand: a token a word.

It loads no vocabulary; it stands in wherever a `core.tokens.counting.Counter` is asked for.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

WORD: Final = re.compile(r"\w{1,8}|[^\w\s]|\s{2,}")


@dataclass(slots=True)
class WordCounter:
    """Count words (up to eight letters a token), marks and runs of white space.

    `seen` keeps every text that was counted, so that a test can tell what was counted twice.
    """

    key: str = "words"
    seen: list[str] = field(default_factory=list)

    def count(self, text: str) -> int:
        """Return the number of tokens; any string will do."""
        self.seen.append(text)
        return _count(text)

    def count_many(self, texts: Sequence[str]) -> list[int]:
        """Return the number of tokens of each text."""
        return [self.count(text) for text in texts]


@lru_cache(maxsize=4_096)  # much of what the laws took was to count the same texts again
def _count(text: str) -> int:
    return len(WORD.findall(text))
