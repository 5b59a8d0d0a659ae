"""One run of a job by what the log says, and the loop around it when its engine fails."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agent.thinking import Thinking
from tests.workers.hands import make_agent
from ullage.agent import Draft, Session
from ullage.core.errors import CorruptLog, StoreAway
from ullage.storage.log_sqlite import SqliteLog
from ullage.workers.engine import MOST_DEATHS, Loan, Post, Taken
from ullage.workers.engines.sqlite import SqliteEngine
from ullage.workers.job import JobOutcome, JobRow, TurnJob, make_job
from ullage.workers.performing import Performance, read_end
from ullage.workers.pulling import PullLoop


@pytest.fixture(scope="module")
def model() -> Iterator[Thinking]:
    with Thinking(()) as server:
        yield server


@pytest.fixture
def log(tmp_path: Path) -> Iterator[SqliteLog]:
    opened = SqliteLog(tmp_path / "state" / "log.db", lease_s=0.5)
    yield opened
    opened.close()


def perform(
    log: SqliteLog, folder: Path, model: Thinking, job: TurnJob, deaths: int = 0
) -> Performance:
    agents = {"default": make_agent(folder, model.base_url)}
    return Performance(job, deaths, log=log, agents=agents)


def end_turn(log: SqliteLog, kind: str, **more: Any) -> None:
    """Record a turn named `job` that ended so."""
    with Session.create(log, "s") as session:
        session.record([Draft("user_message", {"text": "hello"})])
        session.record([Draft("turn_started", {"turn": "job", "model": "m"})])
        said = {"text": "It is.", "model": "m", "round": 1}
        session.record([Draft("assistant_message", said), Draft(kind, {"turn": "job", **more})])


@pytest.mark.parametrize(
    ("kind", "more", "wanted"),
    [
        ("turn_completed", {}, ("done", "It is.", "")),
        ("turn_failed", {"reason": "stalled", "error": "silent"}, ("failed", "", "stalled")),
        ("turn_interrupted", {}, ("cancelled", "", "interrupted")),
    ],
)
def test_a_turn_that_has_ended_is_not_run_again(
    log: SqliteLog, tmp_path: Path, model: Thinking, kind: str, more: Any, wanted: Any
):
    end_turn(log, kind, **more)
    head = log.head("s").seq
    job = TurnJob(id="job", session="s", text="hello")
    outcome = asyncio.run(perform(log, tmp_path, model, job).run())
    assert outcome is not None
    assert (outcome.state, outcome.text, outcome.reason) == wanted
    assert log.head("s").seq == head


def test_an_end_that_is_not_there_is_damage(log: SqliteLog):
    end_turn(log, "turn_completed")
    with pytest.raises(CorruptLog, match="no end of turn other"):
        read_end(Session(log, "s"), "other")


def test_a_turn_runs_where_its_session_goes_on(log: SqliteLog, tmp_path: Path, model: Thinking):
    end_turn(log, "turn_completed")
    with Session(log, "s") as session, Session.create(log, "t"):
        session.record([Draft("subagent_event", {"continued_in": "t", "seq": 1})])
    outcome = asyncio.run(perform(log, tmp_path, model, make_job("s", "Do job one.")).run())
    assert outcome == JobOutcome(state="done", session="t", text="The job one is done.")


def test_a_job_that_workers_die_of_is_given_up(log: SqliteLog, tmp_path: Path, model: Thinking):
    job = make_job("s", "Do job one.")
    outcome = asyncio.run(perform(log, tmp_path, model, job, MOST_DEATHS).run())
    assert outcome is not None
    assert (outcome.state, outcome.reason) == ("failed", "crashed")
    assert "5 workers ended while they ran this job" in outcome.error


@pytest.mark.parametrize(("word", "state"), [("cancel", "cancelled"), ("let_go", None)])
def test_a_job_that_was_ended_before_it_ran_does_not(
    log: SqliteLog, tmp_path: Path, model: Thinking, word: str, state: str | None
):
    made = perform(log, tmp_path, model, make_job("s", "Do job one."))
    getattr(made, word)()
    outcome = asyncio.run(made.run())
    assert (None if outcome is None else outcome.state) == state


def test_a_session_that_is_held_for_too_long_gives_the_job_back(
    log: SqliteLog, tmp_path: Path, model: Thinking
):
    made = perform(log, tmp_path, model, make_job("s", "Do job one."))
    with Session.create(log, "s") as held:

        async def hold() -> JobOutcome | None:
            running = asyncio.create_task(made.run())
            while not running.done():
                held.heartbeat()
                await asyncio.sleep(0.05)
            return await running

        held.acquire()
        assert asyncio.run(hold()) is None


class Failing(SqliteEngine):
    """A queue whose every method fails the first time, as when its database is away."""

    def __init__(self, log: Path) -> None:
        super().__init__(log)
        self.failed: set[str] = set()

    def fail_once(self, name: str) -> None:
        if name not in self.failed:
            self.failed.add(name)
            raise StoreAway("the queue is away")

    async def enlist(self, post: Post) -> int:
        self.fail_once("enlist")
        return await super().enlist(post)

    async def take(self, worker: int) -> Taken | None:
        taken = await super().take(worker)
        self.fail_once("take")  # the answer is lost, what was done is not
        return taken

    async def settle(
        self, worker: int, number: int, attempt: int, outcome: JobOutcome | None
    ) -> bool:
        self.fail_once("settle")
        return await super().settle(worker, number, attempt, outcome)

    async def beat(self, worker: int, *, draining: bool) -> bool:
        self.fail_once("beat")
        return await super().beat(worker, draining=draining)

    async def list_lent(self, worker: int) -> list[Loan]:
        self.fail_once("list")
        return await super().list_lent(worker)


class Crashing:
    """A job that its worker fails on; another that waits until it is let go of."""

    def __init__(self, job: TurnJob) -> None:
        self._job = job
        self._over = asyncio.Event()

    async def run(self) -> JobOutcome | None:
        if self._job.text == "crash":
            raise ZeroDivisionError("a fault of ours")
        await self._over.wait()
        return None

    def cancel(self) -> None:
        self._over.set()

    def let_go(self) -> None:
        self._over.set()


async def reach(engine: SqliteEngine, job: str, state: str) -> JobRow:
    """Wait until a job is in a state, and return its row."""
    for _ in range(500):
        row = await engine.find(job)
        if row is not None and row.state == state:
            return row
        await asyncio.sleep(0.02)
    raise AssertionError(f"job {job} was never {state}")


def test_an_engine_that_is_away_for_a_moment_costs_no_job(tmp_path: Path):
    async def run() -> tuple[str, str, set[str]]:
        engine = Failing(tmp_path / "log.db")
        crash = await engine.submit(make_job("s", "crash"))
        wait = await engine.submit(make_job("t", "wait"))
        post = Post("one", 2, lease_s=2.0, drain_s=0.1)
        working = asyncio.create_task(PullLoop(engine, post, lambda job, _: Crashing(job)).run())
        row = await reach(engine, crash, "failed")
        error = row.outcome.error if row.outcome else ""
        await reach(engine, wait, "running")
        await engine.resign(1)  # it is taken for dead, and gives back what it has
        for _ in range(500):
            if [one.name for one in (await engine.report()).workers] == ["one"]:
                break
            await asyncio.sleep(0.02)
        await reach(engine, wait, "running")
        post.draining.set()
        await working
        left = await engine.find(wait)
        await engine.aclose()
        assert left is not None
        return error, left.state, engine.failed

    error, state, failed = asyncio.run(run())
    assert failed >= {"enlist", "take", "settle", "beat"}
    assert error == "the worker failed: ZeroDivisionError: a fault of ours"
    assert state == "waiting"


class Forgetful(SqliteEngine):
    """A queue whose answer to the first take is lost, though the job was taken."""

    def __init__(self, log: Path) -> None:
        super().__init__(log)
        self.lost = False

    async def take(self, worker: int) -> Taken | None:
        taken = await super().take(worker)
        if taken is not None and not self.lost:
            self.lost = True
            raise StoreAway("the answer is lost")
        return taken


class Quick(Crashing):
    """A job that takes a tenth of a second, and says what UTF-8 cannot carry."""

    async def run(self) -> JobOutcome | None:
        await asyncio.sleep(0.1)
        return JobOutcome(state="done", session="s", text="half a pair \ud83d")


def test_a_job_whose_loan_was_not_heard_of_is_run_while_the_worker_is_busy(tmp_path: Path):
    async def run() -> tuple[list[JobOutcome | None], int]:
        engine = Forgetful(tmp_path / "log.db")
        first = await engine.submit(make_job("s0", "wait"))
        ids = [first] + [await engine.submit(make_job(f"s{n}", "wait")) for n in range(1, 40)]
        post, begun = Post("one", 1, lease_s=10.0, drain_s=5.0), list[str]()

        def begin(job: TurnJob, _deaths: int) -> Quick:
            begun.append(job.id)
            return Quick(job)

        working = asyncio.create_task(PullLoop(engine, post, begin).run())
        row = await reach(engine, first, "done")
        left = sum(row.waiting for row in (await engine.report()).tenants)
        post.draining.set()
        await working
        await engine.aclose()
        assert begun.count(first) == 1
        assert len(set(begun)) == len(begun) <= len(ids)
        return [row.outcome], left

    (outcome,), left = asyncio.run(run())
    assert left > 0  # it was not the last: its turn came while others waited
    assert outcome is not None
    assert outcome.text == "half a pair ?"


class Refusing(SqliteEngine):
    """A queue that cannot write what a job came to."""

    async def settle(
        self, worker: int, number: int, attempt: int, outcome: JobOutcome | None
    ) -> bool:
        if outcome is not None and outcome.state == "done":
            raise ValueError("this cannot be written")
        return await super().settle(worker, number, attempt, outcome)


def test_an_outcome_that_cannot_be_written_fails_the_job_once(tmp_path: Path):
    async def run() -> str:
        engine = Refusing(tmp_path / "log.db")
        job = await engine.submit(make_job("s", "wait"))
        post = Post("one", 1, lease_s=1.0, drain_s=1.0)
        working = asyncio.create_task(PullLoop(engine, post, lambda job, _: Quick(job)).run())
        row = await reach(engine, job, "failed")
        post.draining.set()
        await working
        await engine.aclose()
        return "" if row.outcome is None else row.outcome.error

    assert asyncio.run(run()) == "the worker failed: ValueError: this cannot be written"


@pytest.mark.slow
def test_what_a_dead_worker_left_is_given_back(tmp_path: Path):
    async def run() -> list[Any]:
        engine = SqliteEngine(tmp_path / "log.db")
        ids = [await engine.submit(make_job(name, "wait")) for name in "ab"]
        worker = await engine.enlist(Post("one", 2, lease_s=0.1))
        taken = [await engine.take(worker) for _ in ids]
        assert all(taken)
        assert await engine.cancel(ids[0])
        await asyncio.sleep(0.2)
        assert await engine.reap() == 1
        assert not await engine.beat(worker, draining=False)
        assert taken[1] is not None
        assert not await engine.settle(worker, taken[1].number, taken[1].attempt, None)
        rows = [await engine.find(each) for each in ids]
        await engine.aclose()
        return [(row.state, row.attempts) for row in rows if row is not None]

    assert asyncio.run(run()) == [("cancelled", 0), ("waiting", 1)]
