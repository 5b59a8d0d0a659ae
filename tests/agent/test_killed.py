"""A turn that is killed at any step, and the session afterwards: nothing lost, nothing twice.

Steps are before and after each change of the log (a compaction's too), before and after each
effect of a tool, each event that was published and each piece of an answer that was shown.
"""

from __future__ import annotations

import random
import signal
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from tests.agent.thinking import Thinking
from tests.agent.victim import (
    QUICK,
    SCRIPT,
    SESSION,
    Came,
    Job,
    Workers,
    lines,
    opened,
    place,
    toolbox,
)
from ullage.agent import Agent, Session
from ullage.core.session.log.event import Event
from ullage.embedded import Server
from ullage.providers import Provider
from ullage.storage.log import EventLog, verify
from ullage.tools import Executor

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="workers are forked and looked at")

NAMED: Final = frozenset(
    {
        *(
            f"{change}: {place}"
            for change in (
                *("create", "acquire", "heartbeat", "release"),
                "append session_created",
                "append user_message+turn_started",
                "append provider_usage+assistant_message+tool_call",
                *("append snapshot_taken", "append file_changes", "append tool_result"),
                *("append history_compaction", "append context_state"),
                "append provider_usage+history_compaction+assistant_message+tool_call",
                "append provider_usage+assistant_message+turn_completed",
                *("tool bump", "tool read"),
            )
            for place in ("before", "after")
        ),
        *(
            f"published {kind}"
            for kind in (
                *("user_message", "turn_started", "provider_usage", "assistant_message"),
                *("tool_call", "tool_result", "history_compaction", "turn_completed"),
                *("snapshot_taken", "file_changes", "context_state"),
            )
        ),
        *("shown text_delta", "shown status"),
    }
)
"""Every step of a turn at which its process is killed."""

CLOSING: Final = (
    "append turn_failed+user_message+turn_started: before",
    "append tool_result+turn_failed+user_message+turn_started: before",
    "append tool_result+turn_failed+user_message+turn_started: after",
)
"""Steps of a turn that begins behind one that was cut off."""

ENDS: Final = frozenset({"turn_completed", "turn_failed", "turn_interrupted"})


@pytest.fixture(scope="module")
def model() -> Iterator[Thinking]:
    with Thinking(SCRIPT) as server:
        yield server


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    with Workers() as program:
        yield program


def job(folder: Path, model: Thinking, text: str = "Do job one.", **more: object) -> Job:
    log = f"sqlite://{folder}/state/log.db"
    return Job(str(folder), log, model.base_url, text, **more)  # type: ignore[arg-type]  # a test


def passed(folder: Path) -> Counter[str]:
    return Counter(lines(folder, "steps"))


@pytest.fixture(scope="module")
def steps(
    workers: Workers, model: Thinking, tmp_path_factory: pytest.TempPathFactory
) -> Counter[str]:
    """Return how often a turn that nobody kills passes each step."""
    folder = place(tmp_path_factory.mktemp("whole") / "j")
    assert workers.run(job(folder, model)).how == "ended"
    return passed(folder)


# ── what holds ──────────────────────────────────────────────────────────────────────────────────


def sound(log: EventLog, folder: Path) -> list[Event]:
    """Return the events; what was said to be on disk is there, and there is no gap."""
    if not log.sessions():
        assert lines(folder, "acknowledged") == []
        return []
    events = log.read(SESSION)
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert verify(log, SESSION) == []
    kept = {f"{event.seq} {event.id}" for event in events}
    assert set(lines(folder, "acknowledged")) <= kept
    return events


def once(events: Sequence[Event], folder: Path) -> None:
    """Nothing ran twice, or without being recorded before; what has a good result did run."""
    keys = lines(folder, "bumps")
    calls = [e.data for e in events if e.type == "tool_call" and e.data["name"] == "bump"]
    results = {e.data["call_id"]: e.data for e in events if e.type == "tool_result"}
    assert len(set(keys)) == len(keys)
    assert len({call["key"] for call in calls}) == len(calls)
    assert set(keys) <= {call["key"] for call in calls}
    good = {c["key"] for c in calls if results.get(c["call_id"], {}).get("text") == "one more"}
    assert good <= set(keys)


def finished(events: Sequence[Event]) -> None:
    """Every call has one result, and every turn one end."""
    asked = Counter(e.data["call_id"] for e in events if e.type == "tool_call")
    answered = Counter(e.data["call_id"] for e in events if e.type == "tool_result")
    assert asked == answered
    assert set(asked.values()) <= {1}
    begun = Counter(e.data["turn"] for e in events if e.type == "turn_started")
    ended = Counter(e.data["turn"] for e in events if e.type in ENDS)
    assert begun == ended
    assert set(begun.values()) == {1}
    assert events[-1].type == "turn_completed"


def accepted(log: EventLog, folder: Path, server: Server) -> None:
    """A real server takes the history as it is now, and answers."""
    tools = toolbox(str(folder))
    agent = Agent(
        Provider("tiny", server.base_url, options={"max_tokens": 8}, limits=QUICK),
        executor=lambda _: Executor(folder / "work", tools=tools),
    )
    with Session(log, SESSION) as session:
        done = agent.run(session, "And now?")
        assert done.ok, done
        assert not session.fold.open_calls


# ── seeds ───────────────────────────────────────────────────────────────────────────────────────


class Killing:
    """Kill jobs by seeds, go on, and look at what is left; count the steps of death."""

    def __init__(self, workers: Workers, model: Thinking, steps: Counter[str], root: Path) -> None:
        self._workers, self._model, self._steps, self._root = workers, model, steps, root
        self.deaths: Counter[str] = Counter()
        self.accepted = 0

    def seed(self, number: int, server: Server | None) -> None:
        """Kill at the step of a seed; every other time kill who goes on as well."""
        chance = random.Random(number)
        names = sorted(self._steps)
        at = names[number % len(names)]
        folder = place(self._root / str(number))
        nth = chance.randint(1, self._steps[at])
        came = self._killed(folder, job(folder, self._model, at=at, nth=nth))
        assert came.how == "killed"
        self._look(folder)
        anew = chance.random() < 0.25
        if number % 2:
            next_ = job(
                folder,
                self._model,
                "Do job two.",
                at=chance.choice(CLOSING if anew else names),
                nth=chance.randint(1, 2 - anew),
                anew=anew,
            )
            self._killed(folder, next_)
            self._look(folder)
        last = job(folder, self._model, "Do job three.", anew=anew)
        assert self._workers.run(last)[1:] == ("ended", 0)
        events = self._look(folder)
        finished(events)
        if server is not None:
            with closing(opened(last.log, 30.0)) as log:
                accepted(log, folder, server)
                sound(log, folder)
            self.accepted += 1

    def _killed(self, folder: Path, wanted: Job) -> Came:
        came = self._workers.run(wanted)
        if came.how == "killed":
            assert came.code == signal.SIGKILL
            self.deaths[lines(folder, "steps")[-1]] += 1
        return came

    def _look(self, folder: Path) -> list[Event]:
        with closing(opened(job(folder, self._model).log, 30.0)) as log:
            events = sound(log, folder)
        once(events, folder)
        return events


@pytest.fixture
def killing(workers: Workers, model: Thinking, steps: Counter[str], tmp_path: Path) -> Killing:
    return Killing(workers, model, steps, tmp_path)


@pytest.mark.slow
def test_the_steps_that_are_killed_at_are_all_that_a_turn_has(steps: Counter[str]):
    assert set(steps) == NAMED


def test_a_session_whose_creation_was_cut_short_begins_with_it_all_the_same(
    workers: Workers, model: Thinking, tmp_path: Path
):
    cut = job(place(tmp_path), model, at="append session_created: before")
    assert workers.run(cut).how == "killed"
    assert workers.run(replace(cut, at="")).code == 0
    with closing(opened(cut.log, 30.0)) as log:
        assert [event.type for event in log.read(SESSION)][:2] == [
            "session_created",
            "user_message",
        ]


@pytest.mark.slow
def test_a_turn_that_is_killed_at_any_step_goes_on_and_a_real_server_takes_it(
    killing: Killing, tiny_server: Server
):
    for number in range(len(NAMED)):
        killing.seed(number, tiny_server if number % 5 == 0 else None)
    assert set(killing.deaths) >= NAMED


@pytest.mark.long
@pytest.mark.timeout(900)
def test_two_hundred_turns_that_are_killed_go_on_and_a_real_server_takes_each(
    killing: Killing, tiny_server: Server
):
    for number in range(200):
        killing.seed(number, tiny_server)
    assert set(killing.deaths) >= NAMED
    assert set(CLOSING) & set(killing.deaths)
    assert killing.accepted == 200
