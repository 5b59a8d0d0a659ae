"""Results cut, when they are recorded, to the length that a model gets; a mark names the cut.

It knows no tool.
"""

from __future__ import annotations

import re
from typing import Any, Final

RESULT_CHARACTERS: Final = 30_000
"""The longest result, in characters: 7,000 to 10,000 tokens of code."""

_HEAD: Final = 2 / 3

_LONE: Final = re.compile("[\ud800-\udfff]")


def limit_text(
    text: str, limit: int = RESULT_CHARACTERS, rest: str = ""
) -> tuple[str, dict[str, Any]]:
    """Return head and tail of a text, about two to one, and the marks of the cut.

    `rest` says how to get the omitted part. A text within the limit comes back unchanged, except
    that lone surrogates, which UTF-8 cannot encode, become U+FFFD.
    """
    text = _LONE.sub("\ufffd", text)
    if len(text) <= limit:
        return text, {}
    head = text[: int(limit * _HEAD)]
    tail = text[len(text) - (limit - len(head)) :]
    left = len(text) - len(head) - len(tail)
    how = rest or "ask for less at once"
    mark = f"\n[{left:,} of {len(text):,} characters are left out here: {how}]\n"
    return head + mark + tail, {"truncated": left}


class Kept:
    """The kept part of an output while it arrives: its head and its tail, about two to one.

    `limit` is in bytes. It limits the memory, however long the output is.
    """

    def __init__(self, limit: int = RESULT_CHARACTERS) -> None:
        self._room = int(limit * _HEAD)
        self._most = limit - self._room
        self._head = bytearray()
        self._tail = bytearray()
        self._total = 0

    def add(self, data: bytes) -> None:
        """Add new output."""
        self._total += len(data)
        free = self._room - len(self._head)
        self._head += data[:free]
        self._tail += data[free:]
        del self._tail[: max(0, len(self._tail) - self._most)]

    @property
    def text(self) -> str:
        """The output, with a mark in place of the omitted part."""
        if not self.marks:
            return (self._head + self._tail).decode("utf-8", errors="replace")
        left = self.marks["truncated"]
        mark = f"\n[{left:,} of {self._total:,} bytes are left out here: write it to a file]\n"
        head, tail = (part.decode("utf-8", errors="replace") for part in (self._head, self._tail))
        return head + mark + tail

    @property
    def marks(self) -> dict[str, Any]:
        """The mark of a cut: the number of omitted bytes."""
        left = self._total - len(self._head) - len(self._tail)
        return {"truncated": left} if left else {}
