"""Reads one answer from its first byte to its end: bytes to events to an assembly.

It also accepts an answer in one piece: some gateways send that despite a request to stream. It
knows no retries and no dialect.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from typing import Any, Final, Literal, Protocol

from ullage.core.dialects.dialect import Dialect
from ullage.core.dialects.lines import Lines
from ullage.core.dialects.reply import Assembly, Delta
from ullage.core.dialects.sse import Events, Garbled, SseEvent
from ullage.transport import Broken

Hear = Callable[[Delta], object]

WHOLE_BYTES: Final = 16 * 1024 * 1024
"""Longest answer in one piece, in bytes."""

TRAILING_S: Final = 10.0
"""Seconds to wait for data after the end of an answer, such as its usage."""

LINGER_S: Final = 0.2
"""Seconds to wait for the end of the response after all that: then the connection can serve the
next call, too."""

DONE: Final = "[DONE]"
"""Marks the end of a stream of Chat Completions (OpenAI API reference)."""


class ByteSource(Protocol):
    """A source of an answer's bytes, such as `transport.Incoming`."""

    async def next(self) -> bytes | None:
        """Return the next bytes, or None at the end."""
        ...


async def listen(
    source: ByteSource,
    into: Assembly,
    hear: Hear,
    spoken: Dialect,
    *,
    most_bytes: int,
) -> None:
    """Read an answer into an assembly up to its end, and pass on the pieces to show.

    `spoken` says how a stream is written, and whether more follows its terminal event. Returns
    early if the assembly met an error. Raises Broken if the connection breaks before the end of the
    answer, and Garbled for an invalid answer or one longer than `most_bytes`.
    """
    listener = _Listener(into, hear, spoken, most_bytes)
    try:
        while not listener.over:
            chunk = await (_soon(source, TRAILING_S) if into.ended else source.next())
            if chunk is None:
                listener.end()
            else:
                listener.take(chunk)
    except (Broken, Garbled):
        if not into.ended:  # else only the usage is missing
            raise
    if into.ended:
        with contextlib.suppress(Broken):
            while await _soon(source, LINGER_S) is not None:
                pass


async def _soon(source: ByteSource, seconds: float) -> bytes | None:
    """Return the next bytes, or None at the end or if they take too long."""
    import asyncio

    try:
        async with asyncio.timeout(seconds):
            return await source.next()
    except TimeoutError:
        return None


class _Listener:
    """The state of one answer: its form, known from the first byte, and its events."""

    def __init__(self, into: Assembly, hear: Hear, spoken: Dialect, most_bytes: int) -> None:
        self.over = False
        self._most = most_bytes
        self._into = into
        self._hear = hear
        self._trailing = spoken.endpoint.trailing
        self._of_lines = spoken.fields.lines
        self._lines = Lines()
        self._form: Literal["unknown", "events", "lines", "whole"] = "unknown"
        self._events = Events()
        self._start = bytearray()
        self._size = 0
        self._heard = 0

    def take(self, chunk: bytes) -> None:
        """Take the next bytes."""
        self._size += len(chunk)
        most = min(self._most, WHOLE_BYTES) if self._form == "whole" else self._most
        if self._size > most:
            raise Garbled(f"it is longer than {most:,} bytes, the most that is read")
        if self._form == "events":
            self._all(self._events.feed(chunk))
            return
        self._start += chunk
        first = self._start.lstrip(_BLANK)[:1]
        if self._form == "unknown" and first:
            whole: Literal["lines", "whole"] = "lines" if self._of_lines else "whole"
            self._form = whole if first == b"{" else "events"
        if self._form == "events":
            self._all(self._events.feed(bytes(self._start)))
        elif self._form == "lines":
            self._all(_events(self._lines.feed(bytes(self._start))))
            self._start.clear()

    def end(self) -> None:
        """Handle the end of the connection."""
        if self._form == "whole":
            self._one(SseEvent("", self._start.decode("utf-8-sig", "replace")), last=True)
            self._into.ended = self._into.ended or self._into.begun
        elif self._form == "lines":
            self._all(_events([self._lines.end()]), last=True)
        elif self._form == "events":
            self._all(self._events.end(), last=True)
            if not self._heard:
                raise Garbled("it holds no events", sample=self._start.decode("utf-8", "replace"))
        self.over = True

    def _all(self, events: list[SseEvent], *, last: bool = False) -> None:
        for event in events:
            if event.data == DONE:
                self.over = True
                self._heard += 1
                self._into.ended = self._into.ended or self._into.begun
            elif event.data and not self.over:
                self._one(event, last=last)

    def _one(self, event: SseEvent, *, last: bool = False) -> None:
        """Take one event; with `last` no more follows."""
        value: Any = None
        with contextlib.suppress(ValueError, RecursionError):
            value = json.loads(event.data)
        self._heard += 1
        into = self._into
        if event.name == "error":
            into.failed = value if isinstance(value, dict) else {"error": event.data}
        elif isinstance(value, dict):
            for delta in into.take(value):
                self._hear(delta)
        else:
            raise Garbled(
                "it holds something other than JSON objects", torn=last, sample=event.data
            )
        self.over = self.over or into.failed is not None or (into.ended and not self._trailing)


def _events(lines: list[bytes]) -> list[SseEvent]:
    """Return lines of JSON as events; skip empty lines."""
    return [SseEvent("", line.decode("utf-8", "replace")) for line in lines if line.strip()]


_BLANK: Final = b" \t\r\n\xef\xbb\xbf"
