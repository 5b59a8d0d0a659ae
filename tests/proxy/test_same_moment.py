"""Two replicas that compact the same conversation at the same moment send the same bytes."""

from __future__ import annotations

import threading
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import pytest

from tests.proxy.serving import CHAT, WHOLE, Proxy, asked, conversation, proxied
from tests.support.faults import FaultServer, of_json
from tests.support.postgres import Server, obtain
from tests.support.waiting import eventually
from ullage.config.serving import ModelRule
from ullage.storage import open_store

RULES: Final = (ModelRule(window=4_096),)
CONVERSATIONS: Final = 12


def begin(stack: ExitStack, upstream: FaultServer, url: str) -> Proxy:
    store = open_store(url)
    stack.callback(store.close)
    return stack.enter_context(proxied(upstream.root_url, store=store, rules=RULES))


def large(name: str) -> dict[str, Any]:
    body = conversation("openai_chat", 12, stream=False, user=name)
    body["messages"][0] = {**body["messages"][0], "content": f"This is {name}."}
    return body


def send_at_once(proxies: tuple[Proxy, Proxy], body: dict[str, Any]) -> None:
    """Send the same request to both at the same moment."""
    barrier = threading.Barrier(2)

    def send(proxy: Proxy) -> int:
        barrier.wait(20)
        return proxy.post(CHAT, body).status_code

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(send, proxies)) == [200, 200]


def list_bodies(upstream: FaultServer) -> dict[bytes, list[bytes]]:
    """Return the bodies that reached the server, by the first message of their conversation."""
    found: dict[bytes, list[bytes]] = defaultdict(list)
    for request in asked(upstream):
        found[request.body.partition(b"This is ")[2].partition(b".")[0]].append(request.body)
    return found


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_the_loser_takes_the_bytes_of_the_winner(
    engine: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    url = f"sqlite:{tmp_path}/store.db"
    if engine == "postgres":
        url = request.getfixturevalue("postgres_database")()
    with ExitStack() as stack:
        upstream = stack.enter_context(FaultServer({CHAT: of_json(WHOLE["openai_chat"])}))
        proxies = begin(stack, upstream, url), begin(stack, upstream, url)
        for number in range(CONVERSATIONS):
            send_at_once(proxies, large(f"n{number}"))
        bodies = list_bodies(upstream)
    assert len(bodies) == CONVERSATIONS
    for sent in bodies.values():
        assert len(sent) == 2
        assert sent[0] == sent[1]
        assert len(sent[0]) < len(str(large("n0"))) // 2, "it was compacted"


@pytest.mark.timeout(120)
def test_replicas_agree_again_once_a_store_that_was_away_is_back() -> None:
    with ExitStack() as stack:
        database = stack.enter_context(Server(obtain()))
        upstream = stack.enter_context(FaultServer({CHAT: of_json(WHOLE["openai_chat"])}))
        url = database.created()
        one, two = begin(stack, upstream, url), begin(stack, upstream, url)
        send_at_once((one, two), large("before"))
        with database.pause():
            for name in ("before", "meanwhile"):
                send_at_once((one, two), large(name))
        for proxy in (one, two):
            eventually(lambda p=proxy: p.shown("ullage_store_away_seconds") == 0)  # type: ignore[misc]
        for name in ("before", "meanwhile"):
            for proxy in (one, two, one, two):
                assert proxy.post(CHAT, large(name)).status_code == 200
        bodies = list_bodies(upstream)
    assert len(set(bodies[b"before"])) == 1
    assert len({*bodies[b"meanwhile"][-4:]}) == 1
    assert len([*groupby(bodies[b"meanwhile"][2:])]) == 1
