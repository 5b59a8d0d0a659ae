"""A hundred sessions at once on two workers: fair by tenant, limits held, cancelled in a second."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing

import pytest

from tests.agent.thinking import Thinking
from tests.support.waiting import eventually
from tests.workers.crew import Crew, across
from ullage.storage.opening import open_log
from ullage.workers import JobQueue, TenantLimits

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="workers are processes"),
    pytest.mark.slow,
]

LIMITS = {"large": 4, "middle": 3, "small": 2}

MakeCrew = Callable[..., Crew]


def run_sessions(crew: Crew, jobs: dict[str, int]) -> tuple[Counter[str], list[str]]:
    """Run one turn in each of many sessions; return the most that ran at once, and who ended."""
    with JobQueue(crew.store, crew.engine) as queue:
        for tenant, most in LIMITS.items():
            queue.set_limits(tenant, TenantLimits(most, 1_000))
        tickets = [
            queue.submit(f"{tenant}{n}", f"Do job {tenant}{n}.", tenant=tenant)
            for tenant, count in jobs.items()
            for n in range(count)
        ]
        crew.start("one", "--slots", "4")
        crew.start("two", "--slots", "4")
        seen: Counter[str] = Counter()
        while left := queue.report(0).tenants:
            seen |= Counter({row.name: row.running for row in left})
            if not any(row.waiting + row.running for row in left):
                break
            threading.Event().wait(0.05)
        rows = [queue.find(ticket.id) for ticket in tickets]
    ended = sorted((row.ended, row.job.tenant, row.state) for row in rows if row is not None)
    assert [state for _, _, state in ended] == ["done"] * sum(jobs.values()), crew.said()
    return seen, [tenant for _, tenant, _ in ended]


def check_fair(most: Counter[str], ended: list[str]) -> None:
    assert all(most[tenant] <= limit for tenant, limit in LIMITS.items())
    last = {tenant: len(ended) - ended[::-1].index(tenant) for tenant in LIMITS}
    assert last["small"] < last["middle"] < last["large"]  # though it was submitted last


@pytest.mark.parametrize("engine", ["sqlite"])
def test_tenants_share_workers_and_stay_within_their_limits(engine: str, make_crew: MakeCrew):
    most, ended = run_sessions(make_crew(engine), {"large": 24, "middle": 12, "small": 4})
    check_fair(most, ended)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("engine", ["procrastinate", "sqlite", "dbos"])
def test_a_hundred_sessions_share_two_workers(engine: str, make_crew: MakeCrew):
    crew = make_crew(engine)
    most, ended = run_sessions(crew, {"large": 60, "middle": 30, "small": 10})
    check_fair(most, ended)
    assert "small" not in ended[len(ended) // 2 :]


@pytest.mark.parametrize("engine", across("procrastinate"))
def test_a_turn_in_another_process_is_cancelled_within_a_second(engine: str, make_crew: MakeCrew):
    with Thinking(((("slow", {}),),)) as model:
        crew = make_crew(engine, model_url=model.base_url)
        with JobQueue(crew.store, engine) as queue:
            crew.start()
            tickets = [queue.submit(f"s{n}", "Do job one.") for n in range(4)]
            eventually(
                lambda: (
                    (crew.folder / "slow").exists()
                    and len((crew.folder / "slow").read_text().splitlines()) == 4
                )
            )
            begun = time.monotonic()
            assert all(ticket.cancel() for ticket in tickets)
            with closing(open_log(crew.store)) as log:
                eventually(
                    lambda: all(log.read(f"s{n}")[-1].type == "turn_interrupted" for n in range(4))
                )
            took = time.monotonic() - begun
            assert took < 1
            assert {ticket.result(10).state for ticket in tickets} == {"cancelled"}
