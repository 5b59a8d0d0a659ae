"""The end of a web server: nobody who connected before it is left without an answer."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.proxy import balancing
from tests.proxy.balancing import Replica
from tests.proxy.serving import CHAT, WHOLE, talk
from tests.support.faults import FaultServer, of_json
from tests.support.waiting import eventually
from ullage.cli import leaving, listening, serve
from ullage.cli.leaving import LeavingServer

SHORT = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n"
LONG = b"GET /long HTTP/1.1\r\nhost: localhost\r\n\r\n"
PATIENCE_S = 20

Client = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Application:
    """Answers at once; to `/long` with a stream that ends when it is told to."""

    def __init__(self) -> None:
        self.goes_on = asyncio.Event()
        self.begun = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await send({"type": "lifespan.shutdown.complete"})
            return
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"one.", "more_body": True})
        if scope["path"] == "/long":
            self.begun.set()
            await self.goes_on.wait()
        await send({"type": "http.response.body", "body": b"two."})


class Running:
    """A server that runs, its application, and how to connect to it."""

    def __init__(self, leave_s: float) -> None:
        self.app = Application()
        self.listening = serve.bind_socket("127.0.0.1", 0)
        self.address = self.listening.getsockname()
        self.server: LeavingServer = serve.make_server(self.app, 10, leave_s)
        self.clients: list[Client] = []

    async def connect(self) -> Client:
        self.clients.append(await asyncio.open_connection(*self.address))
        return self.clients[-1]


async def until(claim: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not claim():  # noqa: ASYNC110 - uvicorn tells nobody
            await asyncio.sleep(0.01)


async def ask(client: Client, request: bytes = SHORT) -> bytes:
    client[1].write(request)
    return await asyncio.wait_for(client[0].readuntil(b"0\r\n\r\n"), PATIENCE_S)


def run(work: Callable[[Running], Awaitable[None]], leave_s: float = 0.0) -> None:
    """Run a server beside some work that has it end; it must."""

    async def beside() -> None:
        running = Running(leave_s)
        task = asyncio.create_task(running.server._serve([running.listening]))
        await until(lambda: running.server.started)
        await work(running)
        for _, writer in running.clients:
            writer.close()
        await asyncio.wait_for(task, PATIENCE_S)

    with asyncio.Runner(loop_factory=serve.find_loop()) as runner:
        runner.run(beside())


@pytest.mark.parametrize("again", [signal.SIGTERM, signal.SIGINT])
def test_after_the_signal_requests_are_taken_for_a_while_and_connections_end_behind_them(
    again: signal.Signals,
) -> None:
    async def work(running: Running) -> None:
        idle, server = await running.connect(), running.server
        assert b"connection: close" not in await ask(idle)
        server.handle_exit(signal.SIGTERM, None)
        await until(lambda: server.is_leaving)
        assert not server.should_exit
        for client in (idle, await running.connect()):
            assert b"connection: close" in await ask(client)
            assert await client[0].read() == b""
        server.handle_exit(again, None)

    run(work, leave_s=3_600)


def test_the_while_ends_by_itself() -> None:
    async def work(running: Running) -> None:
        running.server.handle_exit(signal.SIGTERM, None)

    run(work, leave_s=0.01)


def test_a_connection_that_nobody_had_accepted_is_served() -> None:
    async def beside() -> None:
        running = Running(0)
        server = running.server
        server.config.load()
        server.lifespan = server.config.lifespan_class(server.config)
        await server.startup(sockets=[running.listening])
        with socket.create_connection(running.address) as waiting:  # the loop has no turn here
            waiting.sendall(SHORT)
            await server.shutdown([running.listening])
            waiting.settimeout(PATIENCE_S)
            answer = b"".join(iter(lambda: waiting.recv(65_536), b""))
        assert answer.startswith(b"HTTP/1.1 200")
        assert answer.endswith(b"0\r\n\r\n")
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(running.address)

    with asyncio.Runner(loop_factory=serve.find_loop()) as runner:
        runner.run(beside())


def test_a_request_that_is_on_its_way_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "FRESH_S", PATIENCE_S)

    async def work(running: Running) -> None:
        silent, halfway, idle = [await running.connect() for _ in range(3)]
        await ask(halfway)
        halfway[1].write(SHORT[:20])
        await ask(idle)
        await until(lambda: len(running.server.server_state.connections) == 3)
        running.server.should_exit = True
        assert await idle[0].read() == b""
        assert b"connection: close" in await ask(silent)
        assert b"connection: close" in await ask(halfway, SHORT[20:])

    run(work)


def test_a_client_that_was_promised_an_open_connection_may_ask_once_more() -> None:
    async def work(running: Running) -> None:
        client = await running.connect()
        client[1].write(LONG)
        await running.app.begun.wait()
        running.server.should_exit = True
        await until(lambda: running.server.server_state.is_leaving)
        running.app.goes_on.set()
        first = await asyncio.wait_for(client[0].readuntil(b"0\r\n\r\n"), PATIENCE_S)
        assert b"connection: close" not in first
        assert b"connection: close" in await ask(client)

    run(work)


def test_who_says_nothing_is_left_after_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "FRESH_S", 0.05)

    async def work(running: Running) -> None:
        silent, client = await running.connect(), await running.connect()
        client[1].write(LONG)
        await running.app.begun.wait()
        running.server.should_exit = True
        running.app.goes_on.set()
        assert await asyncio.wait_for(silent[0].read(), PATIENCE_S) == b""
        assert (await asyncio.wait_for(client[0].read(), PATIENCE_S)).endswith(b"0\r\n\r\n")

    run(work)


def test_a_proxy_says_that_it_leaves_and_goes_on_answering(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(balancing, "LEAVE_S", 3_600)
    answer = of_json(WHOLE["openai_chat"])
    with (
        FaultServer({CHAT: answer, "GET /v1/models": of_json({})}) as upstream,
        Replica(upstream.root_url, "memory:", tmp_path / "log") as replica,
        httpx2.Client(timeout=20, trust_env=False) as http,
    ):
        assert http.get(f"{replica.url}/readyz").status_code == 200
        replica.signal()
        eventually(lambda: http.get(f"{replica.url}/readyz").status_code == 503)
        assert http.get(f"{replica.url}/readyz").json() == {"status": "leaving"}
        assert http.get(f"{replica.url}/healthz").status_code == 200
        got = http.post(replica.url + CHAT, json=talk("openai_chat", stream=False))
        assert (got.status_code, got.headers["connection"]) == (200, "close")
        assert replica.end() == 0


def test_a_listener_that_nobody_waits_at_has_none_to_accept() -> None:
    with serve.bind_socket("127.0.0.1", 0) as free:
        assert leaving._accept_all(free) == []
