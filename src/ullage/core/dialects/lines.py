"""Lines of JSON, and members of an array: bytes in any pieces, whole values in order.

A line ends at LF and nowhere else.
"""

from __future__ import annotations

import re
from typing import Final

from ullage.core.dialects.sse import Garbled

MOST_BYTES: Final = 16 * 1024 * 1024
"""Most bytes of a line; the last one of `/api/generate` repeats the context as numbers."""


class Lines:
    """Cuts a stream into lines. The time is linear in the bytes, however they are split."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most = most_bytes
        self._held: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that these bytes complete, each unchanged and with its LF.

        Raises Garbled for a line over the bound; the stream cannot be used after it.
        """
        *lines, rest = data.split(b"\n")
        found: list[bytes] = []
        for line in lines:
            self._hold(line)
            found.append(b"".join(self._held) + b"\n")
            self._held, self._size = [], 0
        if rest:
            self._hold(rest)
        return found

    def end(self) -> bytes:
        """Return the rest at the end of the stream: a line without its LF, or nothing.

        An answer that is not a stream is one such line.
        """
        left, self._held, self._size = b"".join(self._held), [], 0
        return left

    def _hold(self, piece: bytes) -> None:
        self._held.append(piece)
        self._size += len(piece)
        if self._size > self._most:
            raise Garbled(
                f"a line of the answer is longer than {self._most:,} bytes, the limit: is "
                "the upstream an Ollama server?"
            )


class Members:
    """Cuts a JSON array that arrives in pieces into its members, which are objects."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most = most_bytes
        self._data = b""
        self._at = 0  # position of the scan
        self._depth = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Return the members that these bytes complete; raises Garbled for one over the bound."""
        data, start, found = self._data + data, 0, list[bytes]()
        for token in _TOKEN.finditer(data, self._at):
            mark = token[0]
            if mark == b'"':  # a string without its end
                break
            if mark == b"{":
                start = start if self._depth else token.start()
                self._depth += 1
            elif mark == b"}" and self._depth:
                self._depth -= 1
                if not self._depth:
                    found.append(data[start : token.end()])
                    start = token.end()
            self._at = token.end()
        self._data, self._at = data[start:], self._at - start
        if len(self._data) > self._most:
            raise Garbled(f"a member of the answer is longer than {self._most:,} bytes")
        return found

    def end(self) -> bytes:
        """Return nothing: the rest at the end of the stream is not a member."""
        return b""


_TOKEN: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"|["{}]', re.DOTALL)
"""Braces, strings, and the opening quote of a string whose end has not arrived."""
