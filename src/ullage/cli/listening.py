"""HTTP for uvicorn, with limits on what a client may use: bytes, time, connections.

uvicorn itself limits only idle connections. An offer to change the protocol is ignored. The module
does not know the content of requests or answers.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from ullage.proxy.journal import choose_id

log = logging.getLogger("ullage.serve")

AHEAD: Final = 16
"""Requests of a connection that may wait for the answers before theirs."""

FRESH_S: Final = 1
"""Seconds that a connection may stay silent at the end of the process: a new one whose request is
on its way, or one whose last answer did not announce the close."""

JOINED: Final = 65_536
"""Most bytes that are copied after a head, to be written together with it."""

SPARE: Final = 256
"""Extra connections that are still told that the limit is reached. Beyond them, the longest silent
connection is closed for a new one; without a silent connection, the new one is closed."""

SILENT_S: Final = 1.0
"""Seconds without a request before a connection may be closed to make room."""

CROWDED: Final = (
    b'{"error": {"code": "too_many_connections", "message": "too many connections are open here: '
    b'come again in 2 seconds"}}'
)


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """The limits of connections; times in seconds.

    `most` are open at once. `head_bytes` limits a head, trailers, or the text between two pieces of
    a body. `head_s` and `body_s` limit the time for a head and its body; `reader_s` the time in
    which a client reads nothing of its answer. Paths of `always` are answered beyond `most`; `tell`
    is called for each request that is not.
    """

    most: int = 2_000
    head_bytes: int = 65_536
    head_s: float = 30.0
    body_s: float = 120.0
    reader_s: float = 120.0
    always: tuple[str, ...] = ()
    tell: Callable[[str], None] | None = None


STANDARD: Final = ConnectionLimits()

MALFORMED: Final = (
    "what came is no request of HTTP/1.1: check its first line, its headers and its lengths, and "
    f"send at most {AHEAD} requests before their answers"
)
TOO_LARGE: Final = (
    "the head of the request is over {most:,} bytes: send fewer or shorter headers, or raise "
    "head_bytes in [serve]"
)

SPOKEN: Final = b"websocket"
"""A request for this protocol is passed on to the application, which refuses it."""


async def refuse_crowded(scope: Any, receive: Any, send: Any) -> None:
    """Tell a client that there are too many connections (ASGI), and close this one."""
    del scope, receive
    headers = (
        *(
            (b"content-type", b"application/json"),
            (b"retry-after", b"2"),
            (b"connection", b"close"),
        ),
        *((b"content-length", b"%d" % len(CROWDED)), (b"x-ullage-error", b"too_many_connections")),
    )
    await send({"type": "http.response.start", "status": 503, "headers": headers})
    await send({"type": "http.response.body", "body": CROWDED})


def _find_waiting(state: Any) -> dict[Any, float]:
    """Return the connections without a request, longest silent first, with the time since then."""
    waiting: dict[Any, float] | None = getattr(state, "waiting", None)
    if waiting is None:
        waiting = state.waiting = {}
    return waiting


def _make_way(waiting: dict[Any, float]) -> bool:
    """Close the longest silent connection; tell whether there was one."""
    first = next(iter(waiting), None)
    if first is None or first.loop.time() - waiting[first] < SILENT_S:
        return False
    del waiting[first]
    first.transport.abort()
    return True


def _write_refusal(code: str, text: str, name: str) -> bytes:
    """Return the answer to an invalid request, head and body."""
    body = json.dumps({"error": {"code": code, "message": text}}).encode()
    lines = (
        *("HTTP/1.1 400 Bad Request", "content-type: application/json"),
        *(f"content-length: {len(body)}", "connection: close"),
        *(f"x-ullage-error: {code}", f"x-ullage-request-id: {name}", "", ""),
    )
    return "\r\n".join(lines).encode("ascii") + body


class PlainParser:
    """uvicorn's parser, which treats a request that offers another protocol like any other.

    A server may ignore the offer (RFC 9110, 7.8), and Java's client makes one with each request.
    httptools would take the body for the other protocol, so the head is parsed again without the
    offer.
    """

    def __init__(self, connection: HttpToolsProtocol) -> None:
        self._to = connection
        # the connection gets all events without an offer
        self.on_message_begin, self.on_url = connection.on_message_begin, connection.on_url
        self.on_header, self.on_body = connection.on_header, connection.on_body
        self._begin()

    def _begin(self) -> None:
        inner = self._inner = httptools.HttpRequestParser(self)
        # text after the last request of a connection is left unread, as in uvicorn
        inner.set_dangerous_leniencies(lenient_data_after_close=True)
        self.get_method, self.get_http_version = inner.get_method, inner.get_http_version
        self.should_keep_alive, self.should_upgrade = inner.should_keep_alive, inner.should_upgrade
        self._offered = False

    def on_headers_complete(self) -> None:
        """Report a head, unless it is parsed again."""
        self._offered = self.should_upgrade() and any(
            name == b"upgrade" and value.strip().lower() != SPOKEN
            for name, value in self._to.headers
        )
        if not self._offered:
            self._to.on_headers_complete()

    def on_message_complete(self) -> None:
        """Report the end of a request, unless its head is parsed again."""
        if not self._offered:
            self._to.on_message_complete()

    def feed_data(self, data: bytes) -> None:
        """Parse more data. Raises the errors of httptools."""
        while data:
            try:
                self._inner.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                if not self._offered:
                    raise
                data = self._write_head() + data[upgrade.args[0] :]
                self._begin()
            else:
                return

    def close(self) -> None:
        """Break the reference cycle with the connection, which would keep memory in use."""
        vars(self).clear()

    def _write_head(self) -> bytes:
        """Return the parsed head without the offer of another protocol."""
        method, version = self.get_method(), self.get_http_version().encode()
        lines = [b"%s %s HTTP/%s" % (method, self._to.url, version)]
        lines += [b"%s: %s" % pair for pair in self._to.headers if pair[0] != b"upgrade"]
        return b"\r\n".join((*lines, b"", b""))


class UnchunkedAnswers:
    """An application that ends answers without a length by closing the connection.

    HTTP/1.0 needs that: its clients know no chunks (RFC 9112, 6.1), but uvicorn writes them to all
    clients. `cycle` is uvicorn's side of the request.
    """

    cycle: RequestResponseCycle

    def __init__(self, application: Any) -> None:
        self._application = application

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request (ASGI)."""
        unsized = False

        async def write(message: Any) -> None:
            nonlocal unsized
            if message["type"] == "http.response.start":
                names = {bytes(name).lower() for name, _ in message.get("headers", ())}
                unsized = b"content-length" not in names
                if unsized:
                    self.cycle.chunked_encoding = False
            elif unsized:  # each piece counts as the whole length
                self.cycle.expected_content_length = len(message.get("body", b""))
            await send(message)

        await self._application(scope, receive, write)


class JoinedWrites:
    """A transport that writes the head of an answer and its body in one call.

    uvicorn writes them separately, which costs a system call and makes a client read twice. A head
    without a body goes out in the next turn of the loop.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._to, self._soon = transport, loop.call_soon
        self._head = b""
        self.is_closing, self.get_extra_info = transport.is_closing, transport.get_extra_info
        self.pause_reading, self.resume_reading = transport.pause_reading, transport.resume_reading
        self.abort = transport.abort

    def __getattr__(self, name: str) -> Any:
        return getattr(self._to, name)

    def write(self, data: bytes) -> None:
        """Write the data, after the waiting head."""
        head = self._head
        if head:
            self._head = b""
            if len(data) > JOINED:
                self._to.write(head)
            else:
                data = head + data
        elif data[:7] == b"HTTP/1.":
            self._head = data
            self._soon(self.flush)
            return
        self._to.write(data)

    def writelines(self, data: Iterable[bytes]) -> None:
        """Write pieces in one call."""
        self.write(b"".join(data))

    def flush(self) -> None:
        """Write the waiting head, if any."""
        head, self._head = self._head, b""
        if head and not self.is_closing():
            self._to.write(head)

    def close(self) -> None:
        """Close after the pending data."""
        self.flush()
        self._to.close()


class Bounded(HttpToolsProtocol):
    """A connection that closes if a head is too large or a request too slow."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.parser = PlainParser(self)  # type: ignore[assignment]  # it stands in its place
        self._limits: ConnectionLimits = getattr(self.server_state, "limits", STANDARD)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin, and wait for the first head."""
        self._unread = 0
        self._is_reading = self._told = False
        self._bound_s: float | None = None
        self._limit: asyncio.TimerHandle | None = None
        self._reading: asyncio.TimerHandle | None = None
        self._under_way: list[RequestResponseCycle] = []
        self._ends_itself = False
        super().connection_made(JoinedWrites(transport, self.loop))  # type: ignore[arg-type]
        self._within(self._limits.head_s)
        waiting = _find_waiting(self.server_state)
        waiting[self] = self.loop.time()
        if len(self.connections) > self._limits.most + SPARE and not _make_way(waiting):
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell every request that its client is gone; uvicorn tells only the last one."""
        _find_waiting(self.server_state).pop(self, None)
        self._within(None)
        self.resume_writing()
        self._leave()
        self._unset_keepalive_if_required()  # uvicorn does so only after an orderly end
        parser = self.parser
        super().connection_lost(exc)
        parser.close()  # type: ignore[attr-defined]  # the one that stands in its place

    def pause_writing(self) -> None:
        """Wait for the client to read; abort the connection after `reader_s` without reading."""
        super().pause_writing()
        self._reading = self.loop.call_later(self._limits.reader_s, self.transport.abort)

    def resume_writing(self) -> None:
        """Continue, since the client reads."""
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        """Read data; bytes outside of bodies count until a head is complete."""
        self._unread += len(data)
        self._is_reading, self._told = True, False
        waiting = _find_waiting(self.server_state)
        if waiting.pop(self, None) is not None:
            waiting[self] = self.loop.time()
        try:
            self._read(data)
        finally:
            self._is_reading = False
        if self.transport.is_closing():
            return
        if self._told:
            self._within(self._bound_s)
        if self._unread > self._limits.head_bytes:
            self._refuse("head_too_large", TOO_LARGE.format(most=self._limits.head_bytes))
        elif self._limit is None and not self._answering():
            self._within(self._limits.head_s)

    def _read(self, data: bytes) -> None:
        """Do the same as uvicorn's `data_received`, except for the answer to an invalid request."""
        self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:  # a WebSocket's: the application refuses it
            pass
        except httptools.HttpParserError:
            self._refuse("malformed_request", MALFORMED)

    def on_message_begin(self) -> None:
        """Wait for the head."""
        self._within(self._limits.head_s)
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Wait for the body. An error raised here closes the connection."""
        ahead = self._answering()
        if len(ahead) > AHEAD:
            raise ValueError(f"more than {AHEAD} requests at once")
        self._unread = 0
        self._within(self._limits.body_s)
        _find_waiting(self.server_state).pop(self, None)
        self.app = self._find_application()
        if self.parser.get_http_version() == "1.0":
            self.app = UnchunkedAnswers(self.app)
        super().on_headers_complete()
        if isinstance(self.app, UnchunkedAnswers):
            self.app.cycle = self.cycle
        self._under_way = [*ahead, self.cycle]
        if getattr(self.server_state, "is_leaving", False):
            self.leave()

    def on_body(self, body: bytes) -> None:
        """Take a piece of the body."""
        self._unread = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Stop the timer: the answer comes next."""
        self._unread = 0
        self._within(None)
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Wait for the next request; the connection counts as silent until then."""
        super().on_response_complete()
        if not self._answering() and not self.transport.is_closing():
            _find_waiting(self.server_state)[self] = self.loop.time()

    def leave(self) -> None:
        """Close after the next answer that can still announce it, before the process ends.

        If nothing announced the close, wait a moment for another request: a client that expects an
        open connection sends it at once, and could not know why it got no answer.
        """
        answering = self._answering()
        self._ends_itself |= bool(answering)
        self.timeout_keep_alive = FRESH_S
        for cycle in answering:
            if not cycle.response_started:
                cycle.keep_alive = False

    def shutdown(self) -> None:
        """Close with the process: after the answer, or when no request is on its way."""
        self.leave()
        if self._answering():
            return
        if self._limit is not None:
            self._within(self._limits.head_s if self._under_way else FRESH_S)
        elif not self._ends_itself:
            super().shutdown()

    def _refuse(self, code: str, text: str) -> None:
        """Refuse an invalid request and close, but never in the middle of an answer."""
        name = choose_id(())
        log.warning("%s", text, extra={"fields": {"code": code, "request_id": name}})
        if not any(cycle.response_started for cycle in self._answering()):
            self.transport.write(_write_refusal(code, text, name))
        self.transport.close()
        self._leave()

    def _find_application(self) -> Any:
        """Return the application for a request, or the refusal for too many connections."""
        limits = self._limits
        crowded = len(self.connections) > limits.most
        if not crowded or _make_way(_find_waiting(self.server_state)):
            return self.config.loaded_app
        if self.url.partition(b"?")[0].decode("latin-1") in limits.always:
            return self.config.loaded_app
        if limits.tell is not None:
            limits.tell("most_connections")
        return refuse_crowded

    def _answering(self) -> list[RequestResponseCycle]:
        return [cycle for cycle in self._under_way if not cycle.response_complete]

    def _leave(self) -> None:
        for cycle in self._answering():
            cycle.disconnected = True
            cycle.message_event.set()

    def _within(self, seconds: float | None) -> None:
        """Close the connection after some time, or cancel that.

        While a piece is read, only the last call counts, since most requests come in one piece.
        """
        if self._is_reading:
            self._told, self._bound_s = True, seconds
            return
        if self._limit is not None:
            self._limit.cancel()
        self._limit = None if seconds is None else self.loop.call_later(seconds, self._late)

    def _late(self) -> None:
        self._limit = None
        ahead = [cycle for cycle in self._answering() if not cycle.more_body]
        if ahead:
            self._within(self._limits.head_s)  # the answer takes its time
        else:
            self.transport.close()
            self._leave()
