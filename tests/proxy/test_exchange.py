"""One request on its way: streams that are not held up, answers too large to keep, real servers."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.proxy.serving import (
    CHAT,
    OVERFLOWS,
    STREAMS,
    WHOLE,
    Wire,
    answer,
    ask_and_leave,
    conversation,
    listening,
    posted,
    proxied,
    sent,
    streamed,
    talk,
)
from tests.support.faults import FaultServer, closed_port, of_json
from ullage.config.serving import ModelRule, Serve, Upstream
from ullage.embedded import Launch, Server
from ullage.proxy import exchange as module
from ullage.proxy.app import App
from ullage.proxy.guarding import Guarding
from ullage.proxy.ledger import Entry, Ledger
from ullage.proxy.upstream import AiohttpSender, Sent, Stalled, Unreached
from ullage.runtime import Runtime
from ullage.storage.memory import MemoryStore

QUIET: dict[str, Any] = {"status": 200, "headers": ((b"Content-Type", b"text/event-stream"),)}


class Stepping:
    """An upstream that sends a piece whenever it is told to, and then the rest."""

    def __init__(self, *pieces: bytes) -> None:
        self.pieces = pieces
        self.steps = threading.Semaphore(0)
        self.closed = threading.Event()
        self.status: int = QUIET["status"]
        self.headers: Any = QUIET["headers"]

    async def send(self, what: Sent) -> Any:
        """Answer with the head at once."""
        del what
        return self

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the pieces, each at its own step."""
        for piece in self.pieces:
            await asyncio.to_thread(self.steps.acquire)
            yield piece

    async def aclose(self) -> None:
        """Note that nobody reads any more."""
        self.closed.set()


def serve(**more: Any) -> Serve:
    rules = (ModelRule(window=8192),)
    return Serve((Upstream("main", "http://127.0.0.1:9"),), rules, usage="passive", **more)


@pytest.mark.parametrize("size", [7, 10_000], ids=["pieces of frames", "frames"])
def test_every_chunk_goes_on_before_the_next_one_comes(size: int) -> None:
    frames = [sent(streamed("openai_chat", [event])) for event in STREAMS["openai_chat"]]
    opening, rest = b"".join(frames[:2]), b"".join(frames[2:])
    pieces = [opening, *(rest[at : at + size] for at in range(0, len(rest), size))]
    upstream = Stepping(*pieces)
    app = App(serve(), runtime=Runtime(), store=MemoryStore(), upstream=upstream)
    upstream.steps.release()
    with (
        listening(app) as url,
        httpx2.Client(timeout=20, trust_env=False) as client,
        client.stream("POST", url + CHAT, json=talk("openai_chat")) as response,
    ):
        heard, want = b"", b""
        arriving = response.iter_raw()
        for number, piece in enumerate(pieces):
            want += piece
            while len(heard) < len(want):
                heard += next(arriving)
            assert heard == want
            if number + 1 < len(pieces):
                upstream.steps.release()
        assert b"".join(arriving) == b""
    assert upstream.closed.is_set()


def test_comments_are_not_held_back_for_ever() -> None:
    pings = [b": processing\n\n"] * module.HELD
    whole = sent(streamed("openai_chat"))
    upstream = Stepping(*pings, whole)
    app = App(serve(), runtime=Runtime(), store=MemoryStore(), upstream=upstream)
    upstream.steps.release(module.HELD)
    with (
        listening(app) as url,
        httpx2.Client(timeout=20, trust_env=False) as client,
        client.stream("POST", url + CHAT, json=talk("openai_chat")) as response,
    ):
        arriving = response.iter_raw()
        heard = next(arriving)
        upstream.steps.release()
        assert heard + b"".join(arriving) == b"".join(pings) + whole


def test_a_frame_that_never_ends_is_not_held_back_for_ever() -> None:
    upstream = Stepping(b"data: " + b"x" * module.HELD_BYTES, b"\n\n")
    app = App(serve(), runtime=Runtime(), store=MemoryStore(), upstream=upstream)
    upstream.steps.release()
    with (
        listening(app) as url,
        httpx2.Client(timeout=20, trust_env=False) as client,
        client.stream("POST", url + CHAT, json=talk("openai_chat")) as response,
    ):
        assert next(response.iter_raw()).startswith(b"data: xxx")
        upstream.steps.release()


@pytest.mark.parametrize("status", ["200 OK", "500 No"])
def test_an_answer_that_is_too_large_to_keep_is_relayed(
    monkeypatch: pytest.MonkeyPatch, status: str
) -> None:
    monkeypatch.setattr(module, "WHOLE", 100_000)
    whole = json.dumps({**WHOLE["openai_chat"], "x": "y" * 1_000_000}).encode()
    with (
        Wire(answer(whole, "application/json", status)) as upstream,
        proxied(upstream.root_url) as proxy,
    ):
        got = proxy.post(CHAT, talk("openai_chat", stream=False))
    assert got.content == whole
    assert str(got.status_code) == status[:3]


@pytest.mark.parametrize("whole", [b"[1]", b"null", b"{broken", b"[" * 100_000, b""])
def test_an_answer_that_makes_no_sense_is_handed_on(whole: bytes) -> None:
    with Wire(answer(whole, "application/json")) as upstream, proxied(upstream.root_url) as proxy:
        got = proxy.post(CHAT, talk("openai_chat", stream=False))
    assert (got.status_code, got.content) == (200, whole)


def test_an_answer_of_an_unknown_kind_that_breaks_off_is_short() -> None:
    raw = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 99\r\n\r\nhalf of it"
    with (
        Wire(raw) as upstream,
        proxied(upstream.root_url) as proxy,
        pytest.raises(httpx2.RemoteProtocolError),
    ):
        proxy.post(CHAT, talk("openai_chat"))


def test_a_client_that_leaves_while_it_still_sends_is_let_go() -> None:
    upstream = Stepping()
    app = App(serve(), runtime=Runtime(), store=MemoryStore(), upstream=upstream)
    messages = iter([{"type": "http.request", "body": b"{", "more_body": True}])
    told: list[Any] = []

    async def receive() -> Any:
        return next(messages, {"type": "http.disconnect"})

    async def send(message: Any) -> None:
        told.append(message)

    for method, path in (("POST", CHAT), ("POST", "/v1/embeddings"), ("POST", "/api/show")):
        messages = iter([{"type": "http.request", "body": b"{", "more_body": True}])
        scope = {
            "type": "http", "method": method, "path": path, "query_string": b"",
            "headers": [(b"host", b"localhost")], "server": ("127.0.0.1", 1),
        }  # fmt: skip
        asyncio.run(app(scope, receive, send))
    assert not told


def test_a_request_that_comes_in_pieces_is_one_request() -> None:
    body = json.dumps(talk("openai_chat")).encode()

    def pieces() -> Any:
        yield from (body[at : at + 9] for at in range(0, len(body), 9))

    with (
        Wire(answer(sent(streamed("openai_chat")))) as upstream,
        proxied(upstream.root_url) as proxy,
    ):
        got = proxy.client.post(proxy.url + CHAT, content=pieces())
    assert got.content == sent(streamed("openai_chat"))
    assert upstream.bodies == [body]


# --- the client of the upstreams ------------------------------------------------------------------


def spoken(serve: Serve, url: str) -> bytes:
    """Return what a request gets; raises what the sender raises."""

    async def asked() -> bytes:
        sender = AiohttpSender(serve)
        try:
            response = await sender.send(Sent("GET", url, (), b""))
            try:
                return b"".join([chunk async for chunk in response.chunks()])
            finally:
                await response.aclose()
        finally:
            await sender.aclose()

    return asyncio.run(asked())


def test_the_senders_errors_tell_what_happened() -> None:
    with closed_port() as port, pytest.raises(Unreached, match="cannot be reached"):
        spoken(serve(), f"http://127.0.0.1:{port}/")
    with (
        Wire(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nx", held=True) as upstream,
        pytest.raises(Stalled, match=r"sent nothing for 0\.1 seconds"),
    ):
        spoken(serve(idle_s=0.1), upstream.root_url)


def test_nothing_is_followed_decoded_or_remembered() -> None:
    packed = b"\x1f\x8b not really"
    raw = (
        b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\nset-cookie: a=b\r\n"
        b"content-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(packed)
    )
    with Wire(raw + packed) as upstream:
        assert spoken(serve(), f"{upstream.root_url}/a%2Fb?c=%20") == packed
    assert upstream.heads[0].startswith(b"GET /a%2Fb?c=%20 HTTP/1.1\r\n")


# --- a real server --------------------------------------------------------------------------------


def test_a_server_that_was_restarted_with_a_smaller_window_is_learned_anew(
    tiny_model: Path,
) -> None:
    body = conversation("openai_chat", 4, stream=False, max_tokens=8)
    with Server(tiny_model, Launch(window=4096, threads=1)) as large:
        large.start()
        port = int(large.root_url.rpartition(":")[2])
        with proxied(large.root_url, rules=(ModelRule(),)) as proxy:
            first = proxy.post(CHAT, body)
            assert first.status_code == 200
            assert "window=4096" in first.headers["x-ullage-context"]
            large.stop()
            gone = proxy.post(CHAT, body)
            assert (gone.status_code, gone.headers["x-ullage-error"]) == (
                502,
                "upstream_unreachable",
            )
            with Server(tiny_model, Launch(window=512, threads=1, port=port)) as small:
                small.start()
                second = proxy.post(CHAT, body)
                third = proxy.post(CHAT, body)
    assert (second.status_code, third.status_code) == (200, 200)
    assert "x-ullage-compaction" in second.headers
    assert "window=512" in third.headers["x-ullage-context"]


def test_a_server_that_is_killed_in_the_middle_of_a_stream_is_told_of(tiny_model: Path) -> None:
    body = talk("openai_chat", max_tokens=1500, ignore_eos=True, temperature=0)
    with Server(tiny_model, Launch(window=2048, threads=1)) as server:
        server.start()
        with (
            proxied(server.root_url, rules=(ModelRule(),)) as proxy,
            proxy.client.stream("POST", proxy.url + CHAT, json=body) as response,
        ):
            arriving = response.iter_raw()
            heard = next(arriving)
            server.stop()
            heard += b"".join(arriving)
    assert b"[DONE]" not in heard
    assert json.loads(heard.strip().rpartition(b"data: ")[2])["error"]["code"] == "upstream_broken"


def test_a_request_is_posted_as_it_is() -> None:
    with (
        FaultServer({CHAT: of_json(WHOLE["openai_chat"])}) as upstream,
        proxied("", upstreams=(Upstream("main", upstream.base_url + "/"),)) as proxy,
    ):
        got = posted(proxy.client, proxy.url + CHAT, talk("openai_chat", stream=False))
    assert got.status_code == 200


# --- faults beside an answer ----------------------------------------------------------------------


class Full(Ledger):
    """A ledger that nothing can be written into."""

    def note(self, entry: Entry) -> None:
        """Fail."""
        raise LookupError(entry.id)


def test_a_fault_beside_an_answer_is_counted_and_costs_nobody_the_answer() -> None:
    with (
        FaultServer({CHAT: streamed("openai_chat")}) as upstream,
        proxied(upstream.root_url) as proxy,
    ):
        proxy.app.ledger = Full()
        got = proxy.post(CHAT, talk("openai_chat"))
        assert proxy.shown("ullage_guard_faults_total") == 1
    assert got.content == sent(streamed("openai_chat"))


def test_a_fault_while_recovering_leaves_the_upstreams_own_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def failing(*what: Any) -> Any:
        raise LookupError(len(what))

    monkeypatch.setattr(Guarding, "again", failing)
    refusal = of_json(OVERFLOWS["openai_chat"], 400)
    with FaultServer({CHAT: refusal}) as upstream, proxied(upstream.root_url) as proxy:
        got = proxy.post(CHAT, conversation("openai_chat"))
        assert proxy.shown("ullage_guard_faults_total") == 1
    assert (got.status_code, got.content) == (400, sent(refusal))


def test_faults_beside_an_answer_are_errors_where_nothing_goes_on_without_the_guard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def failing(*what: Any) -> Any:
        raise LookupError(len(what))

    monkeypatch.setattr(Guarding, "again", failing)
    script = (of_json(OVERFLOWS["openai_chat"], 400), of_json(WHOLE["openai_chat"]))
    with (
        FaultServer({CHAT: script}) as upstream,
        proxied(upstream.root_url, fail_open=False) as proxy,
    ):
        got = proxy.post(CHAT, conversation("openai_chat"))
        proxy.app.ledger = Full()
        proxy.app.reload(proxy.app.serve)
        answered = proxy.post(CHAT, talk("openai_chat"))
    assert (got.status_code, got.headers["x-ullage-error"]) == (500, "proxy_failed")
    assert answered.json() == WHOLE["openai_chat"]


def test_a_client_that_leaves_while_its_request_is_made_smaller_is_not_worked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun, ended = threading.Event(), threading.Event()

    async def slow(*what: Any) -> Any:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return what

    monkeypatch.setattr(Guarding, "again", slow)
    refusal = of_json(OVERFLOWS["openai_chat"], 400)
    with FaultServer({CHAT: refusal}) as upstream, proxied(upstream.root_url) as proxy:
        ask_and_leave(proxy.url + CHAT, conversation("openai_chat"), begun.is_set)
        assert ended.wait(60)
