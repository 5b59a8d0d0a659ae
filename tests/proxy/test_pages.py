"""The proxy's own pages: what they answer, to whom they speak, and that probes are few."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, MutableMapping
from dataclasses import replace
from typing import Any

import pytest

from tests.support.faults import FaultServer, closed_port, hanging, of_json
from ullage.config.serving import Upstream
from ullage.proxy import pages
from ullage.proxy.ledger import Entry, Ledger
from ullage.proxy.pages import ABSENT_S, FRESH_S, Pages, Readiness, is_page, reaching
from ullage.telemetry import CONTENT_TYPE
from ullage.telemetry.metrics import Metrics
from ullage.transport import Transport

LOCAL = Upstream("local", "http://127.0.0.1:1", "sentinel-key-0123456789")
CLOUD = Upstream("cloud", "http://127.0.0.1:2")
HELD = Entry(
    "0123456789abcdef", "local", "m", "openai_chat", 12.5, 900, 1_000, "critical", "server"
)


class Probed:
    """Upstreams that answer, or do not, by name; it keeps who was asked."""

    def __init__(self, **answers: bool) -> None:
        self.answers = answers
        self.asked: list[str] = []
        self.time = 0.0

    async def __call__(self, upstream: Upstream) -> bool:
        self.asked.append(upstream.name)
        await asyncio.sleep(0)
        return self.answers[upstream.name]

    def now(self) -> float:
        return self.time


def made(
    probed: Probed | None = None, *, away_s: float | None = None, ledger: Ledger | None = None
) -> Pages:
    probed = probed or Probed(local=True, cloud=True)
    return Pages(
        ledger or Ledger(),
        Metrics().render,
        lambda: (LOCAL, CLOUD),
        Readiness(probed, probed.now),
        lambda: away_s,
    )


def ask(page: Pages, path: str, method: str = "GET") -> tuple[int, dict[bytes, bytes], bytes]:
    sent: list[MutableMapping[str, Any]] = []

    async def receive() -> MutableMapping[str, Any]:
        raise AssertionError("a page reads no body")

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    asyncio.run(page({"type": "http", "method": method, "path": path}, receive, send))
    head, body = sent
    return head["status"], dict(head["headers"]), body["body"]


def test_a_living_process_is_healthy_whatever_its_upstreams():
    probed = Probed(local=False, cloud=False)
    assert ask(made(probed, away_s=3.5), "/healthz")[0] == 200
    assert probed.asked == []


@pytest.mark.parametrize(
    ("away_s", "local", "cloud", "status"),
    [
        (None, True, True, 200),
        (None, False, True, 200),
        (None, False, False, 503),
        (3.5, True, True, 200),
    ],
)
def test_it_is_ready_with_an_upstream_whether_or_not_the_store_is_there(
    away_s: float | None, local: bool, cloud: bool, status: int
):
    found, headers, body = ask(made(Probed(local=local, cloud=cloud), away_s=away_s), "/readyz")
    assert found == status
    assert headers[b"content-type"] == b"application/json"
    assert json.loads(body) == {
        "status": "ready" if status == 200 else "not ready",
        "store": away_s is None,
        "store_away_s": away_s,
        "upstreams": {"local": local, "cloud": cloud},
    }


def test_a_process_that_is_about_to_end_lives_and_is_not_ready():
    page = replace(made(Probed(local=True)), leaving=lambda: True)
    assert ask(page, "/healthz")[0] == 200
    status, _, body = ask(page, "/readyz")
    assert (status, json.loads(body)) == (503, {"status": "leaving"})


def test_an_upstream_is_probed_once_a_minute_and_an_absent_one_soon_again():
    probed = Probed(local=True, cloud=False)
    page = made(probed)

    def asked(at: float) -> list[str]:
        probed.time, probed.asked = at, []
        ask(page, "/readyz")
        return sorted(probed.asked)

    assert asked(0) == ["cloud", "local"]
    assert asked(ABSENT_S - 1) == []
    assert asked(ABSENT_S) == ["cloud"]
    assert asked(FRESH_S) == ["cloud", "local"]
    page.readiness.note_answer("cloud")
    assert asked(FRESH_S + ABSENT_S) == []
    assert json.loads(ask(page, "/readyz")[2])["upstreams"] == {"local": True, "cloud": True}


def test_who_asks_at_once_shares_one_probe():
    probed = Probed(local=True)
    readiness = Readiness(probed, probed.now)

    async def both() -> None:
        found = await asyncio.gather(*(readiness.of([LOCAL]) for _ in range(20)))
        assert found == [{"local": True}] * 20

    asyncio.run(both())
    assert probed.asked == ["local"]


@pytest.mark.parametrize("answer", [of_json({"data": []}), of_json({"error": "key"}, 401)])
def test_any_answer_shows_that_a_server_is_there(answer: Any):
    with FaultServer({"GET /v1/models": answer}) as server:
        upstream = Upstream("u", server.base_url, "sentinel-key-0123456789")
        assert asyncio.run(reaching(Transport())(upstream))
        (request,) = server.requests
        assert request.headers["authorization"] == "Bearer sentinel-key-0123456789"


def test_a_closed_port_and_a_silent_server_are_not_reached(monkeypatch: pytest.MonkeyPatch):
    with closed_port() as port:
        upstream = Upstream("u", f"http://127.0.0.1:{port}")
        assert not asyncio.run(reaching(Transport())(upstream))
    monkeypatch.setattr(pages, "PATIENCE_S", 0.05)
    with FaultServer({"GET /v1/models": hanging()}) as server:
        assert not asyncio.run(reaching(Transport())(Upstream("u", server.base_url)))


def test_numbers_are_those_of_the_registry():
    metrics = Metrics()
    metrics.silent_truncations.add(model="m")
    page = Pages(Ledger(), metrics.render, tuple, Readiness(Probed()))
    status, headers, body = ask(page, "/metrics")
    assert (status, headers[b"content-type"]) == (200, CONTENT_TYPE.encode())
    assert body == metrics.render().encode()
    assert b'ullage_silent_truncations_total{model="m"} 1' in body


def test_conversations_are_listed_and_shown_by_id():
    ledger = Ledger()
    named = Entry("team/chat 1", "cloud", "n", "anthropic", 13.0)
    ledger.note(HELD)
    ledger.note(named)
    page = made(ledger=ledger)
    listed = json.loads(ask(page, "/ullage/sessions")[2])
    assert listed["total"] == 2
    assert [row["id"] for row in listed["sessions"]] == [named.id, HELD.id]
    status, _, body = ask(page, f"/ullage/context/{HELD.id}")
    assert status == 200
    shown = json.loads(body)
    assert shown == listed["sessions"][1]
    assert (shown["used"], shown["window"], shown["tier"]) == (900, 1_000, "critical")
    assert json.loads(ask(page, "/ullage/context/team/chat 1")[2])["model"] == "n"


@pytest.mark.parametrize(
    ("path", "status"),
    [("/ullage/context/none", 404), ("/ullage/context/", 404), ("/ullage/other", 404)],
)
def test_what_there_is_not_is_said_so(path: str, status: int):
    found, _, body = ask(made(), path)
    assert found == status
    assert "error" in json.loads(body)


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics", "/ullage/sessions"])
def test_head_has_the_headers_alone_and_other_methods_are_refused(path: str):
    status, headers, body = ask(made(), path)
    assert ask(made(), path, "HEAD") == (status, headers, b"")
    assert headers[b"content-length"] == str(len(body)).encode()
    assert headers[b"cache-control"] == b"no-store"
    status, headers, body = ask(made(), path, "POST")
    assert (status, headers[b"allow"]) == (405, b"GET, HEAD")
    assert "POST is not allowed here" in json.loads(body)["error"]


def test_no_page_shows_a_secret_or_an_address():
    for path in (*pages.PATHS, "/ullage/context/x"):
        body = ask(made(), path)[2]
        assert b"sentinel" not in body
        assert b"127.0.0.1" not in body


@pytest.mark.parametrize(
    ("path", "ours"),
    [
        *((path, True) for path in pages.PATHS),
        ("/ullage/context/abc", True),
        *((path, False) for path in ("/v1/models", "/healthz/", "/ullage", "/metrics/x")),
    ],
)
def test_a_page_is_known_by_its_path(path: str, ours: bool):
    assert is_page(path) is ours
    told: Callable[[str], bool] = is_page
    assert path == "/" or not told(path.upper())
