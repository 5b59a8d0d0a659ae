"""A stream of events on its way to the client: the bytes pass as they came, and are read.

Frames end at a blank line, lines only at LF, CR or CRLF (HTML Standard, server-sent events).
Nothing is held back except the frame that the proxy itself asked for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Protocol

import msgspec

from ullage.core.dialects import lines, registry
from ullage.core.dialects.sse import Garbled
from ullage.sdk.streams import Tracker

MOST: Final = 16 * 1024 * 1024
"""Most bytes of a frame; a larger one is relayed without being read."""

LAST: Final = 8
"""Number of last sent bytes that are kept, to end a stream that breaks off."""


class StreamWatch(Protocol):
    """A stream that is watched as it passes."""

    @property
    def begun(self) -> bool:
        """True once content has come."""
        ...

    @property
    def ended(self) -> bool:
        """True once the terminal event has come."""
        ...

    @property
    def known(self) -> bool:
        """True if the stream has a terminal event, and was read so far."""
        ...

    @property
    def failed(self) -> Any:
        """The error instead of an answer, or None."""
        ...

    @property
    def report(self) -> Any:
        """The usage report, or None."""
        ...

    @property
    def events(self) -> int:
        """Number of events so far, including those without content."""
        ...

    def feed(self, chunk: bytes) -> bytes:
        """Take the next bytes; return those to send to the client now."""
        ...

    def rest(self) -> bytes:
        """Return the rest when the stream has ended."""
        ...

    def cut(self, text: str) -> bytes:
        """Return the bytes that tell the client that the stream stopped early."""
        ...


class LineRelay:
    """Lines of JSON, or members of an array, on their way: nothing is ever held back."""

    def __init__(self, dialect: str, cutter: lines.Members | None = None) -> None:
        self._cutter: lines.Lines | lines.Members = cutter or lines.Lines()
        self._dialect = dialect
        self._telling = registry.find(dialect).telling
        self._last = b""
        self.tracker = Tracker(dialect)
        self.known = True
        self._events = 0

    @property
    def begun(self) -> bool:
        """True once content has come."""
        return self.tracker.begun

    @property
    def ended(self) -> bool:
        """True once the terminal line has come."""
        return self.tracker.ended

    @property
    def failed(self) -> Any:
        """The error instead of the terminal line, or None."""
        return self.tracker.failed

    @property
    def report(self) -> Any:
        """The report of the terminal line, or None."""
        return self.tracker.report

    @property
    def events(self) -> int:
        """Number of lines so far, including those without content."""
        return self._events

    def feed(self, chunk: bytes) -> bytes:
        """Take the next bytes; all of them are sent on."""
        if self.known:
            try:
                for line in self._cutter.feed(chunk):
                    self._take(line)
                    self._events += 1
            except (Garbled, RecursionError):
                self.known = False  # a line beyond all bounds: relayed unread
        self._last = (self._last + chunk)[-LAST:]
        return chunk

    def rest(self) -> bytes:
        """Read the rest, which was already sent on."""
        try:
            self._take(self._cutter.end())
        except RecursionError:
            self.known = False
        return b""

    def cut(self, text: str) -> bytes:
        """Return the line that tells the client that the stream broke off."""
        return registry.find(self._dialect).errors.break_off(text, self._last)

    def _take(self, line: bytes) -> None:
        """Read a line if it may hold information; of content, only the first line does."""
        if self.tracker.begun and self._telling.search(line) is None:
            return
        try:
            event = _JSON.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return
        if isinstance(event, Mapping):
            self.tracker.take(event)


class EventRelay:
    """The data of one stream, read as its bytes pass.

    With `spliced` the proxy asked for the usage report: the frame that holds only this report is
    left out.
    """

    def __init__(self, dialect: str, *, spliced: bool = False) -> None:
        self.tracker = Tracker(dialect)
        self.events = 0
        self._dialect = dialect
        self._telling = registry.find(dialect).telling
        self._spliced = spliced
        self._tail = b""
        self._sent = 0
        self._deaf = False
        self._open = False
        self._done = False

    @property
    def begun(self) -> bool:
        """True once content has come."""
        return self.tracker.begun

    @property
    def ended(self) -> bool:
        """True once the terminal event has come."""
        return self.tracker.ended or self._done

    @property
    def known(self) -> bool:
        """True if all of it was read: only then is a missing terminal event meaningful."""
        return not self._deaf

    @property
    def failed(self) -> Any:
        """The error event, or None."""
        return self.tracker.failed

    @property
    def report(self) -> Any:
        """The usage report, or None."""
        return self.tracker.report

    def cut(self, text: str) -> bytes:
        """Return the bytes that report a broken stream to the client and end an open frame."""
        left = self.rest()
        return (
            left
            + (b"\n\n" if self._open else b"")
            + registry.find(self._dialect).errors.break_off(text, b"")
        )

    def feed(self, chunk: bytes) -> bytes:
        """Take the next bytes; return those to send to the client now."""
        if self._deaf:
            return chunk
        if not self._tail and _one(chunk):
            return b"" if self._read_frame(chunk) and self._spliced else chunk
        data = self._tail + chunk if self._tail else chunk
        out: list[bytes] = []
        start, sent = 0, self._sent
        for found in BLANK.finditer(data, max(len(self._tail) - LONGEST_BLANK, 0)):
            stop = found.end()
            if stop == len(data) and data.endswith(b"\r"):
                break  # a line feed may follow: the frame ends there
            frame = data[start:stop]
            if not (self._read_frame(frame) and self._spliced and not sent):
                out.append(data[start + sent : stop])
            start, sent = stop, 0
        self._tail = data[start:]
        if self._spliced and self.tracker.ended:
            self._sent = sent  # the usage frame comes next: it is sent whole or not at all
        else:
            out.append(self._tail[sent:])
            self._sent = len(self._tail)
        if len(self._tail) > MOST:
            out.append(self._tail[self._sent :])
            self._tail, self._sent = b"", 0
            self._deaf = self._open = True
        return b"".join(out)

    def rest(self) -> bytes:
        """Return the rest when the stream has ended, an unfinished frame as it is.

        Servers forget the blank line after the last frame: it is read all the same.
        """
        tail, sent = self._tail, self._sent
        self._tail, self._sent = b"", 0
        if not tail:
            return b""
        if self._read_frame(tail) and self._spliced and not sent:
            return b""
        self._open = BLANK.search(tail) is None
        return tail[sent:]

    def _read_frame(self, frame: bytes) -> bool:
        """Read a frame; tell whether it holds only the usage report."""
        self.events += 1
        if self.tracker.begun and self._telling.search(frame) is None:
            return False  # later content: nothing more to learn
        data = read_data(frame)
        if data is None or data == b"[DONE]":
            self._done = self._done or data is not None
            return False
        try:
            event = _JSON.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return False
        if not isinstance(event, Mapping):
            return False
        self.tracker.take(event)
        return event.get("choices") == [] and event.get("usage") is not None


def _one(chunk: bytes) -> bool:
    """Tell whether a chunk is one whole frame, as servers send them."""
    return chunk.find(b"\n\n") == len(chunk) - 2 > 0 and b"\r" not in chunk


def read_data(frame: bytes) -> bytes | None:
    """Return the data of a frame, or None without data (a comment, a name alone)."""
    if frame.startswith(b"data: ") and frame.count(b"\n") == _LINES and b"\r" not in frame:
        return frame[6:-2]
    lines = [line for line in _ENDS.split(frame) if line.startswith(b"data")]
    found = [line[5:].removeprefix(b" ") for line in lines if line[4:5] == b":"]
    return b"\n".join(found) if found else None


_LINES: Final = 2
"""Line ends of nearly all frames: one line of data, and the blank one."""

BLANK: Final = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r)")
"""The end of a frame."""

LONGEST_BLANK: Final = 3
"""Bytes of two line ends if the last byte has not come yet."""

_ENDS: Final = re.compile(rb"\r\n|\n|\r")
_JSON: Final = msgspec.json.Decoder()
