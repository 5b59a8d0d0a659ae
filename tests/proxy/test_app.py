"""The application: its routes from outside, its own pages, its life, and what it does at a loss."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.proxy.serving import (
    CHAT,
    WHOLE,
    Wire,
    answer,
    asked,
    conversation,
    listening,
    posted,
    proxied,
    sent,
    streamed,
    talk,
)
from tests.storage.records import checkpoint
from tests.support.faults import Answer, FaultServer, closed_port, dropped, of_json
from ullage.config.serving import ModelRule, Serve, Upstream
from ullage.core.errors import StoreError
from ullage.proxy.app import App
from ullage.proxy.ledger import Entry
from ullage.runtime import Runtime
from ullage.storage.memory import MemoryCheckpoints, MemoryStore

FORWARDED = {"/v1/completions", "/v1/embeddings", "/v1/messages/count_tokens"}


class Gone(MemoryCheckpoints):
    """Checkpoints on a disk that has failed."""

    def load(self, scope: str, prefixes: Sequence[str]) -> Any:
        raise StoreError("the disk is gone")


class FullCheckpoints(MemoryCheckpoints):
    """Checkpoints on a disk that is full."""

    def save(self, checkpoint: Any) -> Any:
        raise StoreError("the disk is full")


class Full(MemoryStore):
    """A store on a full disk."""

    url = "own:full"  # type: ignore[misc]

    def __init__(self) -> None:
        super().__init__()
        self.checkpoints = FullCheckpoints()


class Broken(MemoryStore):
    """A store whose disk has failed."""

    def __init__(self) -> None:
        super().__init__()
        self.closed = False

        self.checkpoints = Gone()

    def close(self) -> None:
        self.closed = True


def serve(url: str = "http://127.0.0.1:1", **more: Any) -> Serve:
    return Serve((Upstream("main", url),), **{"store": "memory:", **more})


# --- routes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", sorted(FORWARDED))
def test_a_checked_route_forwards_the_body_to_the_byte(path: str) -> None:
    body = b'{ "model":"m", "input" : [1, 2],"prompt":"x", "n": 2 }'
    reply = b'{"done": true}'
    with Wire(answer(reply, "application/json")) as upstream, proxied(upstream.root_url) as proxy:
        got = proxy.post(f"{path}?x=1", body)
    assert (got.status_code, got.content) == (200, reply)
    assert upstream.bodies == [body]
    assert upstream.heads[0].startswith(f"POST {path}?x=1 HTTP/1.1".encode())
    assert "x-ullage-context" not in got.headers


@pytest.mark.parametrize("path", sorted(FORWARDED))
def test_a_checked_route_refuses_bombs(path: str) -> None:
    with FaultServer({}) as upstream, proxied(upstream.root_url) as proxy:
        got = proxy.post(path, b'{"a":' + b"[" * 100)
    assert (got.status_code, got.headers["x-ullage-error"]) == (400, "nested_too_deep")
    assert not asked(upstream)


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/v1/models"), ("GET", "/v1/responses/r1"), ("DELETE", "/v1/responses/r1"),
     ("POST", "/api/show"), ("GET", "/api/tags"), ("HEAD", "/")],
)  # fmt: skip
def test_a_plain_route_is_forwarded(method: str, path: str) -> None:
    with Wire(answer(b"" if method == "HEAD" else b"{}", "application/json")) as upstream:
        with proxied(upstream.root_url) as proxy:
            got = proxy.client.request(method, proxy.url + path)
        assert got.status_code == 200
        assert upstream.heads[0].startswith(f"{method} {path} HTTP/1.1".encode())


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", CHAT), ("POST", "/v1/files"), ("GET", "/v1/models/../x"),
     ("POST", "/v1/chat/completions/"), ("POST", "/v1/chat%2fcompletions"), ("PUT", "/api/chat"),
     ("GET", "/ullage"), ("POST", "/V1/chat/completions"), ("OPTIONS", "/v1/models")],
)  # fmt: skip
def test_anything_else_is_not_there(method: str, path: str) -> None:
    with FaultServer({"/*": of_json({})}) as upstream, proxied(upstream.root_url) as proxy:
        got = proxy.client.request(method, proxy.url + path, content=b"{}")
    assert got.status_code == 404
    assert got.headers["x-ullage-error"] == "no_such_route"
    assert not upstream.requests


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("/a%0d%0ab", "there is no GET /a%0D%0Ab here"),
        ("/ullage/v1/x%0d", "no GET /ullage/v1/x%0D here"),
    ],
)
def test_a_path_with_escapes_is_shown_with_them(path: str, shown: str) -> None:
    with FaultServer({}) as upstream, proxied(upstream.root_url) as proxy:
        got = proxy.client.get(proxy.url + path)
    assert got.status_code == 404
    assert shown in got.json()["error"]["message"]


def test_a_model_goes_to_the_first_upstream_that_serves_it() -> None:
    with FaultServer({CHAT: of_json(WHOLE["openai_chat"])}) as one, FaultServer({}) as other:
        upstreams = (
            Upstream("one", one.base_url, models=("small-*",)),
            Upstream("other", other.base_url, models=("large-*",)),
        )
        with proxied("", upstreams=upstreams) as proxy:
            got = proxy.post(CHAT, talk("openai_chat", model="small-1"))
            lost = proxy.post(CHAT, talk("openai_chat", model="huge"))
            unnamed = proxy.post("/v1/messages", talk("anthropic", model=7))
    assert got.status_code == 200
    assert (len(asked(one)), len(asked(other))) == (1, 0)
    assert (lost.status_code, lost.headers["x-ullage-error"]) == (404, "no_such_model")
    assert "'huge'" in lost.json()["error"]["message"]
    assert unnamed.json()["error"]["type"] == "not_found_error"


def test_a_body_over_the_limit_is_refused() -> None:
    with FaultServer({}) as upstream, proxied(upstream.root_url, max_body=1000) as proxy:
        got = proxy.post(CHAT, b" " * 1001)
        forwarded = proxy.post("/api/show", b" " * 1001)
    assert (got.status_code, forwarded.status_code) == (413, 413)
    assert "over 1,000 bytes" in got.json()["error"]["message"]


@pytest.mark.parametrize("path", [CHAT, "/v1/embeddings"])
def test_a_name_of_a_model_is_bounded(path: str) -> None:
    with FaultServer({}) as upstream, proxied(upstream.root_url) as proxy:
        got = proxy.post(path, {"model": "m" * 1025, "messages": [{"role": "user"}]})
    assert (got.status_code, got.headers["x-ullage-error"]) == (400, "model_name")
    assert "over 1,024 characters" in got.json()["error"]["message"]
    assert asked(upstream) == []


def test_a_token_is_asked_for_where_there_are_any() -> None:
    with (
        FaultServer({CHAT: of_json(WHOLE["openai_chat"])}) as upstream,
        proxied(upstream.root_url, tokens={"ann": "a" * 24}) as proxy,
    ):
        stranger = proxy.post("/v1/messages", talk("anthropic", stream=False))
        ann = proxy.post(
            CHAT, talk("openai_chat", stream=False), authorization="Bearer " + "a" * 24
        )
        page = proxy.client.get(f"{proxy.url}/ullage/sessions")
    assert stranger.status_code == 401
    assert stranger.json()["error"]["type"] == "authentication_error"
    assert ann.status_code == 200
    assert page.status_code == 401


# --- pages ----------------------------------------------------------------------------------------


def test_the_pages_show_what_went_through() -> None:
    with (
        FaultServer({CHAT: streamed("openai_chat")}) as upstream,
        proxied(upstream.root_url) as proxy,
    ):
        assert proxy.client.get(f"{proxy.url}/healthz").status_code == 200
        for _ in range(2):
            proxy.post(CHAT, talk("openai_chat"))
        named = proxy.post(CHAT, talk("openai_chat"), x_ullage_session="mine")
        (mine, other) = proxy.app.ledger.all()
        page = proxy.client.get(f"{proxy.url}/ullage/context/mine").json()
        assert proxy.shown("ullage_requests_total", outcome="sent") == 3
    assert named.status_code == 200
    assert mine == Entry(
        "mine", "main", "m", "openai_chat", mine.at, mine.used, 8192, "none", mine.basis, 1,
        requests=1, last_status=200,
    )  # fmt: skip
    assert (other.requests, len(other.id)) == (2, 16)
    assert page["model"] == "m"
    assert "hello" not in json.dumps(page)


# --- faults of its own ----------------------------------------------------------------------------


def test_a_guard_that_fails_costs_nobody_the_answer() -> None:
    body = json.dumps(conversation("openai_chat")).encode()
    with (
        FaultServer({CHAT: streamed("openai_chat")}) as upstream,
        proxied(upstream.root_url, store=Broken(), usage="inject") as proxy,
    ):
        got = proxy.post(CHAT, body)
        assert proxy.shown("ullage_guard_faults_total") == 1
        assert proxy.shown("ullage_unguarded_requests_total", reason="guard_failed") == 1
    assert (got.status_code, got.content) == (200, sent(streamed("openai_chat")))
    told = {n: v for n, v in got.headers.items() if n.startswith("x-ullage")}
    assert told.pop("x-ullage-request-id")
    assert told == {"x-ullage-unguarded": "guard_failed"}
    assert [request.body for request in asked(upstream)] == [body]


def test_a_guard_that_fails_is_told_of_where_nothing_may_go_out_without_it() -> None:
    with (
        FaultServer({}) as upstream,
        proxied(upstream.root_url, store=Broken(), fail_open=False) as proxy,
    ):
        got = proxy.post("/v1/messages", talk("anthropic"))
        assert proxy.shown("ullage_guard_faults_total") == 1
    assert (got.status_code, got.headers["x-ullage-error"]) == (500, "guard_failed")
    assert got.json()["error"]["type"] == "api_error"
    assert "disk" not in got.text
    assert not asked(upstream)


class Odd:
    """An upstream's client with a fault in it."""

    async def send(self, what: Any) -> Any:
        """Fail as nobody expects."""
        raise LookupError(what.url)

    async def aclose(self) -> None:
        """Close nothing."""


def test_a_fault_of_the_proxy_itself_is_an_error_that_says_so() -> None:
    app = App(serve(), runtime=Runtime(), store=MemoryStore(), upstream=Odd())
    with listening(app) as url, proxied(url) as outer:
        got = posted(outer.client, url + "/api/chat", talk("ollama_chat"))
        page = outer.client.get(f"{url}/metrics").text
    assert (got.status_code, got.headers["x-ullage-error"]) == (500, "proxy_failed")
    assert got.json() == {"error": "the proxy itself failed"}
    assert "ullage_guard_faults_total 1" in page


# --- its life -------------------------------------------------------------------------------------


def test_new_requests_go_by_the_configuration_as_it_is_now() -> None:
    with (
        FaultServer({CHAT: of_json(WHOLE["openai_chat"])}) as upstream,
        proxied(upstream.root_url) as proxy,
    ):
        before = proxy.post(CHAT, talk("openai_chat"))
        proxy.app.reload(serve(upstream.root_url, rules=(ModelRule(window=4096),)))
        after = proxy.post(CHAT, talk("openai_chat"))
    assert "window=8192" in before.headers["x-ullage-context"]
    assert "window=4096" in after.headers["x-ullage-context"]


def test_a_server_that_went_away_or_a_new_configuration_has_the_window_asked_for_again() -> None:
    def props(window: int) -> Answer:
        return of_json({"default_generation_settings": {"n_ctx": window}, "total_slots": 1})

    answers = (of_json(WHOLE["openai_chat"]), dropped(), of_json(WHOLE["openai_chat"]))
    with (
        FaultServer({CHAT: answers, "/props": tuple(map(props, (2048, 8192, 4096)))}) as upstream,
        proxied(upstream.root_url, rules=()) as proxy,
    ):
        body = talk("openai_chat", stream=False)

        def window() -> str:
            return proxy.post(CHAT, body).headers.get("x-ullage-context", "")

        assert "window=2048" in window()
        window()  # the connection breaks
        assert "window=8192" in window()
        proxy.app.reload(proxy.app.serve)
        assert "window=4096" in window()


def test_a_store_that_was_opened_is_closed_and_one_that_was_given_is_not(tmp_path: Path) -> None:
    async def lived(app: App) -> None:
        assert app.sender is app.sender
        await app.aclose()

    own = App(serve(store=f"sqlite:{tmp_path / 'proxy.db'}"), runtime=Runtime())
    assert own.store is own.store
    asyncio.run(lived(own))
    assert (tmp_path / "proxy.db").exists()
    given = Broken()
    asyncio.run(lived(App(serve(), runtime=Runtime(), store=given)))
    assert not given.closed


def test_a_store_that_cannot_be_opened_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "folder.db").mkdir()
    app = App(serve(store=f"sqlite:{tmp_path / 'folder.db'}"), runtime=Runtime())
    told: list[Any] = []

    async def receive() -> Any:
        return {"type": "lifespan.startup"}

    async def send(message: Any) -> None:
        told.append(message)

    with pytest.raises(StoreError):
        asyncio.run(app({"type": "lifespan"}, receive, send))
    assert told[0]["type"] == "lifespan.startup.failed"


def test_what_is_no_request_is_left_alone() -> None:
    app = App(serve(), runtime=Runtime(), store=MemoryStore())
    asyncio.run(app({"type": "websocket"}, None, None))


def test_the_store_of_a_user_is_in_the_users_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    app = App(serve(store=None), runtime=Runtime())
    assert app.store is not None
    assert (tmp_path / "ullage" / "proxy.db").exists()
    asyncio.run(app.aclose())


def test_what_was_not_written_at_the_end_is_told(caplog: pytest.LogCaptureFixture) -> None:
    app = App(serve(), runtime=Runtime(), store=Full())
    app.kept.checkpoints.save(checkpoint("p", 1))
    with caplog.at_level(logging.WARNING):
        asyncio.run(app.aclose())
    assert "1 changes were not written: the store is away" in caplog.text


def test_a_proxy_is_ready_when_its_upstream_can_be_reached() -> None:
    with FaultServer({}) as upstream, proxied(upstream.root_url) as proxy:
        assert proxy.client.get(f"{proxy.url}/readyz").status_code == 200
    with closed_port() as port, proxied(f"http://127.0.0.1:{port}") as proxy:
        assert proxy.client.get(f"{proxy.url}/readyz").status_code == 503
