"""Who is let in: bounds of one client and of all, as requests, bytes and a pace."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.proxy.serving import CHAT, WHOLE, Wire, begun, proxied, talk
from tests.support.clock import FakeClock
from tests.support.faults import FaultServer, of_json
from tests.support.waiting import eventually
from ullage.config.serving import Serve, Upstream
from ullage.proxy import admission as room
from ullage.proxy.admission import Admission
from ullage.proxy.body import RequestRefused

ALL: dict[str, Any] = {"most_requests": 3, "client_requests": 2, "most_bytes": 100}


def made(**more: Any) -> tuple[Admission, list[str], FakeClock]:
    told: list[str] = []
    clock = FakeClock()
    serve = Serve((Upstream("main", "http://127.0.0.1:9"),), **{**ALL, "client_bytes": 60, **more})
    return Admission(serve, told.append, clock), told, clock


def test_a_client_over_its_bounds_is_told_to_come_again_and_others_are_not() -> None:
    async def scene() -> None:
        admission, told, _ = made()
        async with admission.admit("a") as one, admission.admit("a"):
            with pytest.raises(RequestRefused, match="client_requests") as refused:
                async with admission.admit("a"):
                    pass
            assert (refused.value.status, refused.value.again_s) == (429, room.AGAIN_S)
            one.take(60)
            with pytest.raises(RequestRefused, match="client_bytes"):
                one.take(1)
            async with admission.admit("b") as other:
                other.take(40)
                with pytest.raises(RequestRefused, match="`most_bytes`"):
                    other.take(1)
        assert told == ["client_requests", "client_bytes", "most_bytes"]
        assert (admission.size, dict(admission.requests)) == (0, {})
        async with admission.admit("a") as again:
            again.take(60)

    asyncio.run(scene())


def test_what_waits_for_each_that_is_let_in_is_told() -> None:
    async def scene() -> None:
        admission, _, _ = made(most_requests=1)

        async def enter(client: str) -> None:
            async with admission.admit(client):
                pass

        async with admission.admit("a"):
            assert admission.crowding == 0
            waiting = [asyncio.create_task(enter(client)) for client in ("b", "c")]
            await asyncio.sleep(0)
            assert admission.crowding == 2
        await asyncio.gather(*waiting)
        assert admission.crowding == 0

    asyncio.run(scene())


def test_where_the_proxy_is_full_requests_wait_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "WAIT_S", 0.05)

    async def scene() -> None:
        admission, told, _ = made()
        async with admission.admit("a"), admission.admit("a"), admission.admit("b"):
            with pytest.raises(RequestRefused, match="most_requests"):
                async with admission.admit("c"):
                    pass
        assert told == ["most_requests"]
        assert dict(admission.requests) == {}
        async with admission.admit("c"):
            pass

    asyncio.run(scene())


def test_a_client_asks_as_often_as_its_rate_says() -> None:
    async def scene() -> None:
        admission, told, clock = made(client_rate=2.0)

        async def ask(client: str = "a") -> None:
            async with admission.admit(client):
                pass

        await ask()
        await ask()
        with pytest.raises(RequestRefused, match="client_rate"):
            await ask()
        await ask("b")
        clock.advance(0.5)
        await ask()
        with pytest.raises(RequestRefused, match="client_rate"):
            await ask()
        assert told == ["client_rate", "client_rate"]

    asyncio.run(scene())


def test_the_bounds_hold_for_a_proxy_and_are_counted() -> None:
    body = json.dumps(talk("openai_chat", stream=False)).encode()
    with (
        FaultServer({CHAT: of_json(WHOLE["openai_chat"])}) as upstream,
        proxied(upstream.root_url, client_bytes=len(body)) as proxy,
    ):
        assert proxy.post(CHAT, body).status_code == 200
        refused = proxy.post(CHAT, body + b" ")
        assert refused.status_code == 429
        assert refused.headers["retry-after"] == str(room.AGAIN_S)
        assert refused.headers["x-ullage-error"] == "proxy_busy"
        assert "client_bytes" in refused.json()["error"]["message"]
        assert proxy.shown("ullage_requests_refused_total", bound="client_bytes") == 1
        assert proxy.shown("ullage_request_bytes") == 0


def test_one_token_holder_takes_no_place_from_another() -> None:
    tokens = {"ann": "a" * 24, "bob": "b" * 24}
    with (
        Wire(begun(b": wait\n\n"), held=True) as upstream,
        proxied(upstream.root_url, tokens=tokens, client_requests=2) as proxy,
        ThreadPoolExecutor(4) as pool,
    ):
        ann = {"authorization": "Bearer " + tokens["ann"]}
        asked = [pool.submit(proxy.post, CHAT, talk("openai_chat"), **ann) for _ in range(2)]
        eventually(lambda: len(upstream.bodies) == 2)
        assert proxy.post(CHAT, talk("openai_chat"), **ann).status_code == 429
        bob = {"authorization": "Bearer " + tokens["bob"]}
        asked.append(pool.submit(proxy.post, CHAT, talk("openai_chat"), **bob))
        eventually(lambda: len(upstream.bodies) == 3)
        upstream.__exit__()
        for each in asked:
            each.exception(20)
