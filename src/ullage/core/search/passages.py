"""Cut a text into passages: search results short enough to read, long enough to understand.

A JSON list, the form in which dropped messages are kept, is first cut between its messages. So a
message gives the same passages in every list that holds it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

MOST: Final = 1_000
"""Characters of a passage: about 250 tokens, a few paragraphs."""

LEAST: Final = 400
"""An empty line ends a passage after this many characters."""

LONGEST_LIST: Final = 20_000_000
"""A longer text (in characters) is not read as a list of messages."""

ESCAPED: Final = re.compile(r'\\(?:[nrtbf"/\\]|u[0-9a-fA-F]{4})')
BREAK: Final = re.compile(r"\n\s*\n|(?<!\\)\\n\\n")
LINE: Final = re.compile(r"\n|(?<!\\)\\n|(?<=[.!?。！？।])\s*")  # noqa: RUF001 - Chinese, Hindi
SPACE: Final = re.compile(r"\s+")


@dataclass(frozen=True, slots=True)
class Passage:
    """A part of a text, and the character that it begins at; `escaped` if it is from JSON."""

    text: str
    start: int
    escaped: bool = False

    def read(self) -> str:
        """Return the passage in readable form: without JSON escapes and half surrogates."""
        text = ESCAPED.sub(_unescape, self.text) if self.escaped else self.text
        return text.encode("utf-8", "replace").decode()


def cut_passages(text: str) -> Iterator[Passage]:
    """Yield the passages of a text, in order; skips passages of only white space."""
    spans = _find_members(text)
    for start, end in spans or [(0, len(text))]:
        yield from _cut_span(text, start, end, escaped=bool(spans))


def _find_members(text: str) -> list[tuple[int, int]]:
    """Return the spans of the members of a JSON list, [] for any other text."""
    if not text.startswith("[{") or len(text) > LONGEST_LIST:
        return []
    decoder, spans, at = json.JSONDecoder(), [], 1
    try:
        while text[at] != "]":
            at += text[at] == ","
            at += len(text[at : at + 8]) - len(text[at : at + 8].lstrip())
            _, end = decoder.raw_decode(text, at)
            spans.append((at, end))
            at = end
    except (ValueError, IndexError, RecursionError):
        return []
    return spans


def _cut_span(text: str, start: int, end: int, *, escaped: bool) -> Iterator[Passage]:
    while start < end:
        stop = end if end - start <= MOST else _find_end(text, start)
        piece = text[start:stop]
        if piece.strip():
            yield Passage(piece, start, escaped)
        start = stop


def _find_end(text: str, start: int) -> int:
    """Return the best end of a passage before the end of its text."""
    last = start + MOST
    for pattern in (BREAK, LINE, SPACE):
        ends = [found.end() for found in pattern.finditer(text, start + LEAST, last)]
        if ends:
            return ends[-1]
    return last


def _unescape(found: re.Match[str]) -> str:
    return str(json.loads(f'"{found.group()}"'))
