"""Two proxies over one PostgreSQL, killed and started again under load.

Each is a process of its own, as `ullage serve` starts it. A client goes to the other one when its
proxy is gone, as a balancer would send it.
"""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest

from tests.proxy.balancing import PATIENCE_S, Replica
from tests.proxy.rolling import Outcome, Run, run_rolling
from tests.proxy.strangers import MODEL, PROSE, Stranger
from tests.support.waiting import eventually

WINDOW: Final = 4_096
CLIENTS, TURNS = 4, 24
KILLS: Final = 6

CHAT: Final = "/v1/chat/completions"

pytestmark = pytest.mark.slow


@pytest.fixture
def server() -> Iterator[Stranger]:
    running = Stranger()
    running.window = 10**9  # the operator's word holds, not the server's
    with running:
        yield running


@pytest.fixture
def replicas(
    server: Stranger,
    postgres_database: Callable[[], str],
    tmp_path: Path,
) -> Iterator[tuple[Replica, Replica]]:
    store = postgres_database()
    with ExitStack() as stack:
        made = [
            stack.enter_context(
                Replica(server.root_url, store, tmp_path / f"{name}.log", "--window", f"{WINDOW}")
            )
            for name in ("one", "two")
        ]
        yield made[0], made[1]


def history(client: int, turns: int) -> list[dict[str, Any]]:
    """Return the history of a client after so many turns; answers are as the server gives them."""
    said: list[dict[str, Any]] = [{"role": "system", "content": f"You are clerk {client}."}]
    for turn in range(turns):
        said.append({"role": "user", "content": f"Question {turn} of {client}: {PROSE * 2}"})
        said.append({"role": "assistant", "content": f"Answer {turn}: {PROSE * 2}"})
    return [*said, {"role": "user", "content": "And now?"}]


def body(client: int, turns: int, tag: str) -> dict[str, Any]:
    return {"model": MODEL, "messages": history(client, turns), "max_tokens": 64, "user": tag}


class Load:
    """Clients at work: each sends every history to the one proxy, then to the other."""

    def __init__(self, replicas: tuple[Replica, Replica]) -> None:
        self._replicas = replicas
        self._ended = threading.Event()
        self.answered = 0
        self.lost = 0
        self.refused: list[str] = []

    def hold(self, client: int) -> None:
        """Hold one client's conversation from its beginning to its end."""
        with httpx2.Client(timeout=30, trust_env=False) as http:
            for turns in range(1, TURNS + 1):
                for number in (client, client + 1):
                    self._sent(http, client, turns, number)

    def reached(self, answers: int) -> bool:
        """Tell whether so many requests were answered."""
        return self.answered >= answers

    def end(self) -> None:
        """Have nobody try again."""
        self._ended.set()

    def _sent(self, http: httpx2.Client, client: int, turns: int, number: int) -> None:
        """Send a history to a proxy; where that is gone, to the other, until one answers."""
        while not self._ended.is_set():
            url = self._replicas[number % 2].url + CHAT
            try:
                answer = http.post(url, json=body(client, turns, f"{client}/{turns}"))
            except httpx2.TransportError:
                self.lost += 1
                number += 1
                continue
            if answer.status_code != 200 or "x-ullage-context" not in answer.headers:
                self.refused.append(f"{answer.status_code} {answer.text:.200}")
            self.answered += 1
            return


def shapes(server: Stranger) -> dict[str, list[bytes]]:
    """Return the messages of all prompts as they reached the server, by client and turn."""
    found: dict[str, list[bytes]] = defaultdict(list)
    for prompt in server.prompts:
        fields = prompt.fields
        found[fields["user"]].append(json.dumps(fields["messages"]).encode())
    return found


def test_a_known_prefix_comes_out_in_the_same_bytes_from_either(
    replicas: tuple[Replica, Replica], server: Stranger
) -> None:
    one, two = replicas
    with httpx2.Client(timeout=30, trust_env=False) as http:
        for replica in (one, two, one, two):
            answer = http.post(replica.url + CHAT, json=body(0, TURNS, "known"))
            assert answer.status_code == 200
        one.kill()
        one.start()
        assert http.post(one.url + CHAT, json=body(0, TURNS, "known")).status_code == 200
    bodies = {prompt.body for prompt in server.prompts}
    assert len(server.prompts) == 5
    assert len(bodies) == 1
    assert len(json.loads(bodies.pop())["messages"]) < len(history(0, TURNS))


def test_replicas_that_are_killed_under_load_lose_nothing_and_fail_nobody(
    replicas: tuple[Replica, Replica], server: Stranger
) -> None:
    load = Load(replicas)
    clients = [threading.Thread(target=load.hold, args=(n,)) for n in range(CLIENTS)]
    for client in clients:
        client.start()
    try:
        expected = CLIENTS * TURNS * 2
        for kill in range(KILLS):
            due = expected * (kill + 1) // (KILLS + 2)
            eventually(partial(load.reached, due), within_s=PATIENCE_S)
            replicas[kill % 2].kill()
            replicas[kill % 2].start()
        for client in clients:
            client.join(PATIENCE_S)
    finally:
        load.end()
        for client in clients:
            client.join(PATIENCE_S)
    assert load.refused == []
    assert load.lost > 0
    assert load.answered == expected
    known = shapes(server)
    assert len(known) == CLIENTS * TURNS
    compacted = 0
    for tag, sent in known.items():
        shapes_in_order = [one for one, _ in groupby(sent)]
        # A replica that has not heard the last report may plan ahead of the other; none goes back.
        assert len(shapes_in_order) == len(set(shapes_in_order))
        compacted += len(json.loads(sent[-1])) < _length(tag)
    assert compacted > CLIENTS * TURNS // 4
    assert all(prompt.tokens < WINDOW for prompt in server.prompts)


def _length(tag: str) -> int:
    client, _, turns = tag.partition("/")
    return len(history(int(client), int(turns)))


# --- behind a dumb balancer -----------------------------------------------------------------------


def check(outcome: Outcome, *, restarts: int, turns: int) -> None:
    """Hold a run to what is promised."""
    found = outcome.prefixes
    assert outcome.failures == []
    assert len(outcome.restarts.at) >= restarts
    assert outcome.turns >= turns
    assert all(record.turns for record in outcome.records.values())
    if not outcome.outages:  # on a machine that is too busy for an answer in a second
        assert (found.went_back, found.unpinned) == ([], [])
    assert found.compacted > 0
    assert found.again > 0
    assert outcome.refused > 0, "a limit was learned"
    assert "Traceback" not in outcome.logs


@pytest.mark.timeout(120)
def test_a_rolling_restart_under_mixed_traffic_fails_no_turn(
    postgres_database: Callable[[], str], tmp_path: Path
) -> None:
    run = Run(seconds=12, every_s=3, window=2_500, sizes=(3, 12), turns=20)
    outcome = run_rolling(run, postgres_database(), tmp_path)
    check(outcome, restarts=1, turns=50)  # how many there are hangs on the machine
    assert set(outcome.restarts.codes) == {0}
    assert outcome.pinned


@pytest.mark.long
@pytest.mark.timeout(1_200)
def test_ten_minutes_of_rolling_restarts_fail_no_turn(
    postgres_database: Callable[[], str], tmp_path: Path
) -> None:
    outcome = run_rolling(Run(seconds=600, every_s=20), postgres_database(), tmp_path)
    check(outcome, restarts=20, turns=5_000)
    assert set(outcome.restarts.codes) == {0}
    assert outcome.pinned


@pytest.mark.long
@pytest.mark.timeout(600)
def test_of_replicas_that_are_killed_only_what_was_under_way_fails(
    postgres_database: Callable[[], str], tmp_path: Path
) -> None:
    run = Run(seconds=180, every_s=10, kills=True)
    check(run_rolling(run, postgres_database(), tmp_path), restarts=10, turns=1_000)
