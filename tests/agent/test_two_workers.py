"""Two workers on one session: one is stopped past its lease, another takes over, the first goes on.

Its steps are those of `test_killed`; wherever it is stopped, it writes nothing more.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from tests.agent.thinking import Thinking
from tests.agent.victim import FENCED, SCRIPT, SESSION, Job, Workers, lines, opened, place
from tests.support.waiting import eventually
from ullage.storage.log import verify

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="workers are forked and looked at")

LEASE_S: Final = 0.3

CALLED: Final = "append provider_usage+assistant_message+tool_call"


@pytest.fixture(scope="module")
def model() -> Iterator[Thinking]:
    with Thinking(SCRIPT) as server:
        yield server


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    with Workers() as program:
        yield program


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URL of a log that processes share."""
    if request.param == "sqlite":
        return f"sqlite://{tmp_path}/state/log.db"
    made: str = request.getfixturevalue("postgres_database")()
    return made


@pytest.fixture
def job(model: Thinking, url: str, tmp_path: Path) -> Job:
    place(tmp_path)
    return Job(str(tmp_path), url, model.base_url, "Do job one.", lease_s=LEASE_S)


def taken_over(workers: Workers, job: Job, at: str, nth: int = 2) -> list[str]:
    """Stop a worker at a step, let another finish its turn, then go on; return what it did then."""
    stopped = workers.run(replace(job, at=at, nth=nth, by=signal.SIGSTOP))
    assert stopped.how == "stopped"
    eventually(lambda: workers.run(job).code == 0)
    before = lines(job.folder, "steps")
    with closing(opened(job.log, LEASE_S)) as log:
        events = log.read(SESSION)
        came = workers.go_on(stopped.pid)
        assert log.read(SESSION) == events
    assert (came.how, came.code) == ("ended", FENCED)
    whole(job)
    return lines(job.folder, "steps")[len(before) :]


def whole(job: Job) -> None:
    """The session is one turn, completed, in one log, and no tool ran twice."""
    with closing(opened(job.log, LEASE_S)) as log:
        kinds = [event.type for event in log.read(SESSION) if event.type.startswith("turn_")]
        assert kinds == ["turn_started", "turn_completed"]
        assert verify(log, SESSION) == []
        assert "gave no sign" in "".join(lease.taken for lease in log.leases(SESSION))
    keys = lines(job.folder, "bumps")
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize(
    "at",
    [
        *("heartbeat: before", "tool bump: before", "tool bump: after"),
        *(f"{CALLED}: before", f"{CALLED}: after", "append tool_result: before"),
        *("append tool_result: after", "shown text_delta", "published tool_call"),
    ],
)
def test_a_worker_that_was_stopped_is_fenced_and_the_session_has_one_log(
    workers: Workers, job: Job, at: str
):
    did = taken_over(workers, job, at)
    assert not [step for step in did if step.startswith("append") and step.endswith("after")]
    assert "tool bump: before" not in did


@pytest.mark.parametrize("at", ["tool bump: after", "shown text_delta"])
def test_a_worker_whose_sign_of_life_is_refused_writes_no_end_of_the_turn(
    workers: Workers, job: Job, at: str
):
    did = taken_over(workers, replace(job, beat_s=0.01), at)
    assert "acquire: before" not in did


def test_a_worker_that_was_stopped_before_a_compaction_is_fenced(workers: Workers, job: Job):
    did = taken_over(workers, job, "append history_compaction: before", 1)
    assert not [step for step in did if step.startswith("append") and step.endswith("after")]
    assert "acquire: before" not in did


def test_a_worker_goes_on_while_another_is_in_the_middle_of_its_turn(workers: Workers, job: Job):
    first = workers.run(replace(job, at="append tool_result: before", by=signal.SIGSTOP))
    late = replace(job, at="tool read: before", by=signal.SIGSTOP)
    second: list[int] = []

    def took_over() -> bool:
        came = workers.run(late)
        second.extend([came.pid] if came.how == "stopped" else [])
        return came.how == "stopped"

    eventually(took_over)
    assert workers.go_on(first.pid).code == FENCED
    assert workers.go_on(second[0]).code == 0
    whole(job)
