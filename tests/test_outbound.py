"""Probes and requests leave by the same proxy and trust the same authorities."""

from __future__ import annotations

import asyncio
import datetime as dt
import socket
import ssl
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import uvloop
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.proxy.sockets import Behind, answered
from ullage.config.serving import Serve, Upstream
from ullage.proxy.upstream import AiohttpSender, Sent, Stalled, Unreached
from ullage.transport import HttpRequest, Transport, find_proxy

AWAY = "http://models.example:8080/v1/models"
PATIENCE_S = 5


def probe(url: str) -> int:
    return Transport().ask(HttpRequest(url)).status


def aprobe(url: str) -> int:
    return asyncio.run(Transport().aask(HttpRequest(url))).status


def relay(url: str) -> int:
    async def send() -> int:
        sender = AiohttpSender(Serve((Upstream("u", "http://h/v1"),), first_byte_s=10))
        try:
            response = await sender.send(Sent("GET", url, (), b""))
            await response.aclose()
        finally:
            await sender.aclose()
        return response.status

    try:
        return asyncio.run(send())
    except Unreached:
        return 0


@pytest.fixture(params=[probe, aprobe, relay])
def ask(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], int]:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    asking: Callable[[str], int] = request.param
    return asking


def test_a_server_far_away_is_asked_by_the_proxy_of_the_environment(ask, monkeypatch) -> None:
    with Behind(answered) as proxy:
        monkeypatch.setenv("http_proxy", f"http://me:secret@127.0.0.1:{proxy.port}")
        assert ask(AWAY) == 200
        (head,) = proxy.heads
    assert head.startswith(b"GET http://models.example:8080/v1/models HTTP/1.1\r\n")
    assert b"proxy-authorization: basic bwu6c2vjcmv0" in head.lower()  # me:secret


@pytest.mark.parametrize("named", ["models.example", ".example", "other.example, models.example"])
def test_a_server_that_no_proxy_is_for_is_asked_straight(ask, monkeypatch, named: str) -> None:
    with Behind(answered) as proxy:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.port}")
        monkeypatch.setenv("no_proxy", named)
        assert ask(AWAY) == 0  # there is no such host
        assert proxy.heads == []


def test_no_proxy_is_asked_for_a_server_on_this_machine(ask, monkeypatch) -> None:
    with Behind(answered) as proxy, Behind(answered) as server:
        for name in ("http_proxy", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        assert ask(f"{server.url}/v1/models") == 200
        assert (proxy.heads, len(server.heads)) == ([], 1)


def test_a_proxy_that_speaks_another_protocol_is_named_without_its_password(monkeypatch) -> None:
    monkeypatch.setenv("http_proxy", "socks5://me:secret@127.0.0.1:9")
    found = [Transport().ask(HttpRequest(AWAY)), asyncio.run(Transport().aask(HttpRequest(AWAY)))]
    with pytest.raises(Unreached) as caught:
        asyncio.run(_send(AWAY))
    for said in (*(answer.fault for answer in found), str(caught.value)):
        assert "socks5://127.0.0.1:9, and only http and https proxies" in said
        assert "secret" not in said


async def _send(url: str) -> None:
    sender = AiohttpSender(Serve((Upstream("u", "http://h/v1"),)))
    try:
        await sender.send(Sent("GET", url, (), b""))
    finally:
        await sender.aclose()


def test_a_proxy_without_a_scheme_is_one_of_http(monkeypatch) -> None:
    monkeypatch.setenv("https_proxy", "proxy.example:3128")
    assert find_proxy("https://api.example/v1") == "http://proxy.example:3128"
    assert find_proxy("https://localhost/v1") is None


# --- authorities ----------------------------------------------------------------------------------


def _certify(folder: Path) -> Path:
    """Write a certificate of localhost, its own authority, with its key; return the file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    file = folder / "localhost.pem"
    file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + made.public_bytes(serialization.Encoding.PEM)
    )
    return file


class _Quiet(BaseHTTPRequestHandler):
    disable_nagle_algorithm = True  # else each answer waits for an ACK: 40 ms

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


def _secure(file: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    return context


@pytest.fixture
def secure(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    file = _certify(tmp_path)
    context = _secure(file)
    server = HTTPServer(("127.0.0.1", 0), _Quiet)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield f"https://localhost:{server.server_port}/v1/models", file
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_server_of_an_unknown_authority_is_reached_where_the_environment_names_it(
    ask, monkeypatch, secure
) -> None:
    url, file = secure
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    assert ask(url) == 0
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    assert ask(url) == 200


# --- the end of the client ------------------------------------------------------------------------


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop])
def finish(request: pytest.FixtureRequest) -> Callable[[Coroutine[Any, Any, int]], int]:
    """Run some work to its end, and its event loop with it."""

    def run(work: Coroutine[Any, Any, int]) -> int:
        with asyncio.Runner(loop_factory=request.param) as runner:
            return runner.run(work)

    return run


async def _post(url: str, body: bytes, first_byte_s: float = 10) -> int:
    sender = AiohttpSender(Serve((Upstream("u", "http://h/v1"),), first_byte_s=first_byte_s))
    try:
        response = await sender.send(Sent("POST", url, (), body))
        await response.aclose()
    finally:
        await sender.aclose()
    return response.status


def _is_closed(line: socket.socket) -> bool:
    """Tell whether the other side has closed a connection, after all that it had sent."""
    line.settimeout(PATIENCE_S)
    with suppress(ConnectionResetError):
        while line.recv(1 << 20):
            pass
    return True


def test_a_server_that_is_slow_to_say_farewell_holds_no_connection_open(
    finish, monkeypatch, tmp_path
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(_certify(tmp_path)))
    context = _secure(tmp_path / "localhost.pem")

    def answer_and_wait(listening: socket.socket) -> socket.socket:
        line = context.wrap_socket(listening.accept()[0], server_side=True)
        line.recv(65_536)
        line.sendall(b"HTTP/1.0 200 OK\r\ncontent-length: 0\r\n\r\n")
        return socket.socket(fileno=line.detach())

    with socket.create_server(("127.0.0.1", 0)) as listening, ThreadPoolExecutor(1) as pool:
        listening.settimeout(PATIENCE_S)
        answering = pool.submit(answer_and_wait, listening)
        url = f"https://localhost:{listening.getsockname()[1]}/v1/models"
        assert finish(_post(url, b"{}")) == 200
        with answering.result() as line:
            assert _is_closed(line)


@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")  # it is large on purpose
def test_a_server_that_reads_nothing_holds_no_connection_open(finish) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(PATIENCE_S)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/v1/models"
        with pytest.raises(Stalled):
            finish(_post(url, b"x" * (16 << 20), first_byte_s=0.2))
        with listening.accept()[0] as line:
            assert _is_closed(line)
