"""Small requests go by a connection of the client library's, and are the same as by the library."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from tests.proxy.sockets import Behind, answered
from ullage.config.serving import Serve, Upstream
from ullage.proxy.upstream import PIECE, AiohttpSender, Sent, Unreached, UpstreamBroken

HEADERS = (
    (b"content-type", b"application/json"),
    (b"accept-encoding", b"identity"),
    (b"x-stainless-os", b""),
    (b"authorization", b"Bearer k"),
)
PATHS = ("/v1/chat/completions", "/v1/a?b=c%20d&e", "/v1//x;y=%2F")

Seen = tuple[int, list[tuple[bytes, bytes]], bytes]


def send(*sent: Sent) -> list[Seen]:
    async def run() -> list[Seen]:
        sender, seen = AiohttpSender(Serve((Upstream("u", "http://h/v1"),))), []
        try:
            for what in sent:
                response = await sender.send(what)
                data = b"".join([piece async for piece in response.chunks()])
                await response.aclose()
                seen.append((response.status, list(response.headers), data))
        finally:
            await sender.aclose()
        return seen

    return asyncio.run(run())


def post(url: str, headers: Sequence[tuple[bytes, bytes]] = HEADERS, body: bytes = b"{}") -> Sent:
    return Sent("POST", url, headers, body)


def find_ways(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Return a list that grows by True for each request that goes the shorter way."""
    from ullage.proxy import upstream

    ways: list[bool] = []
    write = upstream._Place.write_head

    def note(self: Any, what: Sent) -> bytes | None:
        head = write(self, what)
        ways.append(head is not None)
        return head

    monkeypatch.setattr(upstream._Place, "write_head", note)
    return ways


@pytest.mark.parametrize("path", PATHS)
def test_both_ways_write_the_same(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from ullage.proxy import upstream

    with Behind() as server:
        (short,) = send(post(server.url + path))
        monkeypatch.setattr(upstream._Place, "write_head", lambda *_: None)
        (long,) = send(post(server.url + path))
        first, second = server.heads
        assert server.bodies == [b"{}", b"{}"]
    assert first == second
    assert short == long


@pytest.mark.parametrize(("version", "short"), [("3.13.5", True), ("3.15.0", False)])
def test_a_version_that_was_not_tried_is_asked_by_its_session(
    version: str, short: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aiohttp.__version__", version)
    ways = find_ways(monkeypatch)
    with Behind() as server:
        ((status, _, _),) = send(post(server.url + PATHS[0]))
    assert (status, ways) == (200, [True] * short)


def test_connections_are_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    ways = find_ways(monkeypatch)
    with Behind() as server:
        send(*[post(server.url + path) for path in PATHS * 2])
        assert server.connections == 1
    assert ways == [True] * 6


@pytest.mark.parametrize(
    "headers",
    [((b"x-title", "é".encode()),), ((b"x-title", b"a\r\nx-b: c"),), ((b"x-title", b"a\0"),)],
)
def test_odd_values_are_left_to_the_library(headers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ways = find_ways(monkeypatch)
    with Behind() as server:
        try:
            send(post(server.url + "/v1/a", headers))
        except ValueError:  # as it refuses them
            assert server.heads == []
    assert ways == [False]


@pytest.mark.parametrize("body", [b"", b"x" * (PIECE + 1)])
def test_large_bodies_and_none_are_left_to_the_library(
    body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    ways = find_ways(monkeypatch)
    with Behind() as server:
        ((status, _, _),) = send(post(server.url + "/v1/a", body=body))
        assert server.bodies == [body]
    assert (status, ways) == (200, [])


def test_a_user_in_the_url_is_left_to_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    ways = find_ways(monkeypatch)
    with Behind() as server:
        url = server.url.replace("http://", "http://me:word@")
        send(post(url + "/v1/a", HEADERS[:1]))
        assert b"Basic bWU6d29yZA==" in server.heads[0] or b"basic" in server.heads[0].lower()
    assert ways == []


def test_a_small_request_leaves_by_the_proxy_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Behind(answered) as proxy:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.port}")
        monkeypatch.delenv("no_proxy", raising=False)
        send(post("http://models.example:8080/v1/a"))
        assert proxy.heads[0].startswith(b"POST http://models.example:8080/v1/a HTTP/1.1\r\n")


def test_what_is_said_before_an_answer_is_passed_over() -> None:
    early = b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n"
    with Behind(lambda head, body: early + answered(head, body)) as server:
        ((status, _, _),) = send(post(server.url + "/v1/a"))
    assert status == 200


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n", "the status 101"),
        (b"HTTP/1.1 what\r\n\r\n", "broke off before it answered"),
        (b"", "broke off before it answered"),
    ],
)
def test_what_is_no_answer_is_told(answer: bytes, said: str) -> None:
    with Behind(lambda _head, _body: answer) as server, pytest.raises(UpstreamBroken, match=said):
        send(post(server.url + "/v1/a"))


def test_a_server_that_is_not_there_was_sent_nothing() -> None:
    with Behind() as server:
        url = server.url
    with pytest.raises(Unreached):
        send(post(url + "/v1/a"))


def test_urls_are_forgotten_before_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    from ullage.proxy import upstream

    monkeypatch.setattr(upstream, "PLACES", 2)
    with Behind() as server:
        seen = send(*[post(f"{server.url}/v1/a?n={n}") for n in range(5)])
        assert server.connections == 1
    assert [status for status, _, _ in seen] == [200] * 5
