"""Sessions that go on in new ones: when, what each knows of the other, what can be read back."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.agent.acting import CHAT, agent, bodies, data, said, scripted
from tests.support.faults import FaultServer, hanging
from ullage.agent import Agent, Live, Session
from ullage.agent.continuing import find_next, follow_session, hold_back
from ullage.api.recall import recall
from ullage.cli.main import main
from ullage.core.compaction.policy import Policy
from ullage.core.errors import CompactionError, StoreError
from ullage.core.session.log.event import Draft
from ullage.core.summary.question import SummaryRequest
from ullage.embedded import Launch, Server
from ullage.providers import Provider
from ullage.storage import open_log
from ullage.storage.log_sqlite import SqliteLog

GOING_ON = Policy.auto_summary(new_session=True)
REFERENCE = re.compile(r"u:[0-9a-f]{16}")


def find_references(text: str) -> list[str]:
    return sorted(set(REFERENCE.findall(text)))


def grow(runner: Agent, session: Session, turns: int, words: int = 60) -> list[Session]:
    """Talk turn by turn, follow where the session goes on, and return all that there were."""
    found = [session]
    for n in range(turns):
        ended = runner.run(found[-1], f"question {n}: never touch cask {n}. " + "word " * words)
        assert ended.ok, ended.error
        if ended.continued:
            found.append(Session(session.log, ended.continued))
    return found


@pytest.fixture(scope="module")
def served(llama_server: Callable[..., Server]) -> Server:
    return llama_server(Launch(window=4_096))


def test_honest_growth_goes_on_in_linked_sessions(served: Server, session: Session):
    """Turn by turn on a real server: today's code compacts in place, and never begins one."""
    provider = Provider("tiny", served.base_url, options={"max_tokens": 16})
    runner = Agent(provider, policy=GOING_ON)
    found = grow(runner, session, 40)
    assert len(found) > 2
    for before, after in itertools.pairwise(found):
        assert find_next(before.log, before.name) == after.name
        assert after.fold.created["continues"] == before.name
        assert data(before, "history_compaction") == []
        (branch,) = data(after, "branch_summary")
        assert branch["parent"] == before.name
        assert before.events()[branch["seq"]].type == "subagent_event"
        asked = " ".join(str(event["text"]) for event in data(before, "user_message"))
        first = re.findall(r"question \d+", asked)[0]
        (reference,) = find_references(branch["text"])[:1]
        text = after.originals.read(reference)
        assert text is not None
        assert first in text
        assert f"never touch {'cask 0'}" in branch["text"]
    assert [made.name for made in found][-1] == follow_session(session).name


@pytest.fixture
def full(session: Session) -> Session:
    """Return a session that fills 7,900 of 8,000 tokens, nearly."""
    for n in range(44):
        session.record([Draft("user_message", {"text": f"question {n} " + "word " * 150})])
        session.record([Draft("assistant_message", {"text": f"answer {n}", "model": "model"})])
    return session


def test_a_turn_that_would_be_at_the_rung_begins_in_the_new_session(full: Session):
    told: list[Any] = []
    full.hear(told.append)
    head = full.fold.head
    with scripted(said("done")) as server:
        ended = agent(server, policy=GOING_ON).run(full, "And now?")
        (sent,) = bodies(server)
    assert ended.ok
    assert full.fold.head == head + 1
    made = Session(full.log, ended.continued)
    assert [e["text"] for e in data(made, "user_message")] == ["And now?"]
    assert "And now?" in sent["messages"][-1]["content"]
    assert "question 43" in sent["messages"][1]["content"]
    assert {e.session_id for e in told} == {"s", made.name}
    texts = [e.data["text"] for e in told if isinstance(e, Live) and "text" in e.data]
    assert any("kept by rule (no summarizer is set)" in text for text in texts)


def test_a_turn_that_is_broken_off_in_the_new_session_is_found_there(full: Session):
    async def run() -> None:
        begun = asyncio.Event()
        full.hear(lambda e: begun.set() if e.type == "turn_started" else None)
        with FaultServer({CHAT: hanging()}) as server:
            turn = agent(server, policy=GOING_ON).start(full, "And now?")
            await begun.wait()
            turn.cancel()
            with pytest.raises(asyncio.CancelledError):
                await turn

    asyncio.run(run())
    made = follow_session(full)
    assert made.name != "s"
    assert made.events()[-1].type == "turn_interrupted"


def failing(request: SummaryRequest) -> str:
    raise ConnectionError("nobody there")


@pytest.mark.parametrize("summarizer", [failing, lambda _: "  "])
def test_a_summarizer_without_a_summary_switches_nothing(full: Session, summarizer: Any):
    told: list[str] = []
    full.hear(lambda e: told.append(e.data.get("text", "")) if isinstance(e, Live) else None)
    with scripted(said("done")) as server:
        runner = agent(server, policy=GOING_ON, summarizer=summarizer)
        with pytest.raises(CompactionError, match="nothing was switched"):
            asyncio.run(runner.asummarise(full))
        assert [head.session for head in full.log.sessions()] == ["s"]
        ended = runner.run(full, "And now?")
    assert (ended.ok, ended.continued) == (True, "")
    assert runner.policy == GOING_ON
    assert runner.provider.model == "model"
    assert any("no new session was begun" in text for text in told)
    assert any("gave no summary" in text or "summarizer failed" in text for text in told)


def test_a_cancelled_summary_leaves_nothing_behind(full: Session):
    async def run() -> None:
        asked = asyncio.Event()

        async def slow(request: SummaryRequest) -> str:
            asked.set()
            await asyncio.Event().wait()
            raise AssertionError

        with scripted(said("never")) as server:
            runner = agent(server, summarizer=slow)
            for work in (runner.asummarise(full), runner.acompact(full, target_tokens=6_000)):
                asked.clear()
                task = asyncio.ensure_future(work)
                await asked.wait()
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task

    head = full.fold.head
    asyncio.run(run())
    assert full.fold.head == head
    assert [found.session for found in full.log.sessions()] == ["s"]


def test_within_a_turn_the_rung_holds_back():
    held = hold_back(GOING_ON)
    assert [rung.at for rung in held.rungs] == [1.0]
    assert held.new_session is False
    assert hold_back(Policy.ladder()) == Policy.ladder()


# --- recall -------------------------------------------------------------------------------------


def test_every_reference_is_read_back_after_restarts_and_compactions(tmp_path: Path, capfd: Any):
    """In a new process each time, by tool, library and command; today the blocks' are lost."""
    url = f"sqlite:{tmp_path / 'state' / 'log.db'}"
    log = open_log(url)
    Session.create(log, "s").close()
    log.close()
    for chain in range(3):
        log = open_log(url)
        with Session(log, "s") as session, scripted(said("a")) as server:
            for n in range(12):
                text = f"question {chain}.{n} " + "word " * 60
                session.record([Draft("user_message", {"text": text})])
                session.record([Draft("assistant_message", {"text": "yes", "model": "model"})])
            done = asyncio.run(agent(server).acompact(session, target_tokens=1_800))
            assert done.checkpoint is not None
        log.close()
    log = open_log(url)
    session = Session(log, "s")
    with scripted(said("a")) as server:
        runner = agent(server)
        view = asyncio.run(runner.aview(session))
        made = asyncio.run(runner.asummarise(session, "next"))
    names = find_references(json.dumps(view.messages))
    names += find_references(made.events()[1].data["text"])
    assert len(names) >= 2
    seen = set[str]()
    while left := [name for name in names if name not in seen]:
        seen |= set(left)
        for name in left:
            held = made.originals.read(name)
            assert held is not None, name
            assert recall(name, store=url) == recall(name, store=log) == held
            assert recall(name, store=made) == held
            names += find_references(held)
    whole = "".join(made.originals.read(name) or "" for name in seen)
    assert all(f"question {c}.{n} " in whole for c in range(3) for n in range(11))
    log.close()
    assert main(["recall", min(seen), "--log", url]) == 0
    assert capfd.readouterr().out == recall(min(seen), store=url)
    with pytest.raises(StoreError, match="holds no text"):
        recall("u:0000000000000000", store=url)


def test_a_session_that_is_gone_or_damaged_hides_no_other(session: Session, tmp_path: Path):
    session.record([Draft("tool_result", {"call_id": "c", "text": "casks"})])
    lost = {"text": "x", "parent": "nobody"}
    session.record([Draft("branch_summary", lost), Draft("branch_summary", lost)])
    assert session.originals.read("u:0000000000000000") is None
    with pytest.raises(StoreError, match=r"log\.db holds no text"):
        recall("u:0000000000000000", store=session.log)
    session.record([Draft("subagent_event", {"continued_in": "gone"})])
    assert follow_session(session) is session
    session.record([Draft("subagent_event", {"note": 1})])
    assert find_next(session.log, session.name) is None


def test_sessions_show_the_link_on_both_sides(full: Session, capsys: Any):
    with scripted(said("a")) as server:
        asyncio.run(agent(server).asummarise(full, "next"))
    log = full.log
    assert isinstance(log, SqliteLog)
    assert main(["sessions", "--store", log.url]) == 0
    rows = capsys.readouterr().out
    assert "goes on in next" in rows
    assert "goes on from s" in rows
    assert main(["sessions", "--json", "--store", log.url]) == 0
    found = {row["name"]: row for row in json.loads(capsys.readouterr().out)["sessions"]}
    assert (found["s"]["continued_in"], found["next"]["continues"]) == ("next", "s")


def test_a_link_that_a_crash_left_on_one_side_is_shown_on_both(session: Session, capsys: Any):
    created = Draft("session_created", {"continues": "s"})
    summary = Draft("branch_summary", {"text": "x", "parent": "s", "seq": 1})
    session.log.create("next", 0.0)
    with Session(session.log, "next") as made:
        made.record([created, summary])
    assert main(["sessions", "--store", session.log.url]) == 0
    rows = capsys.readouterr().out
    assert "goes on in next" in rows
    assert "goes on from s" in rows


def test_run_follows_into_the_new_session(full: Session, capsys: Any, tmp_path: Path):
    full.close()
    with scripted(said("one"), said("two")) as server:
        asyncio.run(agent(server).asummarise(full, "next")).close()
        options = ["--store", full.log.url, "--base-url", server.base_url, "--model", "model"]
        words = ["run", "And now?", "--session", "s", "--window", "8000", *options]
        (tmp_path / "work").mkdir()
        code = main([*words, "--workspace", str(tmp_path / "work"), "--no-tools"])
    out = capsys.readouterr()
    assert code == 0, out.err
    assert out.out == "one\n"
    assert "session s goes on in session next" in out.err
    assert [e["text"] for e in data(Session(full.log, "next"), "user_message")] == ["And now?"]
