"""What a queue promises, the same on every engine: keys, limits, priorities, order, cancelling."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from tests.agent.thinking import Thinking
from tests.support import postgres
from tests.support.waiting import eventually
from tests.workers.crew import across
from tests.workers.hands import make_agent, make_worker
from ullage.agent import Event, Live, Session
from ullage.core.errors import ConfigurationError, QueueFull, StoreError
from ullage.storage.opening import open_log
from ullage.workers import JobQueue, TenantLimits
from ullage.workers.engine import Post
from ullage.workers.engines import procrastinate
from ullage.workers.engines.procrastinate import ProcrastinateEngine
from ullage.workers.job import make_job
from ullage.workers.opening import choose_engine, open_engine

FindStore = Callable[[str], str]


@pytest.fixture(params=across("sqlite", "procrastinate"))
def engine(request: pytest.FixtureRequest) -> str:
    named: str = request.param
    return named


@pytest.fixture
def store(engine: str, find_store: FindStore) -> str:
    return find_store(engine)


@pytest.fixture
def queue(store: str, engine: str):
    with JobQueue(store, engine) as opened:
        yield opened


@pytest.fixture(scope="module")
def plain_model():
    with Thinking(()) as server:
        yield server


@pytest.fixture(scope="module")
def slow_model():
    with Thinking(((("slow", {}),),)) as server:
        yield server


def test_a_job_that_is_there_by_its_key_is_told_with_its_own_session(queue: JobQueue):
    first = queue.submit("one", "Do job one.", key="k")
    again = queue.submit("two", "Do job one.", key="k")
    assert (again.id, again.session) == (first.id, "one")


def test_jobs_of_one_key_are_one_job_of_a_tenant(queue: JobQueue):
    first = queue.submit("s", "Do job one.", tenant="a", key="k")
    again = queue.submit("s", "Do job one.", tenant="a", key="k")
    other = queue.submit("s", "Do job one.", tenant="b", key="k")
    assert first.id == again.id != other.id
    assert [row.waiting for row in queue.report().tenants] == [1, 1]


def test_a_job_more_than_may_wait_is_refused_with_the_numbers(queue: JobQueue):
    queue.set_limits("a", TenantLimits(running=2, waiting=3))
    for number in range(3):
        queue.submit(f"s{number}", "Do job one.", tenant="a")
    with pytest.raises(QueueFull, match=r"3 jobs of tenant a wait, and 3 may") as caught:
        queue.submit("s", "Do job one.", tenant="a")
    assert (caught.value.waiting, caught.value.limit) == (3, 3)
    queue.submit("s", "Do job one.", tenant="b")
    report = queue.report(2)
    assert [(row.name, row.most_running, row.most_waiting) for row in report.tenants] == [
        ("a", 2, 3),
        ("b", 8, 1_000),
    ]
    assert len(report.jobs) == 2


def test_a_job_that_waits_is_cancelled_and_one_that_ended_is_not(queue: JobQueue):
    ticket = queue.submit("s", "Do job one.")
    assert ticket.cancel()
    outcome = ticket.result(10)
    assert (outcome.state, outcome.session, outcome.ok) == ("cancelled", "s", False)
    assert not ticket.cancel()
    assert not queue.cancel("nothing")
    assert queue.find("nothing") is None
    row = queue.find(ticket.id)
    assert row is not None
    assert row.state == "cancelled"
    assert queue.ticket(row).id == ticket.id


def test_a_job_that_is_not_there_is_said_so(queue: JobQueue):
    ticket = queue.submit("s", "Do job one.")
    ticket.id = "nothing"
    with pytest.raises(ConfigurationError, match="there is no job nothing"):
        ticket.result(10)


def test_who_waits_for_an_answer_that_does_not_come_gives_up(queue: JobQueue):
    with pytest.raises(TimeoutError):
        queue.submit("s", "Do job one.").result(0.3)


def test_a_turn_runs_and_its_events_come_to_whoever_listens(
    queue: JobQueue, store: str, engine: str, tmp_path: Path, model: Thinking
):
    agent = make_agent(tmp_path, model.base_url)

    async def follow() -> list[Event | Live]:
        ticket = await agent.asubmit(queue, "s", "Do job one.", tenant="a")
        following = asyncio.create_task(collect(ticket.events()))
        with make_worker(store, tmp_path, model.base_url, engine):
            outcome = await ticket.aresult(60)
            told: list[Event | Live] = await following
        assert outcome.text == "The job one is done."
        return told

    async def collect(events):
        return [told async for told in events]

    told = asyncio.run(follow())
    recorded = [event for event in told if isinstance(event, Event)]
    assert [recorded[0].type, recorded[-1].type] == ["turn_started", "turn_completed"]
    seqs = [event.seq for event in recorded]
    assert seqs == list(range(seqs[0], seqs[-1] + 1))
    live = "".join(t.data["text"] for t in told if isinstance(t, Live) and t.type == "text_delta")
    assert bool(live) == (engine == "procrastinate")
    row = queue.find(recorded[0].data["turn"])
    assert row is not None
    assert row.state == "done"
    assert row.ended > row.submitted > 0


def test_jobs_of_a_tenant_run_by_priority_and_those_of_a_session_in_order(
    queue: JobQueue, store: str, engine: str, tmp_path: Path, plain_model: Thinking
):
    jobs = [("s", 0), ("t", 5), ("u", -5), ("s", 0), ("v", 5)]
    tickets = [
        queue.submit(name, f"Do job n{place}.", priority=priority)
        for place, (name, priority) in enumerate(jobs)
    ]
    with make_worker(store, tmp_path, plain_model.base_url, engine, slots=1):
        assert {ticket.result(60).state for ticket in tickets} == {"done"}
    begun = {}
    with closing(open_log(store)) as log:
        for name in "stuv":
            for event in log.read(name):
                if event.type == "turn_started":
                    begun[event.data["turn"]] = event.ts
    order = sorted(range(len(tickets)), key=lambda place: begun[tickets[place].id])
    if engine == "dbos":  # it goes by priority within a session alone
        assert order.index(0) < order.index(3)
    else:
        assert order == [1, 4, 0, 3, 2]


def test_a_running_turn_is_cancelled(
    queue: JobQueue, store: str, engine: str, tmp_path: Path, slow_model: Thinking
):
    with make_worker(store, tmp_path, slow_model.base_url, engine):
        ticket = queue.submit("s", "Do job one.")
        eventually((tmp_path / "slow").exists)
        assert ticket.cancel()
        with closing(open_log(store)) as log:
            eventually(lambda: log.read("s")[-1].type == "turn_interrupted")
        assert ticket.result(10).state == "cancelled"


def test_a_session_that_somebody_else_writes_to_is_waited_for(
    queue: JobQueue, store: str, engine: str, tmp_path: Path, plain_model: Thinking
):
    with closing(open_log(store)) as log, Session.create(log, "s") as held:
        held.acquire()
        with make_worker(store, tmp_path, plain_model.base_url, engine):
            ticket = queue.submit("s", "Do job one.")
            eventually(lambda: sum(row.running for row in queue.report().tenants) == 1)
            held.close()
            assert ticket.result(60).state == "done"


def test_what_a_worker_cannot_run_fails_with_a_reason(
    queue: JobQueue, store: str, engine: str, tmp_path: Path, plain_model: Thinking
):
    with make_worker(store, tmp_path, plain_model.base_url, engine):
        outcome = queue.submit("s", "Do job one.", agent="nobody").result(60)
        assert (outcome.state, outcome.reason) == ("failed", "configuration")
        assert "no agent 'nobody'" in outcome.error


def test_a_job_that_comes_while_a_worker_takes_one_is_run(find_store: FindStore):
    async def run(store: str) -> None:
        engine = open_engine(store, "procrastinate")
        assert isinstance(engine, ProcrastinateEngine)
        worker = await engine.enlist(Post("one", 1))
        with psycopg.connect(store) as held:
            held.execute("SELECT pg_advisory_xact_lock(hashtext('ullage_jobs.take'))")
            taking = asyncio.create_task(engine.take(worker))
            waits = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
            await asyncio.to_thread(eventually, lambda: bool(held.execute(waits).fetchone()))
            job = await engine.submit(make_job("s", "Do job one."))
        taken = await taking
        await engine.aclose()
        assert taken is not None
        assert taken.deaths == 0
        assert taken.job.id == job

    asyncio.run(run(find_store("procrastinate")))


def test_a_worker_leaves_at_once_what_it_is_told_to_leave(
    queue: JobQueue, store: str, engine: str, tmp_path: Path, slow_model: Thinking
):
    with make_worker(store, tmp_path, slow_model.base_url, engine) as hands:
        ticket = queue.submit("s", "Do job one.")
        eventually((tmp_path / "slow").exists)
        hands.leave()
    with closing(open_log(store)) as log:
        assert "turn_interrupted" not in {event.type for event in log.read("s")}
    row = queue.find(ticket.id)
    assert row is not None
    assert row.state in ("waiting", "running")  # DBOS leaves it to whoever looks next


def test_a_queue_can_be_used_from_several_threads(queue: JobQueue):
    ids: list[str] = []

    def submit() -> None:
        ids.extend(queue.submit(f"s{n}", "Do job one.").id for n in range(5))

    threads = [threading.Thread(target=submit) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(set(ids)) == 20
    assert queue.report().tenants[0].waiting == 20


def test_an_engine_that_does_not_fit_its_store_is_refused():
    assert choose_engine("sqlite:a.db") == "sqlite"
    assert choose_engine("postgresql://u@h/d") == "procrastinate"
    for url, name, said in (
        ("memory:", None, "cannot hold a queue"),
        ("sqlite:a.db", "procrastinate", "does not work in"),
        ("postgresql://u@h/d", "sqlite", "take procrastinate or dbos"),
        ("postgresql://u:secret@h/d", "celery", "no engine 'celery'"),
    ):
        with pytest.raises(ConfigurationError, match=said) as caught:
            open_engine(url, name)
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"priority": 101}, "-100 to 100"),
        ({"tenant": ""}, "cannot name a tenant"),
        ({"key": "k" * 201}, "201 characters"),
        ({"mode": "fast"}, "Invalid enum value"),
        ({"colour": 1}, "no 'colour'"),
        ({"text": " "}, "begins with what a person says"),
    ],
)
def test_a_job_that_cannot_be_is_refused(more: dict[str, object], said: str):
    text = str(more.pop("text", "Do job one."))
    with pytest.raises(ConfigurationError, match=said):
        make_job("s", text, **more)


def test_limits_below_nothing_are_refused():
    with pytest.raises(ConfigurationError, match="0 or more"):
        TenantLimits(running=-1)


@pytest.mark.slow
def test_a_database_that_gives_no_answer_is_away(
    find_store: FindStore, monkeypatch: pytest.MonkeyPatch
):
    store = find_store("procrastinate")
    monkeypatch.setattr(procrastinate, "ANSWER_S", 0.3)
    with closing(JobQueue(store, engine="procrastinate")) as queue:
        assert queue.find("none") is None
        with psycopg.connect(store) as held:
            held.execute("LOCK TABLE ullage_jobs.procrastinate_jobs IN ACCESS EXCLUSIVE MODE")
            with pytest.raises(StoreError, match=r"it gave no answer in 0\.3 s"):
                queue.find("none")
        assert queue.find("none") is None


@pytest.mark.slow
def test_an_outage_of_the_database_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    try:
        installation = postgres.obtain()
    except ConfigurationError as error:
        pytest.skip(str(error))

    async def listen(server: postgres.Server) -> None:
        engine = ProcrastinateEngine(server.created())
        try:
            async with engine.listen("1") as news:
                assert await anext(news) is None
                server.stop()
                await asyncio.sleep(3)
        finally:
            await engine.aclose()

    with postgres.Server(installation) as server, caplog.at_level(logging.DEBUG):
        asyncio.run(listen(server))
    told = [r.levelno for r in caplog.records if r.getMessage().startswith("no news")]
    assert told[0] == logging.WARNING
    assert len(told) > 1
    assert set(told[1:]) == {logging.DEBUG}
