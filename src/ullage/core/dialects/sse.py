"""Server-sent events: bytes in any pieces, events in order.

Source: WHATWG HTML, 9.2.6, "Interpreting an event stream". This module does not know the meaning of
events. Lines end at CR, LF or both and nowhere else: U+2028 inside JSON text is text.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from ullage.core.errors import ProviderError

MOST_BYTES: Final = 16 * 1024 * 1024
"""The largest event that is accepted; the longest ones repeat a whole answer."""


class Garbled(ProviderError):  # noqa: N818 - named for what the answer was
    """Report an invalid response.

    `torn` says that only its end is missing. `sample` is the received text, unchanged: it may quote
    secrets, so the message does not contain it.
    """

    code = "garbled"

    def __init__(self, message: str, *, torn: bool = False, sample: str = "") -> None:
        self.torn = torn
        self.sample = sample
        super().__init__(message)


class SseEvent(NamedTuple):
    """One event: its name, empty if it has none, and its data."""

    name: str
    data: str


class Events:
    """Cuts a stream into events. The time is linear in the bytes, however they are split."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most = most_bytes
        self._line: list[bytes] = []
        self._name = ""
        self._data: list[str] = []
        self._size = 0
        self._after_cr = False
        self._first = True

    def feed(self, data: bytes) -> list[SseEvent]:
        """Return the events that these bytes complete.

        Raises Garbled for an event over the bound; the stream cannot be used after it.
        """
        if not data:
            return []
        if self._after_cr and data[:1] == b"\n":
            data = data[1:]
            self._after_cr = False
            if not data:
                return []
        self._after_cr = data.endswith(b"\r")
        *lines, rest = _LINE_END.split(data)
        found: list[SseEvent] = []
        for line in lines:
            whole = b"".join((*self._line, line)) if self._line else line
            self._line.clear()
            self._add_size(len(line))
            self._take(whole, found)
        if rest:
            self._line.append(rest)
            self._add_size(len(rest))
        return found

    def end(self) -> list[SseEvent]:
        """Return the event that the end of the stream completes, if any.

        The standard drops an event without its empty line, but servers that omit the last one mean
        the event. A torn event is noticed, because it is no valid JSON.
        """
        found: list[SseEvent] = []
        if self._line:
            self._take(b"".join(self._line), found)
            self._line.clear()
        self._dispatch(found)
        return found

    def _take(self, line: bytes, found: list[SseEvent]) -> None:
        if self._first:
            self._first = False
            line = line.removeprefix(b"\xef\xbb\xbf")
        if not line:
            self._dispatch(found)
            return
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value.decode("utf-8", "replace"))
        else:
            self._size -= len(line)
            if name == b"event":
                self._name = value.decode("utf-8", "replace")

    def _dispatch(self, found: list[SseEvent]) -> None:
        if self._data:
            found.append(SseEvent(self._name, "\n".join(self._data)))
        self._name, self._size = "", 0
        self._data.clear()

    def _add_size(self, size: int) -> None:
        self._size += size
        if self._size > self._most:
            raise Garbled(
                f"an event is longer than {self._most:,} bytes, the limit: is "
                "the base URL that of a model server?"
            )


_LINE_END: Final = re.compile(rb"\r\n|\r|\n")
