"""Workers that die, stop or lose the database: their turns go on elsewhere, each effect once."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing

import psycopg
import pytest

from tests.agent.thinking import Thinking
from tests.support.waiting import eventually
from tests.workers.crew import ENGINES, Crew, across, check_log, end
from ullage.storage.opening import open_log
from ullage.workers import JobQueue, TenantLimits

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="processes are stopped and looked at"
)

MakeCrew = Callable[..., Crew]


@pytest.mark.slow
@pytest.mark.parametrize("engine", across(*ENGINES))
def test_a_submitted_turn_is_run_by_a_worker_and_its_answer_comes_back(
    engine: str, make_crew: MakeCrew
):
    crew = make_crew(engine)
    with JobQueue(crew.store, engine) as queue:
        ticket = queue.submit("s", "Do job one.", tenant="a")
        member = crew.start()
        outcome = ticket.result(60)
        assert (outcome.state, outcome.text) == ("done", "The job one is done.")
        assert end(member) == 0, crew.said()
    assert set(crew.count_effects().values()) == {1}
    with closing(open_log(crew.store)) as log:
        assert check_log(log, "s")["turn_completed"] == 1


def wait_for_slow(crew: Crew, count: int = 1) -> None:
    """Wait until a worker is in the middle of the slow tool."""
    file = crew.folder / "slow"
    eventually(lambda: file.exists() and len(file.read_text().splitlines()) >= count)


def finish(crew: Crew, queue: JobQueue, job: str, lost_at: float, free_at: float) -> float:
    """Wait for a job's end elsewhere; return the seconds from when the lease allowed it."""
    with closing(open_log(crew.store)) as log:
        seconds: list[float] = []

        def is_taken_over() -> bool:
            taken = [each for each in log.leases("s") if each.epoch > 1]
            if taken and not seconds:
                seconds.append(time.monotonic() - free_at)
            return bool(taken)

        eventually(is_taken_over)
        row = queue.find(job)
        assert row is not None
        outcome = queue.ticket(row).result(60)
        assert outcome.state == "done", (outcome, crew.said())
        assert time.monotonic() > lost_at
        counted = check_log(log, "s")
        assert counted["turn_started"] == counted["turn_completed"] == 1
        results = [e.data["text"] for e in log.read("s") if e.type == "tool_result"]
        assert sum("whether it ran is unknown" in text for text in results) == 1
    assert set(crew.count_effects().values()) == {1}
    assert len((crew.folder / "slow").read_text().splitlines()) == 1
    return seconds[0]


@pytest.fixture(scope="module")
def slow_model():
    with Thinking(((("bump", {}),), (("slow", {}),), (("bump", {}),))) as server:
        yield server


@pytest.mark.slow
@pytest.mark.parametrize("engine", across("sqlite", "procrastinate"))
def test_the_turn_of_a_killed_worker_goes_on_elsewhere_within_three_seconds(
    engine: str, make_crew: MakeCrew, slow_model: Thinking
):
    crew = make_crew(engine, lease_s=20.0, model_url=slow_model.base_url)
    first = crew.start("one")
    with JobQueue(crew.store, engine) as queue:
        ticket = queue.submit("s", "Do job one.")
        wait_for_slow(crew)
        crew.start("two")
        eventually(lambda: len(queue.report().workers) == 2)
        end(first, signal.SIGKILL)
        now = time.monotonic()
        assert finish(crew, queue, ticket.id, now, now) < 3


@pytest.mark.slow
@pytest.mark.parametrize("engine", across("procrastinate"))
def test_a_worker_of_the_same_name_goes_on_with_what_it_left(
    engine: str, make_crew: MakeCrew, slow_model: Thinking
):
    crew = make_crew(engine, lease_s=20.0, model_url=slow_model.base_url)
    first = crew.start("one")
    with JobQueue(crew.store, engine) as queue:
        ticket = queue.submit("s", "Do job one.")
        wait_for_slow(crew)
        end(first, signal.SIGKILL)
        now = time.monotonic()
        crew.start("one")
        finish(crew, queue, ticket.id, now, now)


@pytest.mark.slow
@pytest.mark.parametrize("engine", across("sqlite", "procrastinate"))
def test_a_worker_that_was_stopped_past_its_lease_does_nothing_more(
    engine: str, make_crew: MakeCrew, slow_model: Thinking
):
    lease_s = 2.0
    crew = make_crew(engine, lease_s=lease_s, model_url=slow_model.base_url)
    first = crew.start("one")
    with JobQueue(crew.store, engine) as queue:
        ticket = queue.submit("s", "Do job one.")
        wait_for_slow(crew)
        crew.start("two")
        eventually(lambda: len(queue.report().workers) == 2)
        first.send_signal(signal.SIGSTOP)
        now = time.monotonic()
        assert finish(crew, queue, ticket.id, now, now + lease_s) < 3
        with closing(open_log(crew.store)) as log:
            before = log.read("s")
            first.send_signal(signal.SIGCONT)
            eventually(lambda: len(queue.report().workers) == 2)  # it is known anew
            assert log.read("s") == before
        assert end(first) == 0


@pytest.mark.parametrize("engine", across("procrastinate"))
def test_turns_under_way_are_left_to_others_when_a_drain_takes_too_long(
    engine: str, make_crew: MakeCrew, slow_model: Thinking
):
    crew = make_crew(engine, lease_s=20.0, model_url=slow_model.base_url)
    first = crew.start("one", "--drain-s", "0.2")
    with JobQueue(crew.store, engine) as queue:
        ticket = queue.submit("s", "Do job one.")
        wait_for_slow(crew)
        assert end(first) == 0
        now = time.monotonic()
        crew.start("two")
        finish(crew, queue, ticket.id, now, now)


def run_through_kills(crew: Crew, turns: int, kills: int, cut: Callable[[], object]) -> None:
    """Run turns on three workers while they are killed one by one, and started again."""
    members = [crew.start(name) for name in ("one", "two", "three")]
    with JobQueue(crew.store, crew.engine) as queue:
        queue.set_limits("default", TenantLimits(12, turns))
        sessions = max(turns // 5, 1)
        tickets = [queue.submit(f"s{i % sessions}", f"Do job n{i}.") for i in range(turns)]
        for number in range(kills):
            goal = turns * (number + 1) // (kills + 2)
            while turns - count_left(queue) < goal:
                assert members
            place = number % 3
            end(members[place], signal.SIGKILL)
            cut()
            members[place] = crew.start(("one", "two", "three")[place])
        outcomes = [ticket.result(600) for ticket in tickets]
    assert {outcome.state for outcome in outcomes} == {"done"}, crew.said()[-2000:]
    assert set(crew.count_effects().values()) == {1}
    with closing(open_log(crew.store)) as log:
        found = sum((check_log(log, f"s{i}") for i in range(sessions)), Counter())
    assert found["turn_started"] == found["turn_completed"] == turns
    assert sum(crew.count_effects().values()) <= turns * 3


def count_left(queue: JobQueue) -> int:
    """Return how many jobs have not ended; not too often, since the model runs in this process."""
    threading.Event().wait(0.1)
    return sum(row.waiting + row.running for row in queue.report(0).tenants)


@pytest.mark.slow
@pytest.mark.parametrize("engine", across("procrastinate"))
def test_turns_run_once_each_though_workers_are_killed(engine: str, make_crew: MakeCrew):
    run_through_kills(make_crew(engine, lease_s=3.0), 30, 2, lambda: None)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("engine", ENGINES)
def test_a_thousand_turns_run_once_each_through_twenty_kills(engine: str, make_crew: MakeCrew):
    run_through_kills(make_crew(engine, lease_s=3.0), 1_000, 20, lambda: None)


@pytest.mark.slow
@pytest.mark.parametrize("engine", across("procrastinate")[1:])
def test_turns_run_once_each_though_connections_to_the_database_are_cut(
    engine: str, make_crew: MakeCrew
):
    crew = make_crew(engine, lease_s=3.0)

    def cut() -> None:
        with psycopg.connect(crew.store, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )

    run_through_kills(crew, 30, 2, cut)
