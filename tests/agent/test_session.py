"""Sessions: recorded before published, redacted, one writer, forks, what is live only."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.clock import FakeClock
from ullage.agent.session import Live, Session
from ullage.core.errors import BusyWriter, ConfigurationError, Fenced, StoreError
from ullage.core.messages.redaction import REDACTED, Redactor
from ullage.core.session.log.event import Draft, Event
from ullage.storage.log import EventLog, Owner
from ullage.storage.log_memory import MemoryLog
from ullage.storage.log_sqlite import SqliteLog

OTHER = replace(Owner.here("another"), place="")
"""An owner of whom nobody knows whether it lives."""


@pytest.fixture(params=["memory", "sqlite"])
def log(request: Any, tmp_path: Path) -> Iterator[EventLog]:
    made: EventLog = MemoryLog() if request.param == "memory" else SqliteLog(tmp_path / "s.db")
    yield made
    made.close()


def user(text: str) -> Draft:
    return Draft("user_message", {"text": text})


def test_a_session_begins_with_its_creation_and_has_a_name(log: EventLog):
    with Session.create(log) as session:
        assert [e.type for e in session.events()] == ["session_created"]
        assert session.name in repr(session)
    with Session(log, session.name) as again:
        assert again.fold.head == 1


def test_a_session_that_is_not_there_cannot_be_opened(log: EventLog):
    with pytest.raises(StoreError, match="no session"):
        Session(log, "nobody")


def test_an_event_is_in_the_log_before_anybody_hears_of_it(log: EventLog):
    heads: list[int] = []
    with Session.create(log, "s") as session:
        end = session.hear(lambda event: heads.append(log.head("s").seq))
        session.record([user("a"), user("b")])
        end()
        session.record([user("c")])
    assert heads == [3, 3]


def test_a_failed_append_publishes_nothing_and_uses_no_number(log: EventLog):
    heard: list[Any] = []
    with Session.create(log, "s") as session:
        session.hear(heard.append)
        with pytest.raises(StoreError):
            session.record([Draft("user_message", {"text": "x", "n": float("nan")})])
        assert heard == []
        assert [e.seq for e in session.record([user("a")])] == [2]


def test_secrets_are_in_no_event(log: EventLog):
    with Session.create(log, "s") as session:
        session.redactor = Redactor(["sk-sentinel-1"])
        heard: list[Event | Live] = []
        session.hear(heard.append)
        session.record([user("my key is sk-sentinel-1"), user("c2stc2VudGluZWwtMQ")])
        assert all("sentinel" not in e.text for e in session.events())
        assert session.events()[1].data["text"] == f"my key is {REDACTED}"
        assert session.events()[2].data["text"] == REDACTED
        assert all(REDACTED in e.text for e in heard if isinstance(e, Event))


def test_a_second_writer_is_refused_while_the_first_holds(log: EventLog):
    with Session.create(log, "s"), pytest.raises(BusyWriter, match="being written"):
        Session(log, "s").record([user("a")])
    Session(log, "s").record([user("a")])


def test_a_writer_that_was_taken_over_writes_nothing_more(log: EventLog):
    clock = FakeClock(100.0)
    first = Session.create(log, "s", now=clock)
    clock.advance(100.0)
    # The first one lives in this process; an owner that cannot be looked at is judged by time.
    log.release("s", first.acquire().epoch, clock())
    log.acquire("s", OTHER, clock())
    with pytest.raises(Fenced):
        first.heartbeat()
    with pytest.raises(BusyWriter):
        first.record([user("late")])
    assert log.head("s").seq == 1


def test_an_append_behind_a_take_over_is_fenced(log: EventLog):
    clock = FakeClock(100.0)
    first = Session.create(log, "s", now=clock)
    log.release("s", first.acquire().epoch, clock())
    log.acquire("s", OTHER, clock())
    with pytest.raises(Fenced):
        first.record([user("late")])
    assert log.head("s").seq == 1


def test_a_take_over_is_told(log: EventLog):
    clock = FakeClock(100.0)
    log.create("s", clock())
    log.acquire("s", OTHER, clock())
    clock.advance(31.0)
    session = Session(log, "s", now=clock)
    heard: list[Any] = []
    session.hear(heard.append)
    session.record([user("a")])
    assert "another" in heard[0].data["text"]
    assert log.leases("s")[-1].taken


def test_two_readers_see_what_one_writes(log: EventLog):
    with Session.create(log, "s") as writer:
        reader = Session(log, "s")
        assert reader.fold.head == 1
        writer.record([user("a")])
        assert reader.fold.head == 2


def test_a_fork_shares_a_prefix_and_goes_its_own_way(log: EventLog):
    with Session.create(log, "s") as session:
        session.record([user("a"), user("b")])
        with session.fork(2, "f") as fork:
            assert [e.type for e in fork.events()] == [
                *("session_created", "user_message", "session_fork")
            ]
            assert fork.fold.forked == {"parent": "s", "seq": 2, "root": "s"}
            fork.record([user("c")])
            with fork.fork() as again:
                assert again.fold.forked["root"] == "s"
        assert session.fold.head == 3


@pytest.mark.parametrize("at", [0, 9])
def test_a_fork_at_no_event_is_refused(log: EventLog, at: int):
    with Session.create(log, "s") as session, pytest.raises(ConfigurationError, match="1 to 1"):
        session.fork(at)


def test_what_lasts_is_not_live():
    with pytest.raises(StoreError, match="recorded"):
        Live("s", "user_message", {})
    assert Live("s", "status", {}).type == "status"


def test_short_values_and_no_values_redact_nothing():
    data = {"a": ["x", 1]}
    assert Redactor(["short"]).data(data) is data
    assert Redactor(["long enough"]).data({"a": ["long enough", 1]}) == {"a": [REDACTED, 1]}
    assert os.sep not in REDACTED
