"""Turns that failed: their text stays in the log, is not sent unasked, and can be tried again."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.agent.acting import CHAT, agent, bodies, called, data, overflow, said, scripted
from tests.support.faults import Answer, FaultServer, hanging, of_json
from ullage.agent import Session
from ullage.core.session.log.event import Draft
from ullage.core.session.log.fold import FailedUser, fold

BROKEN = of_json({"error": {"message": "no such model"}}, 404)


def said_by_people(body: Any) -> list[str]:
    """Return what a person said in a request, in order."""
    return [m["content"] for m in body["messages"] if m["role"] == "user"]


def test_failed_turns_do_not_pile_up_in_the_requests_of_later_ones(session: Session):
    with scripted(said("one"), BROKEN, BROKEN, BROKEN, said("four"), said("five")) as server:
        runner = agent(server)
        for text in ("first", "lost 1", "lost 2", "lost 3", "fourth", "fifth"):
            runner.run(session, text)
        sent = bodies(server)
    assert said_by_people(sent[3]) == ["first", "lost 3"]
    assert said_by_people(sent[4]) == ["first", "fourth"]
    assert said_by_people(sent[5]) == ["first", "fourth", "fifth"]
    assert [d["text"] for d in data(session, "user_message")][1:4] == ["lost 1", "lost 2", "lost 3"]
    assert [type(item) for item in session.fold.items].count(FailedUser) == 3


def test_a_text_that_never_fits_does_not_end_the_session(session: Session):
    with scripted(said("one"), said("two")) as server:
        runner = agent(server, window=4_000)
        runner.run(session, "first")
        huge = runner.run(session, "barrel " * 9_000)
        assert huge.reason == "context_overflow"
        assert runner.run(session, "second").ok
        assert said_by_people(bodies(server)[-1]) == ["first", "second"]


def test_a_turn_that_is_tried_again_is_sent_its_own_text_and_all_before(session: Session):
    with scripted(said("one"), BROKEN, BROKEN, said("two"), said("three")) as server:
        runner = agent(server)
        runner.run(session, "first")
        lost = runner.run(session, "second", mode="plan")
        assert runner.resume(session, mode="build").reason == "provider_error"  # type: ignore[union-attr]
        again = runner.resume(session)
        assert again is not None
        assert (again.ok, again.text) == (True, "two")
        assert again.turn != lost.turn
        runner.run(session, "third")
        sent = bodies(server)
    assert [said_by_people(body) for body in sent[1:4]] == [["first", "second"]] * 3
    assert said_by_people(sent[4]) == ["first", "second", "third"]
    starts = data(session, "turn_started")
    assert [start.get("mode") for start in starts] == ["build", "plan", "plan", "plan", "build"]
    assert starts[2]["again"] == lost.turn
    assert runner.resume(session) is None


def test_a_turn_that_failed_after_work_was_done_keeps_its_text_with_it(session: Session):
    script = (called(("plan", {"steps": []})), BROKEN, said("on"), said("more"))
    with scripted(*script) as server:
        runner = agent(server)
        runner.run(session, "first")
        assert runner.resume(session).ok  # type: ignore[union-attr]
        runner.run(session, "second")
        sent = bodies(server)
    assert [m["role"] for m in sent[2]["messages"]] == ["system", "user", "assistant", "tool"]
    assert said_by_people(sent[3]) == ["first", "second"]


def test_a_turn_that_met_its_cap_goes_on_where_it_stopped(session: Session):
    script = (called(("plan", {"steps": []}), text="I plan."), said("Done."))
    with scripted(*script) as server:
        runner = agent(server)
        assert runner.run(session, "first", max_iterations=1).reason == "iteration_cap"
        assert runner.resume(session).ok  # type: ignore[union-attr]
        last = bodies(server)[-1]["messages"]
    assert [m["role"] for m in last] == ["system", "user", "assistant", "user"]
    assert last[-1]["content"] == "Go on."


def test_what_was_interrupted_is_sent_with_what_comes_next_and_can_be_tried_again(
    session: Session,
):
    async def broken_off() -> None:
        with FaultServer({CHAT: hanging()}) as server:
            came = asyncio.Event()
            session.hear(lambda event: came.set() if event.type == "turn_started" else None)
            task = agent(server).start(session, "first")
            await came.wait()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(broken_off())
    with scripted(said("one"), said("two")) as server:
        runner = agent(server)
        assert runner.resume(session).text == "one"  # type: ignore[union-attr]
        session.record([Draft("user_message", {"text": "cut"})])
        session.record([Draft("turn_started", {"turn": "x"})])
        session.record([Draft("turn_interrupted", {"turn": "x"})])
        runner.run(session, "second")
        sent = bodies(server)
    assert said_by_people(sent[0]) == ["first"]
    assert said_by_people(sent[1]) == ["first", "cut", "second"]


def test_what_a_process_that_died_was_told_is_sent_with_what_comes_next(session: Session):
    session.record([Draft("user_message", {"text": "first"})])
    session.record([Draft("turn_started", {"turn": "x"})])
    with scripted(said("one")) as server:
        agent(server).run(session, "second")
        assert said_by_people(bodies(server)[0]) == ["first", "second"]


@pytest.mark.parametrize("upto", range(1, 14))
def test_the_history_at_any_event_is_the_same_live_and_read_anew(session: Session, upto: int):
    with scripted(said("one"), BROKEN, BROKEN, overflow(9_000, 8_000), said("two")) as server:
        runner = agent(server)
        for text in ("first", "lost", None, "second"):
            if text is None:
                runner.resume(session)
            else:
                runner.run(session, text)
        events = session.events()
    step = fold([])
    for event in events[:upto]:
        step.apply(event)
    assert step.items == fold(events, upto).items
    assert json.dumps(session.fold.items) == json.dumps(fold(events).items)


EMPTY = Answer(400, (b"",))
"""A refusal that says nothing: it may be about the size."""


@pytest.mark.parametrize("second", [EMPTY, BROKEN])
def test_a_recovery_that_did_not_help_is_taken_back(session: Session, second: Answer):
    for n in range(60):
        session.record([Draft("user_message", {"text": f"question {n} " + "word " * 40})])
        session.record([Draft("assistant_message", {"text": f"answer {n}", "model": "model"})])
    script = (EMPTY, second, *([second] * 4 if second is EMPTY else []), said("Done."))
    with scripted(*script) as server:
        runner = agent(server, window=12_000)
        assert not runner.run(session, "Go on").ok
        failed = len(bodies(server))
        while not runner.run(session, "Go on").ok:
            pass
        sent = bodies(server)
    assert len(sent[failed - 1]["messages"]) < len(sent[0]["messages"])
    assert len(sent[failed]["messages"]) >= len(sent[0]["messages"])  # and what was said since
    made = data(session, "history_compaction")
    assert [bool(each.get("undone")) for each in made].count(True) >= 1
