"""HTTP as uvicorn reads it, with bounds on what a client may take: bytes, time, and its turn.

uvicorn bounds idle connections alone. What is asked, and what is answered, is not known here.
"""

from __future__ import annotations

import asyncio
from typing import Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

HEAD_BYTES: Final = 65_536
"""Bytes of a head, of trailers, or between two pieces of a body; counted as they are received."""

AHEAD: Final = 16
"""Requests that may wait on a connection for the answers before theirs."""

HEAD_S: Final = 30.0
BODY_S: Final = 600.0
"""In what time a head has come, and then its body."""


class Bounded(HttpToolsProtocol):
    """A connection that ends where a head is too large or a request too slow."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin: the first head is waited for."""
        self._unread = 0
        self._limit: asyncio.TimerHandle | None = None
        self._under_way: list[RequestResponseCycle] = []
        super().connection_made(transport)
        self._within(HEAD_S)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell every request that its client is gone; uvicorn tells the last one."""
        self._within(None)
        self._leave()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read; what is of no body counts until a head is whole."""
        self._unread += len(data)
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._unread > HEAD_BYTES:
            self.send_400_response("The head of the request is too large.")
        elif self._limit is None and not self._answering():
            self._within(HEAD_S)

    def on_message_begin(self) -> None:
        """Wait for the head."""
        self._within(HEAD_S)
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Wait for the body. What is raised here ends the connection."""
        if len(self._answering()) > AHEAD:
            raise ValueError(f"more than {AHEAD} requests at once")
        self._unread = 0
        self._within(BODY_S)
        super().on_headers_complete()
        self._under_way = [*self._answering(), self.cycle]

    def on_body(self, body: bytes) -> None:
        """Take a piece of the body."""
        self._unread = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Wait for nothing: the next to come is the answer."""
        self._unread = 0
        self._within(None)
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no request, and hang up; never in the middle of an answer."""
        if any(cycle.response_started for cycle in self._answering()):
            self.transport.close()
        else:
            super().send_400_response(msg)
        self._leave()

    def _answering(self) -> list[RequestResponseCycle]:
        return [cycle for cycle in self._under_way if not cycle.response_complete]

    def _leave(self) -> None:
        for cycle in self._answering():
            cycle.disconnected = True
            cycle.message_event.set()

    def _within(self, seconds: float | None) -> None:
        """Have the connection end after some time, or not."""
        if self._limit is not None:
            self._limit.cancel()
        self._limit = None if seconds is None else self.loop.call_later(seconds, self._late)

    def _late(self) -> None:
        self._limit = None
        ahead = [cycle for cycle in self._answering() if not cycle.more_body]
        if ahead:
            self._within(HEAD_S)  # it is an answer that takes its time
        else:
            self.transport.close()
            self._leave()
