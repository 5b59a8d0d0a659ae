"""A session remembers what its guard learned: in its log, across processes, machines and forks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.agent.acting import agent, called, overflow, said, scripted
from tests.support.casks import MODEL, Cask
from tests.support.loopback import serve
from tests.support.prose import pieces
from ullage import Agent, Provider, Session, open_log
from ullage.agent.keeping import Place, SessionStore
from ullage.config.settings import Settings
from ullage.core.guard.conversation import Conversation
from ullage.core.session.log.event import Event
from ullage.runtime import Runtime
from ullage.storage.log_memory import MemoryLog


@pytest.fixture
def server() -> Iterator[Cask]:
    with serve(Cask("numbers", 6_000, 6_000)) as cask:
        yield cask


def make_agent(server: Cask, **more: Any) -> Agent:
    """Return an agent of a new process: it knows nothing but what the log says."""
    return Agent(Provider(MODEL, server.url), runtime=Runtime(), **more)


def fill(agent: Agent, session: Session, turns: int) -> None:
    text = pieces(900)
    for _ in range(turns):
        assert agent.run(session, f"Note this:\n```\n{next(text)}\n```").ok


def usages(session: Session) -> list[Event]:
    return [e for e in session.events() if e.type == "provider_usage"]


def gauge(agent: Agent, session: Session) -> dict[str, Any]:
    """Return the gauge of the request that would be sent now."""
    return asyncio.run(agent.aview(session)).assessment.to_dict()


def test_a_usage_says_how_full_the_window_was_and_by_whose_word(server: Cask) -> None:
    with Session.create(MemoryLog(), "s") as session:
        fill(make_agent(server), session, 1)
        (event,) = usages(session)
    found = event.data["context"]
    assert found["tokens"] == event.data["input"] == server.sent[-1]
    assert found == {
        "window": 6_000,
        "source": "probe",
        "tier": "none",
        "ratio": round(server.sent[-1] / 6_000, 4),
        "tokens": server.sent[-1],
        "basis": "reported",
    }


def test_a_usage_of_an_unknown_window_says_why() -> None:
    with scripted(said("Yes.")) as server, Session.create(MemoryLog(), "s") as session:
        agent(server, window=None, runtime=Runtime()).run(session, "Is it?")
        assert usages(session)[0].data["context"] == {
            "reason": "context_window_unknown",
            "tokens": 50,
        }


def test_after_a_restart_the_gauge_is_the_same_and_no_tier_is_told_again(server: Cask) -> None:
    log = MemoryLog()
    with Session.create(log, "s") as session:
        first = make_agent(server)
        for _ in range(30):
            fill(first, session, 1)
            if usages(session)[-1].data["context"]["tier"] != "none":
                break
        before = gauge(first, session)
    told: list[str] = []
    with Session(log, "s") as session:
        session.hear(lambda event: told.append(event.data.get("text", "")))
        again = make_agent(server)
        assert gauge(again, session) == before
        assert again.run(session, "And now?").ok
    assert before["tier"] != "none"
    assert not [text for text in told if "Context window at" in text]


def test_the_next_request_is_the_same_to_the_byte_whoever_sends_it(tmp_path: Path) -> None:
    """One process for all turns, one for each turn, one for each turn in another folder."""

    def talk(new: bool, moves: bool) -> list[str]:
        bodies: list[Any] = []
        with serve(Cask("cuts", 4_096, 4_096)) as server:
            server.bodies = bodies
            log, text = MemoryLog(), pieces(900)
            Session.create(log, "s").close()
            agent = make_agent(server)
            for turn in range(24):
                if new:
                    agent = make_agent(server)
                folder = tmp_path / (f"at-{turn}" if moves else "here")
                folder.mkdir(exist_ok=True)
                with Session(log, "s") as session:
                    assert agent.run(session, f"Note this:\n```\n{next(text)}\n```").ok
        return [json.dumps(body) for body in bodies]

    whole = talk(new=False, moves=False)
    assert talk(new=True, moves=False) == whole
    assert any("ullage: summary" in body for body in whole)


def test_a_compaction_says_what_it_left_out_and_what_it_took_and_is_measured(server: Cask) -> None:
    with Session.create(MemoryLog(), "s") as session:
        fill(make_agent(server), session, 22)
        events = session.events()
    made = [e for e in events if e.type == "history_compaction"]
    planned, measured = made[0].data, made[1].data
    assert planned["references"]
    assert all(ref.startswith("u:") for ref in planned["references"])
    assert planned["cost"]["cached_tokens_lost"] > 0
    assert planned["checkpoint"]["tokens_after_measured"] is None
    assert measured["measured"] is True
    reported = measured["checkpoint"]["tokens_after_measured"]
    usage = next(e for e in events if e.type == "provider_usage" and e.seq > made[0].seq)
    assert reported == usage.data["input"]
    assert made[1].seq == usage.seq + 1  # in one append with the answer
    with closing(SessionStore(Place(session, "openai_chat", "m", list))) as store:
        kept = store.checkpoints.all()
    assert kept[0].tokens_after_measured is not None


def test_a_refusal_is_remembered_by_the_next_process() -> None:
    with (
        scripted(
            said("One.", 1_100), overflow(2_048, 4_000), said("Two.", 1_000), said("Three.", 1_100)
        ) as server,
        Session.create(MemoryLog(), "s") as session,
    ):  # fmt: skip
        for text in ("word " * 1_000, "word " * 3_000, "And?"):
            assert agent(server, window=None, runtime=Runtime()).run(session, text).ok
        state = next(session.known.states)["conversation"]
    assert [c["source"] for c in state["learned"]["claims"] if c["source"] == "refusal"]


def test_calls_and_failures_keep_the_state_in_one_append_with_the_usage(session: Session) -> None:
    with scripted(called(("plan", {"steps": []}), prompt=60), said("Done.", 90)) as server:
        assert agent(server, runtime=Runtime()).run(session, "Plan it.").ok
    first, second = usages(session)
    assert (first.data["state"]["conversation"]["anchor"][0]) == 60
    assert (second.data["state"]["conversation"]["anchor"][0]) == 90
    assert "scope" not in first.data["state"]["conversation"]


def test_a_fork_goes_on_with_what_was_known_where_it_forked(server: Cask) -> None:
    log = MemoryLog()
    with Session.create(log, "s") as session:
        agent = make_agent(server)
        fill(agent, session, 6)
        before = gauge(agent, session)
        with session.fork(name="other") as fork:
            found = gauge(make_agent(server), fork)
    assert found == before


def test_another_model_has_a_memory_of_its_own(session: Session) -> None:
    stores = {name: SessionStore(Place(session, "openai_chat", name, list)) for name in "ab"}
    stores["a"].conversations.save(Conversation("x", "p", cramped=9))
    assert stores["b"].conversations.load("y", ["p"]) is None
    again = SessionStore(Place(session, "openai_chat", "a", list)).conversations
    found = again.load("y", ["q", "p"])
    assert found == Conversation("y", "p", cramped=9)
    assert again.load("y", ["q"]) == found  # nothing begins so: what was remembered last


def test_a_window_holds_for_the_model_it_was_said_of_and_another_one_is_asked(
    session: Session, server: Cask
) -> None:
    with scripted(said("Yes.")) as first:
        told = agent(first, window=50_000, runtime=Runtime())
        assert told.run(session, "Is it?").ok
        other = Provider(MODEL, server.url)
        assert told.run(session, "And there?", provider=other).ok
        assert asyncio.run(told.aswitch(session, other)).prepared.window.input_tokens == 6_000
    contexts = [event.data["context"] for event in usages(session)]
    assert [(c["window"], c["source"]) for c in contexts] == [
        (50_000, "override"),
        (6_000, "probe"),
    ]


def test_what_did_not_change_is_not_recorded_again_and_a_dry_run_records_nothing(
    session: Session,
) -> None:
    store = SessionStore(Place(session, "openai_chat", "a", list)).conversations
    known = Conversation("x", "p", cramped=9)
    store.save(known)
    store.save(known)
    assert [e.type for e in session.events()].count("context_state") == 1
    dry = SessionStore(Place(session, "openai_chat", "a", list, dry=True)).conversations
    dry.save(Conversation("x", "r", cramped=8))
    assert [e.type for e in session.events()].count("context_state") == 1
    assert dry.load("x", ["r"]) == Conversation("x", "r", cramped=8)


def test_a_log_in_a_file_is_read_by_another_session(tmp_path: Path, server: Cask) -> None:
    url = f"sqlite:{tmp_path / 'log.db'}"
    with closing(open_log(url)) as log, Session.create(log, "s") as session:
        fill(Agent(Provider(MODEL, server.url), runtime=Runtime(settings=Settings())), session, 3)
        before = gauge(make_agent(server), session)
    with closing(open_log(url)) as log, Session(log, "s") as session:
        assert gauge(make_agent(server), session) == before
