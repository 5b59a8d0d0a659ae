"""A small HTTP server that plays scripted answers: the faults that a real server will not show.

It listens on the loopback interface in threads of this process, keeps what it was asked, and
never fills the memory or outlives its `with` block. It knows nothing of llama.cpp or of any
protocol above HTTP; `recording` feeds it with answers that real servers gave.
"""

from __future__ import annotations

import http.server
import json
import socket
import struct
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

_MAX_BODY_BYTES = 8 << 20
_MAX_REQUESTS = 10_000
_JSON = "application/json; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Answer:
    """Script one answer: `blocks` are written one by one, `pause_s` seconds apart.

    With `hang` the request is read and never answered, with `drop` the connection is closed
    instead. `cut` closes the connection after the blocks although more bytes were promised;
    `reset` does so with a TCP reset.
    """

    status: int = 200
    blocks: tuple[bytes, ...] = (b"",)
    content_type: str = _JSON
    pause_s: float = 0.0
    hang: bool = False
    cut: bool = False
    drop: bool = False
    reset: bool = False


@dataclass(frozen=True, slots=True)
class Request:
    """Keep what was asked: header names are in lower case, `path` includes the query."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


Script = Answer | tuple[Answer, ...]


def of_json(value: Any, status: int = 200) -> Answer:  # the JSON edge
    """Answer with `value` as JSON."""
    return Answer(status, (json.dumps(value).encode(),))


def html(status: int = 200) -> Answer:
    """Answer with a web page, as a proxy's login form or a wrong port would."""
    page = b"<!doctype html><html><head><title>Sign in</title></head><body></body></html>"
    return Answer(status, (page,), "text/html; charset=utf-8")


def loading() -> Answer:
    """Answer 503 in the words of a llama.cpp server that still loads its model."""
    error = {"message": "Loading model", "type": "unavailable_error", "code": 503}
    return of_json({"error": error}, 503)


def hanging() -> Answer:
    """Accept the request and never answer."""
    return Answer(hang=True)


def drip(body: bytes, *, block: int = 1, pause_s: float = 0.01) -> Answer:
    """Send `body` in pieces of `block` bytes, `pause_s` seconds apart."""
    pieces = tuple(body[at : at + block] for at in range(0, len(body), block))
    return Answer(blocks=pieces, pause_s=pause_s)


def cut_short(body: bytes) -> Answer:
    """Send `body`, promise one byte more, and close the connection."""
    return Answer(blocks=(body,), cut=True)


def dropped() -> Answer:
    """Accept the request and close the connection without a word."""
    return Answer(drop=True)


def sse(*events: Any, **how: Any) -> Answer:
    """Stream each value as a server-sent event, named by its `type` if it has one.

    `how` are further fields of the Answer, such as `cut=True`.
    """
    return Answer(200, tuple(map(_event, events)), "text/event-stream", **how)


def _event(value: Any) -> bytes:
    name = value.get("type") if isinstance(value, Mapping) else None
    line = f"event: {name}\n" if name else ""
    text = value if isinstance(value, str) else json.dumps(value)
    return f"{line}data: {text}\n\n".encode()


@contextmanager
def closed_port() -> Iterator[int]:
    """Yield a loopback port that refuses every connection, and stays reserved meanwhile."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield int(held.getsockname()[1])


class FaultServer:
    """Serve `routes` while its `with` block lasts.

    A key is a path with its query, if any, and may begin with a method (`POST /v1/x`). A key that
    ends in `*` stands for all that begin like it; the longest such key is taken, and only if none
    fits exactly. What no key names gets a 404 in llama.cpp's words. A tuple of answers is played
    in order, and its last one stays.
    """

    def __init__(self, routes: Mapping[str, Script]) -> None:
        self._routes = {
            key: script if isinstance(script, tuple) else (script,)
            for key, script in routes.items()
        }
        empty = [key for key, script in self._routes.items() if not script]
        if empty:
            raise ValueError(f"these routes have no answer at all: {', '.join(empty)}")
        self._played: dict[str, int] = {}
        self._asked: list[Request] = []
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self._http = _Http(self)
        self._thread = threading.Thread(
            target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ending.set()
        self._http.shutdown()
        self._http.hang_up()
        self._http.server_close()
        self._thread.join()

    @property
    def root_url(self) -> str:
        """The address, `http://127.0.0.1:PORT`."""
        return f"http://127.0.0.1:{self._http.server_port}"

    @property
    def base_url(self) -> str:
        """The base URL that OpenAI clients take: the address and `/v1`."""
        return f"{self.root_url}/v1"

    @property
    def requests(self) -> tuple[Request, ...]:
        """What was asked so far, in order; the first 10,000 requests are kept."""
        with self._lock:
            return tuple(self._asked)

    def take(self, request: Request) -> Answer:
        """Note `request` and return the answer it gets."""
        with self._lock:
            if len(self._asked) < _MAX_REQUESTS:
                self._asked.append(request)
            key = self._key(request)
            if key is not None:
                script = self._routes[key]
                turn = self._played.get(key, 0)
                self._played[key] = turn + 1
                return script[min(turn, len(script) - 1)]
        return of_json(
            {"error": {"message": "File Not Found", "type": "not_found_error", "code": 404}}, 404
        )

    def _key(self, request: Request) -> str | None:
        names = (f"{request.method} {request.path}", request.path)
        for name in names:
            if name in self._routes:
                return name
        stems = sorted((key for key in self._routes if key.endswith("*")), key=len, reverse=True)
        for stem in stems:
            if any(name.startswith(stem[:-1]) for name in names):
                return stem
        return None

    def pause(self, seconds: float | None) -> bool:
        """Wait for `seconds` (None: for ever); tell whether the server is ending."""
        return self._ending.wait(seconds)


class _Http(http.server.ThreadingHTTPServer):
    # Threads that are joined at the end cannot leak into the next test.
    daemon_threads = False
    block_on_close = True

    def __init__(self, owner: FaultServer) -> None:
        self.owner = owner
        self._open: set[socket.socket] = set()
        self._resets: set[socket.socket] = set()
        self._guard = threading.Lock()
        super().__init__(("127.0.0.1", 0), _Handler)

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, address = super().get_request()
        with self._guard:
            self._open.add(connection)
        return connection, address

    def shutdown_request(self, request: Any) -> None:
        with self._guard:
            self._open.discard(request)
            reset = request in self._resets
            self._resets.discard(request)
        if reset:  # no farewell before the reset
            self.close_request(request)
        else:
            super().shutdown_request(request)

    def reset(self, connection: socket.socket) -> None:
        """Have a connection end in a reset: a lingering time of zero (socket(7), SO_LINGER)."""
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        with self._guard:
            self._resets.add(connection)

    def hang_up(self) -> None:
        """Wake every thread that waits for its client."""
        with self._guard:
            for connection in self._open:
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    # The client was faster.
                    continue

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Stay silent about clients that leave: in these tests they are meant to."""


class _Handler(http.server.BaseHTTPRequestHandler):
    disable_nagle_algorithm = True  # else each answer waits for an ACK: 40 ms
    protocol_version = "HTTP/1.1"
    server: _Http

    def log_message(self, *args: object) -> None:
        """Keep the test's output clean; `FaultServer.requests` has it all."""

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def _answer(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        if size > _MAX_BODY_BYTES:
            self.close_connection = True
            self.send_error(413)
            return
        headers = {name.lower(): value for name, value in self.headers.items()}
        body = self.rfile.read(size)
        answer = self.server.owner.take(Request(self.command, self.path, headers, body))
        if answer.hang or answer.drop:
            if answer.hang:
                self.server.owner.pause(None)
            self.close_connection = True
            return
        self._write(answer)

    def _write(self, answer: Answer) -> None:
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content_type)
        broken = answer.cut or answer.reset
        promised = sum(map(len, answer.blocks)) + broken
        self.send_header("Content-Length", str(promised))
        self.end_headers()
        for block in answer.blocks:
            if answer.pause_s and self.server.owner.pause(answer.pause_s):
                break
            self.wfile.write(block)
        if answer.reset:
            self.server.reset(self.connection)
        if broken:
            self.close_connection = True
