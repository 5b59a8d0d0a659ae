"""Reading HTTP/1.1 as the bench's own ends need it: a request whole, an answer as it comes.

Bytes in, values out; it knows no sockets and no clock. Not for the open net: both ends are ours, or
a proxy between them, and bodies hold no bare carriage return.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

END: Final = b"\r\n\r\n"
LAST: Final = b"\r\n0\r\n\r\n"
EVENT: Final = b"\n\n"
"""What ends an event of a stream (SSE, as the fake upstream writes it)."""


class Request(NamedTuple):
    """A request; names of headers in small letters."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


class Requests:
    """Cuts what a connection receives into requests."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._head: tuple[str, str, dict[str, str]] | None = None

    def feed(self, data: bytes) -> None:
        """Take bytes as they come."""
        self._held += data

    def take(self) -> Request | None:
        """Return the next request once all of it is here."""
        if self._head is None:
            at = self._held.find(END)
            if at < 0:
                return None
            self._head = _request_head(bytes(self._held[:at]))
            del self._held[: at + len(END)]
        method, path, headers = self._head
        body = self._body(headers)
        if body is None:
            return None
        self._head = None
        return Request(method, path, headers, body)

    def _body(self, headers: Mapping[str, str]) -> bytes | None:
        if headers.get("transfer-encoding", "").lower() == "chunked":
            return self._chunked()
        size = int(headers.get("content-length", "0"))
        if len(self._held) < size:
            return None
        body = bytes(self._held[:size])
        del self._held[:size]
        return body

    def _chunked(self) -> bytes | None:
        at, parts = 0, []
        while (line := self._held.find(b"\r\n", at)) >= 0:
            size = int(self._held[at:line].split(b";")[0], 16)
            start, at = line + 2, line + 4 + size
            if len(self._held) < at:
                return None
            parts.append(bytes(self._held[start : start + size]))
            if not size:
                del self._held[:at]
                return b"".join(parts)
        return None


class Answer:
    """One answer as it comes; how many events of a stream are in it, and where it ends."""

    def __init__(self) -> None:
        self.status = 0
        self.events = 0
        self.ended = False
        self.closes = False
        self._head = b""
        self._left: int | None = None
        self._seen = b""

    @property
    def begun(self) -> bool:
        """Whether its head is here."""
        return self.status > 0

    def feed(self, data: bytes) -> int:
        """Take bytes as they come; return how many events they end.

        Raises:
            ValueError: what came is no answer.
        """
        if not self.status:
            self._head += data
            at = self._head.find(END)
            if at < 0:
                return 0
            data = self._head[at + len(END) :]
            self._begin(self._head[:at])
            self._seen = b"\r\n"  # an empty body is a last chunk without one before
        if self._left is not None:
            self._left -= len(data)
            self.ended = self._left <= 0
            return 0
        # A few bytes of the read before are kept: an event or the end may lie across two reads.
        before = self._seen.count(EVENT)
        joined = self._seen + data
        self.ended = joined.endswith(LAST)
        found = joined.count(EVENT) - before
        self._seen = joined[-len(LAST) :]
        self.events += found
        return found

    def _begin(self, head: bytes) -> None:
        first, *lines = head.decode("latin-1").split("\r\n")
        version, status, *_ = first.split(" ")
        if not version.startswith("HTTP/1."):
            raise ValueError(f"no HTTP/1 answer: {first[:80]!r}")
        headers = _headers(lines)
        self.status = int(status)
        self.closes = headers.get("connection", "").lower() == "close"
        if "chunked" not in headers.get("transfer-encoding", ""):
            self._left = int(headers.get("content-length", "0"))


def _request_head(head: bytes) -> tuple[str, str, dict[str, str]]:
    first, *lines = head.decode("latin-1").split("\r\n")
    method, target, _ = first.split(" ")
    return method, target.split("?")[0], _headers(lines)


def _headers(lines: list[str]) -> dict[str, str]:
    pairs = (line.partition(":") for line in lines)
    return {name.strip().lower(): value.strip() for name, _, value in pairs}
