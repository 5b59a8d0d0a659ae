"""What was said is gone for good: from every store, its search, and the bytes of its files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import apsw
import pytest

from tests.storage.databases import TimedLog
from tests.storage.records import checkpoint, talk
from tests.storage.test_log import OTHER, SOME, begun, word
from tests.support.postgres import Server, obtain
from ullage.core.compaction.edits import Clear, Script, reference
from ullage.core.errors import BusyWriter, Fenced
from ullage.core.session.log.erasing import PURGED, erase_events
from ullage.core.session.log.event import Draft
from ullage.core.session.originals import list_sources
from ullage.storage import open_log, open_store
from ullage.storage.log import EventLog, verify
from ullage.storage.log_memory import MemoryLog
from ullage.storage.log_sqlite import SqliteLog
from ullage.storage.protocol import ForgetsTenants, Store
from ullage.storage.searching import search_log

CANARY = "zanzibarquillfeather"
OURS = "my password is " + CANARY + " and nobody else may know it"
KINDS = ("memory", "sqlite", "postgres")


@pytest.fixture(params=KINDS)
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


def fill(log: EventLog, session: str, *texts: str) -> int:
    epoch = begun(log, session)
    log.append(session, epoch, 0, [word(text) for text in texts], 5.0)
    return epoch


def test_a_session_is_rewritten_whole_and_its_chain_holds(log: EventLog) -> None:
    epoch = fill(log, "s", OURS, "and more")
    other = fill(log, "t", "something else")
    before = log.read("s")
    log.rewrite("s", epoch, erase_events(before, 9.0))
    after = log.read("s")
    assert verify(log, "s") == verify(log, "t") == []
    assert [event.type for event in after] == ["event_erased", "event_erased", PURGED]
    assert [event.ts for event in after] == [5.0, 5.0, 9.0]
    assert not {event.id for event in before} & {event.id for event in after}
    assert CANARY not in str(after)
    log.append("t", other, 1, [word("goes on")], 6.0)
    assert log.head("s").seq == 3
    assert log.read("s", after=2) == after[2:]


def test_only_the_writer_rewrites(log: EventLog) -> None:
    epoch = fill(log, "s", OURS)
    made = erase_events(log.read("s"), 9.0)
    log.release("s", epoch, 6.0)
    taken = log.acquire("s", OTHER, 6.0)
    with pytest.raises(Fenced):
        log.rewrite("s", epoch, made)
    assert log.read("s")[0].data["text"] == OURS
    log.rewrite("s", taken.epoch, made)
    log.append("s", taken.epoch, 2, [word("more")], 9.0)
    assert verify(log, "s") == []


def test_a_search_finds_nothing_of_it_any_more(log: EventLog) -> None:
    epoch = fill(log, "s", OURS, "a text that both have")
    fill(log, "t", "a text that both have")
    assert search_log(log, CANARY, 5)
    log.rewrite("s", epoch, erase_events(log.read("s"), 9.0))
    assert search_log(log, CANARY, 5) == []
    assert [hit.session for hit in search_log(log, "text that both have", 5)] == ["t"]


def test_a_search_that_read_before_takes_nothing_in_afterwards(log: EventLog) -> None:
    epoch = fill(log, "s", OURS)
    late = log.read("s")
    log.rewrite("s", epoch, erase_events(late, 9.0))
    passages = log.passages  # type: ignore[attr-defined]  # every log of ours has them
    if not isinstance(log, MemoryLog):  # one process, under one lock
        passages.take("s", list_sources(late), late[-1].seq)
    assert search_log(log, CANARY, 5) == []


def test_nothing_is_left_in_the_files_of_sqlite(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    log = open_log(f"sqlite:{path}")
    epoch = fill(log, "s", *(f"{OURS} {n} " + "x" * 9_000 for n in range(50)))
    fill(log, "t", "it stays")
    assert search_log(log, CANARY, 5)
    held = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert CANARY.encode() in held
    log.rewrite("s", epoch, erase_events(log.read("s"), 9.0))
    assert log.scrub() == ""
    for file in tmp_path.iterdir():
        assert CANARY.encode() not in file.read_bytes(), file
    assert log.read("t")[0].data["text"] == "it stays"
    log.close()


def test_a_reader_that_holds_the_wal_is_told_of(tmp_path: Path) -> None:
    log = SqliteLog(tmp_path / "log.db", wait_s=0.1)
    epoch = fill(log, "s", OURS)
    reader = apsw.Connection(str(tmp_path / "log.db"))
    reader.execute("BEGIN; SELECT * FROM events").fetchall()
    log.rewrite("s", epoch, erase_events(log.read("s"), 9.0))
    assert "log.db-wal" in log.scrub()
    reader.close(force=True)
    assert log.scrub() == ""
    assert CANARY.encode() not in (tmp_path / "log.db-wal").read_bytes()
    log.close()


@pytest.mark.slow
def test_nothing_is_left_in_the_tables_of_postgresql() -> None:
    with Server(obtain()) as database:
        log = open_log(database.created())
        epoch = fill(log, "s", *(f"{OURS} {n}" for n in range(50)))
        assert search_log(log, CANARY, 5)
        log.rewrite("s", epoch, erase_events(log.read("s"), 9.0))
        assert "WAL" in log.scrub()
        log.close()
        database.stop()  # its last checkpoint writes what it still had in memory
        for file in (database.folder / "data" / "base").rglob("*"):
            assert not file.is_file() or CANARY.encode() not in file.read_bytes(), file


# ── tenants ─────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    url = {"memory": "memory:", "sqlite": f"sqlite:{tmp_path / 'store.db'}"}.get(request.param)
    opened = open_store(url or request.getfixturevalue("postgres_database")())
    yield opened
    opened.close()


def test_a_tenant_is_forgotten_with_the_originals_that_only_it_names(store: Store) -> None:
    assert isinstance(store, ForgetsTenants)
    ours, both, theirs = OURS, "what two have seen", "what others said"
    store.originals.keep({reference(text): text for text in (ours, both, theirs)})
    for scope, texts in (("http://h#aa|p", (ours, both)), ("http://h#bb|p", (both, theirs))):
        script = Script.of(
            [Clear(n, 0, -1, f"[{reference(text)}]") for n, text in enumerate(texts)]
        )
        store.checkpoints.save(replace(checkpoint("k", 1, scope=scope), script=script))
        store.conversations.save(talk("k", scope))
    assert store.forget_tenant("#aa") == 2
    assert store.checkpoints.load("http://h#aa|p", ["k"]) is None
    assert store.conversations.load("http://h#aa|p", ["k"]) is None
    assert store.originals.read(reference(ours)) is None
    assert store.originals.read(reference(both)) == both
    assert store.originals.read(reference(theirs)) == theirs
    assert store.checkpoints.load("http://h#bb|p", ["k"]) is not None
    assert store.forget_tenant("#aa") == 0
    store.scrub()


def test_a_session_without_text_of_its_own_is_erased_too() -> None:
    log = MemoryLog()
    epoch = begun(log)
    usage = {"model": "m", "input": 5, "dollars": 0.5, "note": OURS, "state": {"a": 1}}
    drafts = [
        Draft("provider_usage", {**usage, "context": {"ratio": 0.5, "tier": "none"}}),
        Draft("of_tomorrow", {"text": OURS}, 7),
    ]
    log.append("s", epoch, 0, drafts, 5.0)
    made = erase_events(log.read("s"), 4.0)
    assert [event.type for event in made] == ["provider_usage", "event_erased", PURGED]
    kept = {"model": "m", "input": 5, "dollars": 0.5, "context": {"ratio": 0.5}}
    assert made[0].data == kept
    assert made[1].data["type"] == "unknown"
    assert made[2].ts == 5.0, "no event is older than the one before"


def test_a_busy_session_has_one_writer() -> None:
    log = MemoryLog()
    log.create("s", 1.0)
    log.acquire("s", SOME, 1.0)
    with pytest.raises(BusyWriter):
        log.acquire("s", OTHER, 2.0)
