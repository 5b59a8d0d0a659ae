"""A log whose stored bytes were changed: no reader gets what nobody wrote; each is told where."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.storage.databases import TimedLog
from tests.storage.elsewhere import run_elsewhere
from ullage.core.errors import CorruptLog
from ullage.core.session.log.event import Draft
from ullage.storage.log import EventLog, Owner, verify
from ullage.storage.log_memory import MemoryLog
from ullage.storage.log_sqlite import SqliteLog

SOME = Owner("some", 1, "", "")
TEXTS = ("pay 100 to Anna", "fünf", "never delete the cellar")


def written(log: EventLog, session: str) -> None:
    """Record three messages in a new session."""
    log.create(session, 1.0)
    epoch = log.acquire(session, SOME, 1.0).epoch
    log.append(session, epoch, 0, [Draft("user_message", {"text": t}) for t in TEXTS], 2.0)


def flip(path: Path, seq: int, bit: int, column: str = "data") -> None:
    """Change one bit of what is stored of an event."""
    with closing(sqlite3.connect(path)) as file:
        ((held,),) = file.execute(
            f"SELECT CAST({column} AS BLOB) FROM events WHERE session_id = 's' AND seq = ?", (seq,)
        )
        changed = bytearray(held)
        changed[bit // 8 % len(held)] ^= 1 << bit % 8
        file.execute(
            f"UPDATE events SET {column} = CAST(? AS TEXT) WHERE session_id = 's' AND seq = ?",
            (bytes(changed), seq),
        )
        file.commit()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Return the bytes of a file with two sessions."""
    path = tmp_path_factory.mktemp("whole") / "log.db"
    log = SqliteLog(path)
    written(log, "s")
    written(log, "other")
    log.close()
    return path.read_bytes()


@given(
    seq=st.integers(1, 3),
    bit=st.integers(0, 500),
    column=st.sampled_from(["data", "id", "type"]),
    after=st.integers(0, 2),
)
def test_a_bit_that_flipped_anywhere_in_an_event_is_found_when_it_is_read(
    whole: bytes,
    tmp_path_factory: pytest.TempPathFactory,
    seq: int,
    bit: int,
    column: str,
    after: int,
):
    path = tmp_path_factory.mktemp("flip") / "log.db"
    path.write_bytes(whole)
    flip(path, seq, bit, column)
    log = SqliteLog(path)
    try:
        if after < seq or (after == seq and column == "id"):
            with pytest.raises(CorruptLog, match="of session s was changed after it was written"):
                log.read("s", after)
        assert len(log.read("s", upto=seq - 1)) == seq - 1
        assert [e.data["text"] for e in log.read("other")] == list(TEXTS)
        assert any(f"event {seq} of session s" in fault for fault in verify(log, "s"))
    finally:
        log.close()


Change = Callable[[str], None]


@pytest.fixture(params=["sqlite", "postgres"])
def changed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[EventLog, Change]]:
    """Lend a log of two sessions, and what runs a statement on its tables behind its back."""
    log: EventLog
    if request.param == "sqlite":
        log = SqliteLog(tmp_path / "log.db")

        def change(sql: str) -> None:
            run_elsewhere(tmp_path / "log.db", sql.replace("ullage.", ""))

    else:
        url = request.getfixturevalue("postgres_database")()
        log = TimedLog(url)

        def change(sql: str) -> None:
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute(sql)

    written(log, "s")
    written(log, "other")
    yield log, change
    log.close()


def test_what_somebody_changed_in_the_tables_is_an_error_that_says_what_to_do(
    changed: tuple[EventLog, Change],
):
    log, change = changed
    change("UPDATE ullage.events SET data = replace(data, '100', '900') WHERE session_id = 's'")
    with pytest.raises(CorruptLog) as told:
        log.read("s")
    assert "event 1 of session s was changed after it was written" in str(told.value)
    assert "`ullage verify s`" in str(told.value)
    assert "fork" not in str(told.value)  # nothing before it is whole
    assert len(log.read("other")) == 3


def test_a_whole_chain_that_is_not_the_one_of_the_head_is_an_error(
    changed: tuple[EventLog, Change],
):
    log, change = changed
    change("UPDATE ullage.sessions SET last = 'another' WHERE session_id = 's'")
    with pytest.raises(CorruptLog, match="event 3 of session s was changed after it was written"):
        log.read("s")
    assert [event.seq for event in log.read("s", upto=2)] == [1, 2]


def test_an_event_that_is_gone_is_told_by_its_number_wherever_the_reading_begins(
    changed: tuple[EventLog, Change],
):
    log, change = changed
    change("DELETE FROM ullage.events WHERE session_id = 's' AND seq = 2")
    for after in (0, 1, 2):
        with pytest.raises(CorruptLog, match=r"lacks event 2: .*`ullage fork s --at 1`"):
            log.read("s", after)


def test_what_changed_in_memory_is_found_as_well():
    log = MemoryLog()
    written(log, "s")
    event = log.read("s")[1]
    object.__setattr__(event, "text", event.text.replace("f", "g"))
    with pytest.raises(CorruptLog, match="event 2 of session s"):
        log.read("s")
