"""Sessions are taken out of every log the same way: whole, in bounded pieces, by their writer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.storage.databases import TimedLog
from ullage.core.errors import Fenced, UnknownSession
from ullage.core.search.ranking import SearchArea
from ullage.core.session.log.event import Draft
from ullage.storage.log import EventLog, Owner, verify
from ullage.storage.log_memory import MemoryLog
from ullage.storage.log_sqlite import SqliteLog
from ullage.storage.retaining import RemovesSessions
from ullage.storage.searching import search_log

SOME = Owner("some", 1, "", "")


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[EventLog]:
    opened: EventLog
    if request.param == "memory":
        opened = MemoryLog()
    elif request.param == "sqlite":
        opened = SqliteLog(tmp_path / "log.db")
    else:
        opened = TimedLog(request.getfixturevalue("postgres_database")())
    yield opened
    opened.close()


def write(log: EventLog, name: str, *texts: str, at: float = 5.0) -> int:
    """Write a session; return the epoch of its writer, who holds it still."""
    log.create(name, 1.0)
    epoch = log.acquire(name, SOME, 1.0).epoch
    log.append(name, epoch, 0, [Draft("user_message", {"text": text}) for text in texts], at)
    return epoch


def removing(log: EventLog) -> RemovesSessions:
    assert isinstance(log, RemovesSessions)
    return log


def test_a_survey_tells_ages_and_sizes(log: EventLog):
    write(log, "a", "one", "two")
    log.create("empty", 2.0)
    whole = removing(log).survey(sized=True)
    assert [(one.session, one.created, one.last, one.events) for one in whole] == [
        ("a", 1.0, 5.0, 2),
        ("empty", 2.0, 2.0, 0),
    ]
    assert [one.size for one in whole] == [sum(e.text_bytes for e in log.read("a")), 0]
    assert {one.size for one in removing(log).survey(sized=False)} == {0}


def test_a_session_goes_with_all_that_was_kept_of_it(log: EventLog):
    epoch = write(log, "a", "the gauge reads seven")
    write(log, "b", "the gauge reads eight", "and more of the gauge")
    assert {hit.session for hit in search_log(log, "gauge")} == {"a", "b"}
    assert removing(log).remove("a", epoch)
    assert [head.session for head in log.sessions()] == ["b"]
    for ask in (log.head, log.read, log.leases):
        with pytest.raises(UnknownSession):
            ask("a")
    assert {hit.session for hit in search_log(log, "gauge")} == {"b"}
    assert verify(log, "b") == []
    again = write(log, "a", "the cellar")
    assert again == 1, "a new session of the name has nothing of the old one"
    assert {hit.session for hit in search_log(log, "cellar")} == {"a"}


def test_between_two_pieces_there_is_a_whole_session(log: EventLog):
    texts = [f"word {n}" for n in range(10)]
    epoch, ends = write(log, "a", *texts), []
    search_log(log, "word")
    while not removing(log).remove("a", epoch, 4):
        assert verify(log, "a") == []
        ends.append(log.head("a").seq)
        area = SearchArea(sessions={"a": ends[-1]})
        assert search_log(log, "word", area=area) == [], "it is searched no more"
        assert log.read("a")[-1].data["text"] == f"word {ends[-1] - 1}"
    assert ends == [6, 2]
    assert log.sessions() == []


def test_only_the_writer_takes_a_session_out(log: EventLog):
    epoch = write(log, "a", "one")
    log.release("a", epoch, 6.0)
    with pytest.raises(Fenced):
        removing(log).remove("a", epoch)
    newer = log.acquire("a", SOME, 7.0).epoch
    with pytest.raises(Fenced):
        removing(log).remove("a", epoch)
    assert len(log.read("a")) == 1
    assert removing(log).remove("a", newer)
    with pytest.raises(UnknownSession):
        removing(log).remove("a", newer)


def test_a_session_without_an_event_goes_too(log: EventLog):
    log.create("a", 1.0)
    assert removing(log).remove("a", log.acquire("a", SOME, 1.0).epoch)
    assert log.sessions() == []
