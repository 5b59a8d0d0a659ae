"""A stream of events on its way to the client: the bytes as they came, and what they tell.

Frames end at a blank line, lines at LF, CR or CRLF and nowhere else (HTML Standard, server-sent
events). Nothing is held back but the frame that the proxy itself asked for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final, Protocol

import msgspec

from ullage.core.dialects.sse import Garbled
from ullage.proxy import ollama
from ullage.proxy.ollama import Frames
from ullage.sdk.streams import Tracker

MOST: Final = 16 * 1024 * 1024
"""Bytes of a frame; what is larger is relayed and no longer read."""


class Watch(Protocol):
    """A stream that is watched as it passes."""

    @property
    def begun(self) -> bool:
        """Whether content has come."""
        ...

    @property
    def ended(self) -> bool:
        """Whether the terminal event has come."""
        ...

    @property
    def known(self) -> bool:
        """Whether the stream has a terminal event, and was read so far."""
        ...

    @property
    def failed(self) -> Any:
        """The error in the place of an answer, or None."""
        ...

    @property
    def report(self) -> Any:
        """What was told of usage, or None."""
        ...

    @property
    def events(self) -> int:
        """How many events have come, those that say nothing among them."""
        ...

    def feed(self, chunk: bytes) -> bytes:
        """Take the next bytes; return those that go on to the client now."""
        ...

    def rest(self) -> bytes:
        """Return what is left when the stream has ended."""
        ...

    def cut(self, text: str) -> bytes:
        """Return what tells the client that the stream stopped before its end."""
        ...


class Lines:
    """Lines of JSON, as Ollama writes them, on their way: nothing is ever held back."""

    def __init__(self) -> None:
        self._frames = Frames()
        self._last = b""
        self.events = 0
        self.known = True

    @property
    def begun(self) -> bool:
        """Whether content has come."""
        return self._frames.begun

    @property
    def ended(self) -> bool:
        """Whether the terminal line has come."""
        return self._frames.ended

    @property
    def failed(self) -> Any:
        """The error that came in its place, or None."""
        return self._frames.failed

    @property
    def report(self) -> Any:
        """What the terminal line told, or None."""
        return self._frames.report

    def feed(self, chunk: bytes) -> bytes:
        """Take the next bytes; all of them go on."""
        if self.known:
            try:
                self.events += len(self._frames.feed(chunk))
            except (Garbled, RecursionError):
                self.known = False  # a line beyond all bounds: relayed, and no longer read
        self._last = chunk[-1:] or self._last
        return chunk

    def rest(self) -> bytes:
        """Read what is left; it has gone on already."""
        try:
            self._frames.rest()
        except RecursionError:
            self.known = False
        return b""

    def cut(self, text: str) -> bytes:
        """Return the line that tells the client of a stream that broke off."""
        return ollama.broken_off(text, self._last)


class Relay:
    """What one stream tells as its bytes pass.

    With `spliced` the proxy asked for the report of usage: the frame that holds it and nothing
    else is left out.
    """

    def __init__(self, dialect: str, *, spliced: bool = False) -> None:
        self.tracker = Tracker()
        self.events = 0
        self._dialect = dialect
        self._spliced = spliced
        self._tail = b""
        self._sent = 0
        self._deaf = False
        self._open = False
        self._done = False

    @property
    def begun(self) -> bool:
        """Whether content has come."""
        return self.tracker.begun

    @property
    def ended(self) -> bool:
        """Whether the terminal event has come."""
        return self.tracker.ended or self._done

    @property
    def known(self) -> bool:
        """Whether all of it was read: then an end without a terminal event is none."""
        return not self._deaf

    @property
    def failed(self) -> Any:
        """The error event, or None."""
        return self.tracker.failed

    @property
    def report(self) -> Any:
        """What was told of usage, or None."""
        return self.tracker.report

    def cut(self, text: str) -> bytes:
        """Return what tells the client of a stream that broke off, an open frame ended first."""
        left = self.rest()
        return left + (b"\n\n" if self._open else b"") + broken_off(self._dialect, text)

    def feed(self, chunk: bytes) -> bytes:
        """Take the next bytes; return those that go on to the client now."""
        if self._deaf:
            return chunk
        if not self._tail and _one(chunk):
            return b"" if self._told(chunk) and self._spliced else chunk
        data = self._tail + chunk if self._tail else chunk
        out: list[bytes] = []
        start, sent = 0, self._sent
        for found in _BLANK.finditer(data, max(len(self._tail) - LONGEST_BLANK, 0)):
            stop = found.end()
            if stop == len(data) and data.endswith(b"\r"):
                break  # a line feed may follow: the frame ends there
            frame = data[start:stop]
            if not (self._told(frame) and self._spliced and not sent):
                out.append(data[start + sent : stop])
            start, sent = stop, 0
        self._tail = data[start:]
        if self._spliced and self.tracker.ended:
            self._sent = sent  # the frame with the usage comes next: it goes out whole, or not
        else:
            out.append(self._tail[sent:])
            self._sent = len(self._tail)
        if len(self._tail) > MOST:
            out.append(self._tail[self._sent :])
            self._tail, self._sent = b"", 0
            self._deaf = self._open = True
        return b"".join(out)

    def rest(self) -> bytes:
        """Return what is left when the stream has ended: an unfinished frame as it is.

        Servers forget the blank line behind the last frame: it is read all the same.
        """
        tail, sent = self._tail, self._sent
        self._tail, self._sent = b"", 0
        if not tail:
            return b""
        if self._told(tail) and self._spliced and not sent:
            return b""
        self._open = _BLANK.search(tail) is None
        return tail[sent:]

    def _told(self, frame: bytes) -> bool:
        """Read a frame; tell whether it holds the report of usage and nothing else."""
        self.events += 1
        if self.tracker.begun and _TELLING.search(frame) is None:
            return False  # content, and no first one: it tells nothing more
        data = _data(frame)
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


def _data(frame: bytes) -> bytes | None:
    """Return the data of a frame, None where it has none (a comment, a name alone)."""
    if frame.startswith(b"data: ") and frame.count(b"\n") == _LINES and b"\r" not in frame:
        return frame[6:-2]
    lines = [line for line in _ENDS.split(frame) if line.startswith(b"data")]
    found = [line[5:].removeprefix(b" ") for line in lines if line[4:5] == b":"]
    return b"\n".join(found) if found else None


_TELLING: Final = re.compile(
    rb'"finish_reason"\s*:\s*"|"usage"\s*:\s*\{|"timings"|"error"|\[DONE\]|message_|'
    rb"response\.(?:completed|incomplete|failed)"
)
"""What a frame has that tells of an end, a report or an error; its text may have it too."""

_LINES: Final = 2
"""Line ends of the frame that nearly all are: one line of data, and the blank one."""

_BLANK: Final = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r)")
LONGEST_BLANK: Final = 3
"""Bytes of two line ends of which the last is not there yet."""

_ENDS: Final = re.compile(rb"\r\n|\n|\r")
_JSON: Final = msgspec.json.Decoder()


def broken_off(dialect: str, text: str) -> bytes:
    """Return the event by which a client learns that the stream stopped before its end."""
    if dialect == "anthropic":
        error = {"type": "error", "error": {"type": "api_error", "message": text}}
        return b"event: error\ndata: " + json.dumps(error).encode("ascii") + b"\n\n"
    if dialect == "openai_responses":
        failed = {"type": "error", "code": "server_error", "message": text, "param": None}
        return b"event: error\ndata: " + json.dumps(failed).encode("ascii") + b"\n\n"
    told: dict[str, Any] = {"message": text, "type": "server_error", "code": "upstream_broken"}
    return b"data: " + json.dumps({"error": told}).encode("ascii") + b"\n\n"
