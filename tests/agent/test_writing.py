"""The right to write: ghosts of this process, take-overs; and writes while the log is away."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from tests.agent.acting import agent, scripted
from tests.agent.acting import said as saying
from tests.agent.test_session_awaited import run_on_loop
from tests.support import postgres
from ullage.agent import writing
from ullage.agent.session import Live, Session
from ullage.core.errors import BusyWriter, ConfigurationError, Fenced, StoreAway, StoreError
from ullage.core.session.log.event import Draft, Event
from ullage.storage.log import Lease, verify
from ullage.storage.log_memory import MemoryLog
from ullage.storage.log_postgres import PostgresLog
from ullage.storage.log_sqlite import SqliteLog
from ullage.storage.threaded import AT_ONCE, ThreadedLog


class FailingLog(MemoryLog):
    """A log whose next appends fail: as many as `left` says, after they wrote where `keeps`."""

    left: int = 0
    keeps: bool = False
    kind: type[StoreError] = StoreAway

    def append(
        self, session: str, epoch: int, expected_head: int, drafts: Sequence[Draft], now: float
    ) -> list[Event]:
        if not self.left:
            return super().append(session, epoch, expected_head, drafts, now)
        self.left -= 1
        if self.keeps:
            super().append(session, epoch, expected_head, drafts, now)
        raise self.kind("the log is away")


class AwaitedFailingLog(ThreadedLog, FailingLog):
    """The same, awaited."""

    def __init__(self) -> None:
        FailingLog.__init__(self)
        ThreadedLog.__init__(self, self, AT_ONCE)


def user(text: str) -> Draft:
    return Draft("user_message", {"text": text, "parts": ({"n": 1},)})


def said(session: Session) -> list[str]:
    return [e.data["text"] for e in session.events() if e.type == "user_message"]


# --- an outage ------------------------------------------------------------------------------------


@pytest.mark.parametrize("keeps", [False, True])
@pytest.mark.parametrize("kind", [StoreAway, BusyWriter])
def test_a_write_outlasts_a_short_outage_and_is_made_once(kind: type[StoreError], *, keeps: bool):
    log = FailingLog()
    heard: list[Event | Live] = []
    with Session.create(log, "s") as session:
        session.hear(heard.append)
        log.left, log.keeps, log.kind = 1 if keeps else 2, keeps, kind
        made = session.record([user("a"), user("b")])
        session.record([user("c")])
        assert said(session) == ["a", "b", "c"]
        assert [event.seq for event in made] == [2, 3]
        assert [event.seq for event in heard if isinstance(event, Event)] == [2, 3, 4]
        assert session.fold.head == 4
    assert verify(log, "s") == []


@run_on_loop
async def test_the_loop_goes_on_meanwhile():
    log = AwaitedFailingLog()
    session = Session.create(log, "s")
    log.left = 2
    writing_ = asyncio.ensure_future(session.arecord([user("a")]))
    steps = 0
    while not writing_.done():
        await asyncio.sleep(0.01)
        steps += 1
    assert steps > 5
    assert said(session) == ["a"]


def test_an_outage_that_lasts_is_told(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(writing, "AWAY_S", 0.2)
    log = FailingLog()
    with Session.create(log, "s") as session:
        log.left = 1_000
        with pytest.raises(StoreAway, match="away"):
            session.record([user("a")])
        log.left = 0
        session.record([user("b")])
        assert said(session) == ["b"]


def test_a_fault_that_stays_is_told_at_once():
    log = FailingLog()
    with Session.create(log, "s") as session:
        log.left, log.kind = 1, StoreError
        with pytest.raises(StoreError, match="away"):
            session.record([user("a")])
        assert said(session) == []


def test_what_another_wrote_meanwhile_is_not_taken_for_ours():
    log = FailingLog()
    session, other = Session.create(log, "s"), Session(log, "s")

    def take_over() -> None:
        other.acquire(take_over=True)
        other.record([user("x")])

    log.left = 1
    thread = threading.Timer(0.05, take_over)
    thread.start()
    with pytest.raises(Fenced):
        session.record([user("a")])
    thread.join()
    other.close()
    assert said(session) == ["x"]


def test_a_locked_file_is_waited_for(tmp_path: Path):
    log = SqliteLog(tmp_path / "s.db", wait_s=0.2)
    with closing(log), Session.create(log, "s") as session:
        locking = sqlite3.connect(tmp_path / "s.db", isolation_level=None, check_same_thread=False)
        locking.execute("BEGIN IMMEDIATE")
        timer = threading.Timer(1.0, lambda: locking.execute("ROLLBACK"))
        timer.start()
        session.record([user("a")])
        timer.join()
        locking.close()
        assert said(session) == ["a"]


def start_later(server: postgres.Server) -> None:
    time.sleep(0.5)
    server.start()


@pytest.mark.slow
def test_a_server_that_is_started_again_loses_no_answer():
    try:
        installation = postgres.obtain()
    except ConfigurationError as error:
        pytest.skip(str(error))
    with (
        postgres.Server(installation) as server,
        closing(PostgresLog(server.created())) as log,
        Session.create(log, "s") as session,
    ):
        session.record([user("a")])
        server.crash()
        thread = threading.Thread(target=start_later, args=(server,))
        thread.start()
        try:
            session.record([user("b")])
        finally:
            thread.join()
        assert said(session) == ["a", "b"]
        assert verify(log, "s") == []


# --- who may write --------------------------------------------------------------------------------


def test_a_lease_of_this_process_that_nobody_holds_is_taken_at_once(tmp_path: Path):
    with closing(SqliteLog(tmp_path / "s.db")) as log:
        Session.create(log, "s")  # never closed, held by nobody
        with Session(log, "s") as session:
            session.record([user("a")])
            assert "was not waited for" in session.acquire().taken


def test_a_living_session_of_this_process_keeps_its_lease(tmp_path: Path):
    with closing(SqliteLog(tmp_path / "s.db")) as log, Session.create(log, "s") as session:
        with pytest.raises(BusyWriter):
            Session(log, "s").record([user("x")])
        session.record([user("a")])
        assert said(session) == ["a"]


def test_who_is_taken_over_from_is_told_and_writes_nothing():
    log = MemoryLog()
    session, heard = Session.create(log, "s"), list[Event | Live]()
    with Session(log, "s") as other:
        other.hear(heard.append)
        other.acquire(take_over=True)
        with pytest.raises(Fenced, match="may not write to session s any more"):
            session.record([user("late")])
        other.record([user("a")])
    assert said(session) == ["a"]
    assert any(isinstance(e, Live) and "taken over" in e.data["text"] for e in heard)


class LostLog(ThreadedLog, MemoryLog):
    """A log whose server goes away in a turn: what is awaited takes a moment and fails."""

    def __init__(self) -> None:
        MemoryLog.__init__(self, lease_s=0.3)
        ThreadedLog.__init__(self, self, AT_ONCE)

    async def aappend(
        self, session: str, epoch: int, expected_head: int, drafts: Sequence[Draft], now: float
    ) -> list[Event]:
        if not any(draft.type == "assistant_message" for draft in drafts):
            return await super().aappend(session, epoch, expected_head, drafts, now)
        await asyncio.sleep(0.5)  # a sign of life waits for its turn meanwhile
        raise StoreError("the disk is gone")

    async def aheartbeat(self, session: str, epoch: int, now: float) -> Lease:
        if self.head(session).seq <= 1:  # the turn has not begun
            return await super().aheartbeat(session, epoch, now)
        await asyncio.sleep(0.3)
        raise StoreAway("the server went away")


def test_a_turn_ends_though_a_sign_of_life_fails_while_it_ends(tmp_path: Path):
    ended: list[str] = []
    with Session.create(LostLog(), "s") as session, scripted(saying("Seven.")) as server:

        def run() -> None:
            try:
                asyncio.run(agent(server, tmp_path).arun(session, "How many casks?"))
            except StoreError as error:
                ended.append(str(error))

        turn = threading.Thread(target=run, daemon=True)  # a turn without an end would keep us here
        turn.start()
        turn.join(20)
        assert ended == ["the disk is gone"]
