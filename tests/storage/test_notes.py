"""Small records that processes share: the last one written holds, and all hear of it in order."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.clock import FakeClock
from ullage.core.errors import StoreError
from ullage.storage import MemoryStore, StoreLimits
from ullage.storage.notes import Notes, SharedNote, notes_of
from ullage.storage.postgres import PostgresStore
from ullage.storage.sql_store import SqlStore
from ullage.storage.sqlite import SqliteStore

Opened = Callable[[], SqlStore]


@pytest.fixture(params=["sqlite", "postgres"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opened]:
    """Open the same store once more with each call, as another process does."""
    stores: list[SqlStore] = []
    url = request.getfixturevalue("postgres_database")() if request.param == "postgres" else ""
    limits, clock = StoreLimits(most=100, ttl_s=1_000), FakeClock(1_000)

    def opening() -> SqlStore:
        if url:
            stores.append(PostgresStore(url, limits=limits, now=clock))
        else:
            stores.append(SqliteStore(tmp_path / "store.db", limits=limits, now=clock))
        return stores[-1]

    yield opening
    for store in stores:
        store.close()


def note(name: str, value: int, topic: str = "t") -> SharedNote:
    return SharedNote(topic, "s", name, {"n": value})


def told(found: tuple[int, list[SharedNote]]) -> list[int]:
    return [one.value["n"] for one in found[1]]


def test_what_one_process_wrote_another_reads(opened: Opened) -> None:
    one, two = opened(), opened()
    one.notes.write([note("a", 1), note("b", 2), note("a", 3, "other")])
    assert two.notes.read("t", "s", "a") == {"n": 1}
    assert two.notes.read("other", "s", "a") == {"n": 3}
    assert two.notes.read("t", "x", "a") is None
    two.notes.write([note("a", 4)])
    assert one.notes.read("t", "s", "a") == {"n": 4}


def test_what_was_written_since_is_heard_in_the_order_of_writing(opened: Opened) -> None:
    one, two = opened(), opened()
    assert two.notes.list_since("t", 0) == (0, [])
    one.notes.write([note("a", 1), note("b", 2)])
    turn, first = two.notes.list_since("t", 0)
    assert [each.value["n"] for each in first] == [1, 2]
    assert told(two.notes.list_since("t", turn)) == [2]
    two.notes.write([note("a", 3)])
    one.notes.write([note("c", 4), note("a", 9, "other")])
    assert told(two.notes.list_since("t", turn)) == [2, 3, 4]


def test_all_is_heard_again_where_the_last_that_was_heard_is_gone(opened: Opened) -> None:
    store = opened()
    store.notes.write([note("a", 1)])
    turn, _ = store.notes.list_since("t", 0)
    assert store.forget_tenant("s") == 1
    store.notes.write([note("b", 2)])
    assert told(store.notes.list_since("t", turn + 1)) == [2]


def test_long_and_strange_names_come_back_whole(opened: Opened) -> None:
    store, name = opened(), "\ud800" + "long " * 100
    strange = SharedNote("t", name, name, {"n": 1})
    store.notes.write([strange])
    assert store.notes.list_since("t", 0)[1] == [strange]
    assert store.notes.read("t", name, name) == {"n": 1}


def test_a_damaged_record_hides_no_other(opened: Opened, caplog: pytest.LogCaptureFixture) -> None:
    store = opened()
    store.notes.write([note("a", 1), note("b", 2)])
    table = "ullage.records" if isinstance(store, PostgresStore) else "records"
    with store._records.database.writing() as writer:
        writer.execute(
            f"UPDATE {table} SET body = :b WHERE name = 'a'", {"b": b'{"topic":"t"}'}
        ) if (table == "records") else writer.execute(
            f"UPDATE {table} SET body = %(b)s WHERE name = 'a'", {"b": b'{"topic":"t"}'}
        )
    with caplog.at_level(logging.WARNING):
        assert told(store.notes.list_since("t", 0)) == [2]
    assert "has no value" in caplog.text
    with pytest.raises(StoreError, match="has no value"):
        store.notes.read("t", "s", "a")


def test_a_store_in_memory_shares_nothing(opened: Opened) -> None:
    assert notes_of(MemoryStore()) is None
    assert isinstance(notes_of(opened()), Notes)
