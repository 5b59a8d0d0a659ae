"""A proxy over a PostgreSQL that hangs: requests go on, compacted as ever, and nothing is lost."""

from __future__ import annotations

import json
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.proxy.serving import (
    CHAT,
    WHOLE,
    Wire,
    asked,
    begun,
    conversation,
    posted,
    proxied,
)
from tests.proxy.sockets import serving
from tests.support.faults import FaultServer, of_json
from tests.support.postgres import Server, obtain
from tests.support.waiting import eventually
from ullage.storage import open_store


def grown(name: str, turns: int) -> dict[str, Any]:
    """Return a conversation of its own that is too large for its window."""
    body = conversation("openai_chat", turns, stream=False)
    body["messages"][0] = {**body["messages"][0], "content": f"This is {name}."}
    return body


@pytest.mark.timeout(120)
def test_a_database_that_hangs_holds_nobody_up_and_loses_no_compaction() -> None:
    with (
        Server(obtain()) as database,
        FaultServer({CHAT: of_json(WHOLE["openai_chat"])}) as upstream,
    ):
        url = database.created()
        store = open_store(url)
        with proxied(upstream.root_url, store=store) as proxy:
            first = proxy.post(CHAT, grown("first", 20))
            assert "x-ullage-compaction" in first.headers
            with database.pause(), ThreadPoolExecutor(8) as pool:
                bodies = [grown(f"number {n}", 20) for n in range(16)]
                got = list(pool.map(lambda body: proxy.post(CHAT, body), bodies))
                assert proxy.client.get(f"{proxy.url}/healthz").status_code == 200
                ready = proxy.client.get(f"{proxy.url}/readyz").json()
                assert (ready["status"], ready["store"]) == ("ready", False)
                again = list(pool.map(lambda body: proxy.post(CHAT, body), bodies))
            assert {answer.status_code for answer in [*got, *again]} == {200}
            assert all("x-ullage-compaction" in answer.headers for answer in [*got, *again])
            sent = [json.loads(request.body)["messages"] for request in asked(upstream)]
            by_name = {str(m[0]): [s for s in sent if str(s[0]) == str(m[0])] for m in sent}
            assert all(one == two for one, two in (v for v in by_name.values() if len(v) == 2))
            eventually(lambda: proxy.shown("ullage_store_away_seconds") == 0)
            assert proxy.shown("ullage_store_waiting_changes") == 0
            assert proxy.shown("ullage_guard_faults_total") == 0
        assert len(store.checkpoints.all()) == 17
        store.close()


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_the_end_comes_in_time_whatever_the_store_and_the_upstream_do(tmp_path: Path) -> None:
    """`drain_s` and two seconds are promised; without a bound it is the store's 30 and more."""
    with (
        Server(obtain()) as database,
        Wire(begun(b": wait\n\n"), held=True) as upstream,
        serving(tmp_path, [upstream.root_url], store=database.created(), drain_s=1) as proxy,
        ThreadPoolExecutor(1) as pool,
    ):
        url = f"http://127.0.0.1:{proxy.port}{CHAT}"
        client = httpx2.Client(timeout=60, trust_env=False)
        with database.pause():
            stream = pool.submit(posted, client, url, grown("a stream", 400))
            eventually(lambda: len(upstream.bodies) == 1)
            began = time.monotonic()
            os.kill(proxy.pid, signal.SIGTERM)
            eventually(lambda: not proxy.alive)
            assert time.monotonic() - began < 15
        stream.exception(20)
        client.close()
