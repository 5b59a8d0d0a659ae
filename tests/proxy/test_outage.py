"""A proxy over a PostgreSQL that hangs: requests go on, compacted as ever, and nothing is lost."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.proxy.serving import CHAT, WHOLE, asked, conversation, proxied
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
