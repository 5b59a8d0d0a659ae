"""The bounds of a connection: heads and bodies that do not come are not waited for."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import uvicorn

from tests.proxy.sockets import Line, request
from ullage.cli import listening


class Answering:
    """Answers once the body is there, and to `/held` once it is let go."""

    def __init__(self) -> None:
        self.let_go = threading.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            continue
        if scope["path"] == "/held":
            await asyncio.to_thread(self.let_go.wait, 30)
        sized = [(b"content-length", b"0")]
        await send({"type": "http.response.start", "status": 200, "headers": sized})
        await send({"type": "http.response.body"})


@pytest.fixture
def app() -> Answering:
    return Answering()


@pytest.fixture
def port(app: Answering, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setattr(listening, "HEAD_S", 0.1)
    monkeypatch.setattr(listening, "BODY_S", 0.1)
    settings = uvicorn.Config(app, http=listening.Bounded, lifespan="off", log_config=None)
    server = uvicorn.Server(settings)
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
