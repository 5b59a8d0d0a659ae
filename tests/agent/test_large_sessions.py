"""Sessions that grew large: when they go on in new ones, what those know, what stays as it was."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.agent.acting import agent, bodies, called, data, said, scripted, types
from ullage.agent import Agent, Live, Session, Spec, ToolOutcome
from ullage.agent.continuing import find_last, follow_session, is_large
from ullage.agent.purging import purge_sessions
from ullage.core.compaction.edits import find_references
from ullage.core.compaction.policy import Policy
from ullage.core.errors import BusyWriter, ConfigurationError, StoreError
from ullage.core.session.log.event import Draft
from ullage.core.session.log.fold import fold
from ullage.core.session.permissions import Access
from ullage.providers import Provider
from ullage.storage.log_memory import MemoryLog
from ullage.tools import Executor

BOUND = 20_000
"""Bytes of events that are many here."""

PAGE = {"type": "object", "properties": {}, "additionalProperties": False}


class Died(BaseException):
    """Ends the process, as far as the agent knows."""


class Page:
    """A tool that returns a page of words, another one each time."""

    def __init__(self, characters: int = 4_000) -> None:
        self.ran, self.characters = 0, characters
        self.spec = Spec("page", "page", PAGE, reads_only=True, idempotent=True)

    def access(self, arguments: Any) -> Access:
        return Access()

    async def run(self, arguments: Any, *, key: str, dry_run: bool) -> ToolOutcome:
        self.ran += 1
        return ToolOutcome(f"page {self.ran}: " + "cask " * (self.characters // 5))


def turns(count: int, calls: int = 3) -> list[Any]:
    """Return what a model answers in so many turns of three pages each."""
    found = []
    for n in range(count):
        found.append(called(*[("page", {})] * calls, prompt=100 + n))
        found.append(said(f"done {n}", prompt=200 + n))
    return found


def make(server: Any, folder: Path, **more: Any) -> Agent:
    tools = (Page(),)
    given = {"session_bytes": BOUND, "executor": lambda _: Executor(folder, tools=tools)}
    return agent(server, **{**given, **more})


@pytest.fixture
def large(session: Session) -> Session:
    """Return a session with one answered turn and 40,000 bytes of events."""
    session.record([Draft("turn_started", {"turn": "t"}), Draft("user_message", {"text": "Look"})])
    for n in range(10):
        call = {"call_id": f"c{n}", "name": "page", "arguments": "{}", "model": "model"}
        text = f"page {n} " + "barrel " * 600
        session.record(
            [Draft("tool_call", call), Draft("tool_result", {"call_id": f"c{n}", "text": text})]
        )
    answer = {"text": "There are ten pages. Never open page 3.", "model": "model"}
    session.record([Draft("assistant_message", answer), Draft("turn_completed", {"turn": "t"})])
    return session


def test_who_goes_on_calling_the_old_session_gets_one_new_one_at_a_time(session, tmp_path):
    told: list[Any] = []
    session.hear(told.append)
    names: list[str] = []
    with scripted(*turns(8)) as server:
        runner = make(server, tmp_path)
        for n in range(8):
            ended = runner.run(session, f"step {n}: never touch cask {n}")
            assert (ended.ok, ended.text) == (True, f"done {n}")
            names.append(ended.continued or "s")
    heads = [head.session for head in session.log.sessions()]
    assert list(dict.fromkeys(names)) == heads
    assert 2 < len(heads) < 8
    for name in heads:
        events = session.log.read(name)
        starts = [event.seq for event in events if event.type == "turn_started"]
        size = sum(event.text_bytes for event in events if event.seq < starts[-1])
        assert size <= BOUND + 200  # the last turn of each began below the bound, with its words
        assert fold(events).turn is None
    assert {event.session_id for event in told} == set(heads)
    last = Session(session.log, heads[-1])
    assert follow_session(session).name == last.name
    assert "never touch cask 0" in str(data(last, "branch_summary")[0]["text"])
    assert len(json.dumps(last.events()[1].data)) < BOUND // 2


def test_what_a_person_pinned_goes_along_and_a_pin_hides_no_link(large: Session, tmp_path: Path):
    words = "The key is under the third cask."
    said_first = large.record([Draft("user_message", {"text": words})])[-1].seq
    large.record([Draft("assistant_message", {"text": "Noted.", "model": "model"})])
    large.pin(said_first)
    large.pin(4)  # a call
    told: list[str] = []
    large.hear(lambda e: told.append(str(e.data.get("text"))))
    with scripted(*turns(4)) as server:
        runner = make(server, tmp_path)
        first = runner.run(large, "go on")
        assert first.continued
        assert any("1 pinned answers or results" in text for text in told)
        begun = Session(large.log, first.continued)
        (kept,) = begun.fold.pins
        assert begun.events(kept - 1, kept)[0].data == {"text": words}
        large.pin(said_first, pinned=False)  # behind the link
        again = Session(large.log, "s")
        large.close()
        second = runner.run(again, "and on")
        again.close()
    assert second.continued
    assert [head.session for head in large.log.sessions()].count("s") == 1
    last = Session(large.log, second.continued)
    assert words in [e.data["text"] for e in last.events() if e.type == "user_message"]


def test_below_the_bound_nothing_changes(session: Session, tmp_path: Path):
    with scripted(*turns(6), *turns(6)) as server:
        for policy, name in ((None, "ladder"), (Policy.auto_summary(new_session=True), "auto")):
            runner = make(server, tmp_path, session_bytes=None, policy=policy, window=200_000)
            made = Session.create(session.log, name)
            assert [runner.run(made, f"step {n}").continued for n in range(6)] == [""] * 6
    assert len(session.log.sessions()) == 3


def test_a_session_that_grows_in_mid_turn_ends_the_turn_where_it_began(session, tmp_path):
    answers = [*[called(*[("page", {})] * 3, prompt=n) for n in range(5)], said("done"), said("on")]
    with scripted(*answers) as server:
        runner = make(server, tmp_path)
        assert runner.run(session, "Look").continued == ""
        assert session.fold.text_bytes > 2 * BOUND
        ended = runner.run(session, "And now?")
    assert ended.continued == follow_session(session).name != "s"


def test_a_session_without_an_answer_is_not_left(session: Session, tmp_path: Path):
    session.record([Draft("user_message", {"text": "words " * 10_000})])
    with scripted(said("done")) as server:
        assert make(server, tmp_path).run(session, "And now?").continued == ""
    assert len(session.log.sessions()) == 1


def test_one_with_a_turn_that_was_cut_off_is_gone_on_with_first(large: Session, tmp_path: Path):
    large.record([Draft("user_message", {"text": "On"}), Draft("turn_started", {"turn": "u"})])
    with scripted(said("went on"), said("next")) as server:
        runner = make(server, tmp_path)
        ended = runner.resume(large)
        assert ended is not None
        assert (ended.text, ended.continued) == ("went on", "")
        assert runner.resume(large) is None
        assert runner.run(large, "Next").continued


def test_what_was_left_can_be_searched_and_read_and_is_not_kept_twice(large, tmp_path):
    with scripted(said("done")) as server:
        runner = make(server, tmp_path)
        made = Session(large.log, runner.run(large, "And now?").continued)
        (sent,) = bodies(server)
    (branch,) = data(made, "branch_summary")
    for name in find_references(json.dumps(branch)):
        assert made.originals.read(name) is not None, name
    hit = made.originals.search("barrel 3")[0]
    assert hit.session == "s"
    assert (made.originals.read(hit.reference) or "").startswith("page ")
    assert "Never open page 3" in json.dumps(sent["messages"])
    assert made.fold.created["continues"] == "s"


def test_a_long_history_is_not_kept_once_more(large: Session, tmp_path: Path):
    with scripted(said("done"), said("by hand")) as server:
        runner = make(server, tmp_path)
        made = Session(large.log, runner.run(large, "And now?").continued)
        by_hand = asyncio.run(runner.asummarise(large))
    for found in (made, by_hand):
        (branch,) = data(found, "branch_summary")
        assert branch["originals"] == {}
        assert "ullage_search finds the rest" in branch["text"]
        assert all(found.originals.read(name) for name in find_references(json.dumps(branch)))


def test_a_failed_hand_over_is_told_and_the_session_goes_on(large: Session, tmp_path: Path):
    def failing(_: object) -> str:
        raise ConnectionError("nobody there")

    told: list[str] = []
    large.hear(lambda e: told.append(str(e.data.get("text"))) if isinstance(e, Live) else None)
    with scripted(said("done")) as server:
        ended = make(server, tmp_path, summarizer=failing, window=100_000).run(large, "Now?")
    assert (ended.ok, ended.continued) == (True, "")
    assert any("no new session was begun" in text for text in told)
    assert [head.session for head in large.log.sessions()] == ["s"]


def test_a_crash_between_the_two_sides_of_the_link_loses_nothing(large, tmp_path, monkeypatch):
    record = Session.arecord

    async def dying(self: Session, drafts: Any) -> Any:
        if any("continued_in" in draft.data for draft in drafts):
            raise Died
        return await record(self, drafts)

    with scripted(said("done"), said("again")) as server:
        runner = make(server, tmp_path)
        with monkeypatch.context() as patch:
            patch.setattr(Session, "arecord", dying)
            with pytest.raises(Died):
                runner.run(large, "And now?")
        assert find_last(large.log, "s") == "s"
        large.close()
        again = Session(large.log, "s")  # as a new process would
        assert runner.resume(again) is None
        ended = runner.run(again, "And now?")
        assert runner.run(again, "Once more").continued == ended.continued
    assert find_last(large.log, "s") == ended.continued
    orphan = large.log.sessions()[1].session
    assert types(Session(large.log, orphan)) == ["branch_summary"]


def test_a_turn_that_was_cut_off_in_the_new_one_is_resumed_by_the_old_name(large, tmp_path):
    with scripted(said("done"), said("resumed")) as server:
        runner = make(server, tmp_path)
        made = Session(large.log, runner.run(large, "And now?").continued)
        assert runner.resume(large) is None
        made.record([Draft("user_message", {"text": "x"}), Draft("turn_started", {"turn": "u"})])
        made.close()
        ended = runner.resume(large)
    assert ended is not None
    assert (ended.text, ended.continued) == ("resumed", made.name)


def test_two_turns_by_the_old_name_do_not_run_at_once(large: Session, tmp_path: Path):
    async def run() -> None:
        with scripted(said("one"), said("two")) as server:
            runner = make(server, tmp_path)
            await runner.arun(large, "first")
            turn = runner.start(large, "second")
            await asyncio.sleep(0)
            with pytest.raises(BusyWriter):
                await runner.arun(large, "third")
            assert (await turn).ok

    asyncio.run(run())


def test_a_fork_of_a_large_session_goes_on_by_itself(large: Session, tmp_path: Path):
    with scripted(said("done"), said("forked")) as server:
        runner = make(server, tmp_path)
        first = runner.run(large, "And now?").continued
        fork = large.fork(name="fork")
        ended = runner.run(fork, "Another way")
    assert ended.continued not in {first, "", "s", "fork"}
    assert follow_session(large).name == first
    assert Session(large.log, ended.continued).fold.created["continues"] == "fork"


def test_a_subagent_is_not_left(large: Session, tmp_path: Path):
    log = MemoryLog()
    child = Session(log, log.create("child", 0.0).session)
    child.record([Draft("session_created", {"parent": "s"})])
    child.record([Draft(e.type, e.data) for e in large.events()[1:]])
    assert is_large(child.fold, None) is False
    assert is_large(large.fold, BOUND) is True
    with scripted(said("done")) as server:
        assert make(server, tmp_path).run(child, "On").continued == ""
    assert len(log.sessions()) == 1


def test_without_the_old_session_the_new_one_goes_on(large: Session, tmp_path: Path):
    with scripted(said("done"), said("on")) as server:
        runner = make(server, tmp_path)
        made = Session(large.log, runner.run(large, "And now?").continued)
        hit = made.originals.search("barrel 3")[0]
        large.close()
        done = purge_sessions(large.log, ["s"])
        assert made.name in done.linked
        assert made.originals.read(hit.reference) is None
        assert made.originals.search("barrel 3") == []
        assert runner.run(made, "On").ok
        with pytest.raises(StoreError, match="was erased"):
            runner.run(Session(large.log, "s"), "On")


def test_undo_reaches_the_files_of_the_old_session_by_its_name(session: Session, tmp_path: Path):
    work = tmp_path / "work"
    work.mkdir()
    (work / "a.txt").write_text("before")
    write = ("write", {"path": "a.txt", "content": "after"})
    with scripted(called(write), said("written"), said("on")) as server:
        runner = agent(server, work, session_bytes=100)
        assert runner.run(session, "Write").ok
        assert (work / "a.txt").read_text() == "after"
        made = Session(session.log, runner.run(session, "On").continued)
    assert made.undo_files() is None
    done = session.undo_files()
    assert done is not None
    assert (work / "a.txt").read_text() == "before"


@pytest.mark.parametrize("most", [0, -1, 1.5, "64 MB", True])
def test_a_bound_that_cannot_be_is_refused(most: Any, tmp_path: Path):
    with pytest.raises(ConfigurationError, match="session_bytes"):
        Agent(Provider("model", "http://127.0.0.1:9/v1"), workspace=tmp_path, session_bytes=most)
