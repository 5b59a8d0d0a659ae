"""The bounds of a connection: heads and bodies that do not come are not waited for."""

from __future__ import annotations

import asyncio
import gc
import json
import socket
import struct
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
import uvicorn

from tests.proxy.sockets import Line, request
from ullage.cli import listening
from ullage.cli.leaving import LeavingServer
from ullage.cli.listening import JOINED, ConnectionLimits, JoinedWrites


class Answering:
    """Answers once the body is there, and to `/held` once it is let go."""

    def __init__(self) -> None:
        self.let_go = threading.Event()
        self.written = 0
        self.ended = threading.Event()

    async def _answer_long(self, receive: Any, send: Any) -> None:
        """Send up to 256 MiB, as fast as they are read, while the client is there."""
        gone = asyncio.ensure_future(receive())
        try:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            for _ in range(4096):
                await asyncio.sleep(0)
                if gone.done():
                    break
                await send({"type": "http.response.body", "body": b"x" * 65_536, "more_body": True})
                self.written += 65_536
        finally:
            self.ended.set()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            continue
        if scope["path"] == "/held":
            await asyncio.to_thread(self.let_go.wait, 30)
        if scope["path"] == "/long":
            await self._answer_long(receive, send)
            return
        if scope["path"] == "/pieces":
            await send({"type": "http.response.start", "status": 200})
            for piece in (b"HTTP/1.0 knows ", b"", b"no chunks"):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body"})
            return
        sized = [(b"content-length", b"0")]
        await send({"type": "http.response.start", "status": 200, "headers": sized})
        await send({"type": "http.response.body"})


@pytest.fixture
def app() -> Answering:
    return Answering()


@pytest.fixture
def port(app: Answering) -> Iterator[int]:
    with serving(app, ConnectionLimits(head_s=0.1, body_s=0.1)) as found:
        yield found


@contextmanager
def serving(app: Answering, limits: ConnectionLimits, alive_s: int = 5) -> Iterator[int]:
    """Serve an application within limits; yield the port. `alive_s` is how long silence may be."""
    settings = uvicorn.Config(
        app, http=listening.Bounded, lifespan="off", log_config=None, timeout_keep_alive=alive_s
    )
    server = LeavingServer(settings, limits=limits)
    with socket.create_server(("127.0.0.1", 0)) as bound:
        thread = threading.Thread(target=server.run, args=([bound],))
        thread.start()
        try:
            yield int(bound.getsockname()[1])
        finally:
            app.let_go.set()
            server.should_exit = True
            thread.join(30)


@pytest.mark.parametrize(
    ("sent", "code", "said"),
    [
        (b"\0rubbish\r\n\r\n", "malformed_request", "is no request of HTTP/1.1: check"),
        (
            b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 70_000,
            "head_too_large",
            "65,536 byt",
        ),
    ],
)
def test_what_is_no_request_is_answered_and_logged_with_one_id(
    port: int, sent: bytes, code: str, said: str, caplog: pytest.LogCaptureFixture
):
    with Line(port) as line:
        line.send(sent)
        (reply,) = line.read(until=0)
    told = json.loads(reply.body)["error"]
    assert (reply.status, reply.get("x-ullage-error"), told["code"]) == (400, code, code)
    assert said in told["message"]
    (record,) = [one for one in caplog.records if one.levelname == "WARNING"]
    assert record.name == "ullage.serve"
    assert record.fields["request_id"] == reply.get("x-ullage-request-id")  # type: ignore[attr-defined]


@pytest.mark.slow
@pytest.mark.parametrize(
    "begun",
    [
        b"",
        b"\r\n",
        b"GET / HTTP/1.1\r\nHost: ",
        request("POST", "/", b"body")[:-1],
        request("GET", "/") + b"GET /",
        request("GET", "/") + b"\r\n",
    ],
    ids=["nothing", "a blank line", "half a head", "half a body", "half a second", "a blank more"],
)
def test_what_does_not_come_is_not_waited_for(port: int, begun: bytes):
    with Line(port) as line:
        line.send(begun)
        found = line.read(until=0)
    assert all(reply.closed for reply in found)
    assert len(found) == begun.startswith(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")


def test_an_answer_that_takes_its_time_is_waited_for(port: int, app: Answering):
    with Line(port) as line:
        line.send(request("GET", "/held") + b"GET / HTTP/1.1\r\nHost: localhost\r\n")
        assert line.read(wait_s=0.5) == []  # several times the bound
        line.send(b"\r\n")  # before the answer is let go, which starts the bound of this head
        app.let_go.set()
        assert [reply.status for reply in line.read(until=2)] == [200, 200]


@pytest.mark.parametrize("more", [(), ("Connection: keep-alive",)], ids=["plain", "kept open"])
def test_an_answer_without_a_length_ends_with_the_connection_of_an_old_client(
    port: int, more: tuple[str, ...]
):
    old = request("GET", "/pieces", b"", *more).replace(b"HTTP/1.1", b"HTTP/1.0")
    with Line(port) as line:
        line.send(old)
        (reply,) = line.read(until=0)
    assert (reply.status, reply.body) == (200, b"HTTP/1.0 knows no chunks")
    assert reply.get("transfer-encoding") is None
    assert (reply.get("connection"), reply.closed) == ("close", True)


def test_an_answer_with_a_length_keeps_it_for_an_old_client(port: int):
    with Line(port) as line:
        line.send(request("GET", "/").replace(b"HTTP/1.1", b"HTTP/1.0"))
        (reply,) = line.read(until=0)
    assert (reply.status, reply.get("content-length"), reply.closed) == (200, "0", True)


def test_an_answer_without_a_length_comes_in_chunks_to_all_others(port: int):
    with Line(port) as line:
        line.send(request("GET", "/pieces", b"", "Connection: close"))
        (reply,) = line.read(until=0)
    assert reply.get("transfer-encoding") == "chunked"
    assert reply.body.endswith(b"9\r\nno chunks\r\n0\r\n\r\n")


def test_requests_ahead_of_their_turn_are_bounded(port: int, app: Answering):
    with Line(port) as line:
        line.send(request("GET", "/held") * (listening.AHEAD + 3))
        assert len(line.read(until=0)) <= 1  # a 400, and the end
    app.let_go.set()


def test_a_refusal_is_never_written_into_an_answer(port: int, app: Answering):
    with Line(port) as line:
        line.send(request("GET", "/held") + b"\0rubbish\r\n\r\n")
        found = line.read(until=0)
    assert [reply.status for reply in found] == [400]
    app.let_go.set()


def test_who_comes_when_it_is_crowded_is_told_and_the_others_go_on(app: Answering):
    told: list[str] = []
    limits = ConnectionLimits(most=3, always=("/healthz",), tell=told.append)
    with serving(app, limits) as port, ExitStack() as held:
        lines = [held.enter_context(Line(port)) for _ in range(5)]
        lines[3].send(request("GET", "/any"))
        (found,) = lines[3].read(until=0)
        assert (found.status, found.get("retry-after"), found.closed) == (503, "2", True)
        assert found.get("x-ullage-error") == found.json()["error"]["code"]
        assert told == ["most_connections"]
        lines[4].send(request("GET", "/healthz"))
        assert [reply.status for reply in lines[4].read()] == [200]
        lines[4].send(request("GET", "/any"))
        assert [reply.status for reply in lines[4].read(until=0)] == [503]
        lines[0].send(request("GET", "/any"))
        assert [reply.status for reply in lines[0].read()] == [200]


def test_far_beyond_the_most_nobody_is_held(app: Answering, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(listening, "SILENT_S", 60.0)  # nobody was silent for so long
    limits = ConnectionLimits(most=1)
    with serving(app, limits) as port, ExitStack() as held:
        lines = [held.enter_context(Line(port)) for _ in range(listening.SPARE + 2)]
        assert lines[-1].read(until=0) == []
        lines[0].send(request("GET", "/any"))
        assert [reply.status for reply in lines[0].read()] in ([200], [503])


def test_who_was_answered_and_is_silent_makes_way_too(
    app: Answering, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(listening, "SILENT_S", 0.05)
    with serving(app, ConnectionLimits(most=3)) as port, ExitStack() as held:
        lines = [held.enter_context(Line(port)) for _ in range(3)]
        for line in lines:
            line.send(request("GET", "/any"))
            assert [reply.status for reply in line.read()] == [200]
        threading.Event().wait(0.2)
        lines[0].send(b"GET / HTTP/1.1\r\nHost: ")  # on its way, if slowly
        with Line(port) as line:
            line.send(request("GET", "/any"))
            assert [reply.status for reply in line.read()] == [200]
        assert lines[1].read(until=0) == []
        lines[0].send(b"localhost\r\n\r\n")
        assert [reply.status for reply in lines[0].read()] == [200]


def test_who_is_silent_makes_way_for_who_asks(app: Answering, monkeypatch: pytest.MonkeyPatch):
    """One client that opens all connections and says nothing takes the server from nobody."""
    monkeypatch.setattr(listening, "SILENT_S", 0.05)
    limits = ConnectionLimits(most=3, always=("/healthz",))
    with serving(app, limits) as port, ExitStack() as held:
        silent = [held.enter_context(Line(port)) for _ in range(listening.SPARE + 3)]
        threading.Event().wait(0.2)
        for path in ("/any", "/healthz", "/any"):
            with Line(port) as line:
                line.send(request("GET", path))
                assert [reply.status for reply in line.read()] == [200]
        assert silent[0].read(until=0) == []  # the first that came was hung up on


def test_a_client_that_stops_reading_is_cut_off_and_little_is_written_ahead(app: Answering):
    with serving(app, ConnectionLimits(reader_s=0.2)) as port, Line(port) as line:
        line.send(request("GET", "/long"))
        assert app.ended.wait(30)
    assert app.written < 32 * 1024 * 1024  # what the system's own buffers take


def test_a_body_that_comes_byte_by_byte_is_not_waited_for(app: Answering):
    pause = threading.Event()
    with serving(app, ConnectionLimits(body_s=0.3)) as port, Line(port) as line:
        line.send(request("POST", "/", b"", "Content-Length: 1000", length=False))
        sent = 0
        while line.send(b"x") and sent < 300:
            sent += 1
            pause.wait(0.02)
        assert line.read(until=0) == []
    assert sent < 300


@pytest.mark.parametrize("path", ["/any", "/long"])
@pytest.mark.parametrize("resets", [False, True], ids=["in order", "by a reset"])
def test_what_a_client_that_left_took_is_free_without_a_collection(
    app: Answering, monkeypatch: pytest.MonkeyPatch, path: str, *, resets: bool
):
    made: list[weakref.ref[listening.Bounded]] = []

    class Noted(listening.Bounded):
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            made.append(weakref.ref(self))
            super().connection_made(transport)

    monkeypatch.setattr(listening, "Bounded", Noted)
    gc.collect()
    gc.disable()
    try:
        with serving(app, ConnectionLimits(), alive_s=60) as port:
            with socket.create_connection(("127.0.0.1", port)) as client:
                client.sendall(request("GET", path))
                assert client.recv(1_024)
                if resets:
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            until = time.monotonic() + 30  # less than a silent connection may stay
            while made[0]() is not None and time.monotonic() < until:
                time.sleep(0.01)
            assert made[0]() is None
    finally:
        gc.enable()


class _Written:
    """A transport that notes what is written at once."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.closed = False

    def write(self, data: bytes) -> None:
        self.pieces.append(data)

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def get_extra_info(self, name: str) -> str:
        return name

    abort = pause_reading = resume_reading = close


def test_the_head_of_an_answer_is_written_with_what_follows_it() -> None:
    async def write() -> list[bytes]:
        out = _Written()
        joined = JoinedWrites(out, asyncio.get_running_loop())  # type: ignore[arg-type]
        for data in (b"HTTP/1.1 200 OK\r\n\r\n", b"one", b"two"):
            joined.write(data)
        await asyncio.sleep(0)
        return out.pieces

    assert asyncio.run(write()) == [b"HTTP/1.1 200 OK\r\n\r\none", b"two"]


def test_a_head_that_nothing_follows_goes_out_by_itself() -> None:
    async def write() -> tuple[list[bytes], list[bytes], list[bytes]]:
        out = _Written()
        joined = JoinedWrites(out, asyncio.get_running_loop())  # type: ignore[arg-type]
        joined.write(b"HTTP/1.1 200 OK\r\n\r\n")
        before = list(out.pieces)
        await asyncio.sleep(0)
        joined.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        joined.write(b"x" * (JOINED + 1))
        between = list(out.pieces)
        joined.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        joined.close()
        joined.flush()
        return before, between, out.pieces[3:]

    before, between, last = asyncio.run(write())
    assert (before, [len(piece) for piece in between]) == ([], [19, 25, JOINED + 1])
    assert last == [b"HTTP/1.1 400 Bad Request\r\n\r\n"]


def test_pieces_that_are_written_at_once_stay_behind_the_head() -> None:
    async def write() -> list[bytes]:
        out = _Written()
        joined = JoinedWrites(out, asyncio.get_running_loop())  # type: ignore[arg-type]
        joined.write(b"HTTP/1.1 200 OK\r\n\r\n")
        joined.writelines([b"one", b"two"])
        return out.pieces

    assert asyncio.run(write()) == [b"HTTP/1.1 200 OK\r\n\r\nonetwo"]


def test_a_head_is_dropped_with_its_connection() -> None:
    async def write() -> list[bytes]:
        out = _Written()
        joined = JoinedWrites(out, asyncio.get_running_loop())  # type: ignore[arg-type]
        joined.write(b"HTTP/1.1 200 OK\r\n\r\n")
        joined.abort()
        await asyncio.sleep(0)
        return out.pieces

    assert asyncio.run(write()) == []
