"""Large texts go to object storage and come back: what is read stays the same, whatever happens."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.objects import BUCKET, serve_s3
from ullage.agent import Session
from ullage.agent.moving import (
    Movement,
    fetch_texts,
    find_orphans,
    move_originals,
    move_texts,
)
from ullage.agent.purging import purge_sessions
from ullage.agent.retention import RetentionRules, apply_retention, plan_retention
from ullage.api.recall import recall
from ullage.core.compaction.edits import reference
from ullage.core.errors import ConfigurationError, StoreAway
from ullage.core.session.log.event import Draft
from ullage.storage import MemoryStore, Store, open_log, open_store
from ullage.storage.log import EventLog, verify
from ullage.storage.log_memory import MemoryLog
from ullage.storage.objects import LostText, MovedText, ObjectPlace
from ullage.storage.retaining import MovesOriginals, MovesTexts, RemovesSessions
from ullage.storage.searching import search_log

LONG = "The gauge of cask 4711 reads seven at line 88. " * 1_000
SOON = 4e9
LEAST = 1_000


class Both(EventLog, MovesTexts, RemovesSessions):
    """What the logs in databases are."""


class Kept(Store, MovesOriginals):
    """What the stores in databases are."""


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:{tmp_path / 's.db'}"
    made: str = request.getfixturevalue("postgres_database")()
    return made


@pytest.fixture
def log(url: str) -> Iterator[Both]:
    with closing(open_log(url)) as opened:
        with Session.create(opened, "s") as session:
            session.record(
                [
                    Draft("user_message", {"text": "hello"}),
                    Draft("tool_result", {"call_id": "c", "text": LONG}),
                    Draft("user_message", {"text": f"and {LONG}"}),
                    Draft("note", {"text": LONG}),
                ]
            )
        yield opened  # type: ignore[misc]


@pytest.fixture
def place(tmp_path: Path) -> ObjectPlace:
    return ObjectPlace(f"file://{tmp_path}/texts", create=True)


def list_names(place: ObjectPlace) -> set[str]:
    return set(dict(place.list_objects(SOON)))


def test_a_session_reads_as_before(log: Both, place: ObjectPlace):
    before, stamped = log.read("s"), log.read_stamped("s")
    planned = move_texts(log, None, SOON, LEAST)
    assert list_names(place) == set()
    done = move_texts(log, place, SOON, LEAST)
    assert done == planned == Movement(2, done.size, 1)
    assert 2 * len(LONG) < done.size < 3 * len(LONG)
    moved = log.list_moved("s")
    assert [held.seq for held in moved] == [3, 4], "what others read stays: the note"
    assert {MovedText.read(held.text).name for held in moved} == list_names(place)  # type: ignore[union-attr]
    assert (log.read("s"), log.read_stamped("s")) == (before, stamped)
    assert verify(log, "s") == []
    assert recall(reference(LONG), store=log) == LONG
    assert {hit.session for hit in search_log(log, "gauge")} == {"s"}
    assert move_texts(log, place, SOON, LEAST) == Movement(), "a second time nothing moves"
    with Session(log, "s") as session:
        assert session.record([Draft("user_message", {"text": "more"})])[0].seq == 6
    assert fetch_texts(log) == done
    assert log.list_moved() == []
    assert log.read("s")[:5] == before
    assert list_names(place) == set()
    assert fetch_texts(log) == Movement()


def test_what_is_young_or_small_stays(log: Both, place: ObjectPlace):
    assert move_texts(log, place, time.time() - 60, LEAST) == Movement()
    assert move_texts(log, place, SOON, 10**6) == Movement()
    assert list_names(place) == set()


def test_a_gone_or_changed_object_is_told_by_its_event(log: Both, place: ObjectPlace):
    move_texts(log, place, SOON, LEAST)
    first, second = (MovedText.read(held.text) for held in log.list_moved("s"))
    assert first is not None
    assert second is not None
    place._store.put(second.name, b"other")
    with pytest.raises(LostText, match=r"text of event 4 of session s: .* was changed after"):
        log.read("s")
    place.delete([first.name])
    with pytest.raises(LostText, match=r"text of event 3 of session s: .* no such object"):
        log.read("s")
    assert log.read("s", upto=2)[-1].data["text"] == "hello", "what stands before is read"
    assert [seq for fault in verify(log, "s") for seq in ("3", "4") if f"event {seq}" in fault]
    done = fetch_texts(log)
    assert (done.texts, len(done.lost)) == (0, 2)


def test_purge_and_retention_take_the_objects_along(log: Both, place: ObjectPlace):
    with Session.create(log, "t", now=lambda: 1.0) as session:
        session.record([Draft("user_message", {"text": LONG})])
    move_texts(log, place, SOON, LEAST)
    assert len(list_names(place)) == 3
    due = plan_retention(log, RetentionRules(days=30), time.time())
    assert apply_retention(log, due, time.time).sessions == ("t",)
    assert len(list_names(place)) == 2
    purge_sessions(log, ["s"])
    assert list_names(place) == set()
    assert verify(log, "s") == []


class Breaking(ObjectPlace):
    """A place whose process dies behind a write."""

    def put(self, text: str) -> MovedText:
        super().put(text)
        raise KeyboardInterrupt


def test_a_crash_behind_a_write_leaves_an_object_that_a_sweep_names(log: Both, place: ObjectPlace):
    before = log.read("s")
    with pytest.raises(KeyboardInterrupt):
        move_texts(log, Breaking(place.url), SOON, LEAST)
    assert log.read("s") == before
    assert log.list_moved() == []
    assert find_orphans(place, log, None, time.time()).names == (), "it may be about to be named"
    move_texts(log, place, SOON, LEAST)
    orphans = find_orphans(place, log, None, SOON)
    assert len(orphans.names) == 1
    assert orphans.size > len(LONG)
    place.delete(orphans.names)
    assert find_orphans(place, log, None, SOON).names == ()
    assert log.read("s") == before


class Rival(ObjectPlace):
    """A place that lets somebody rewrite the session between an object and its row."""

    log: Both

    def put(self, text: str) -> MovedText:
        purge_sessions(self.log, ["s"])
        return super().put(text)


def test_what_was_purged_meanwhile_does_not_come_back(log: Both, place: ObjectPlace):
    rival = Rival(place.url)
    rival.log = log
    assert move_texts(log, rival, SOON, LEAST) == Movement()
    assert list_names(place) == set()
    assert "gauge" not in str(log.read("s"))


def test_originals_of_a_store_move_and_come_back(url: str, log: Both, place: ObjectPlace):
    name, short = reference(LONG), reference("short")
    with closing(open_store(url)) as store:
        store.originals.keep({name: LONG, short: "short"})
        assert move_originals(store, None, SOON, LEAST).texts == 1
        done = move_originals(store, place, SOON, LEAST)
        assert (done.texts, done.size, len(list_names(place))) == (1, len(LONG), 1)
        assert store.originals.read(name) == LONG
        assert store.originals.read(short) == "short"
        store.originals.keep({name: LONG})
        assert len(list_names(place)) == 1, "kept again, it stays where it is"
        assert store.originals.search("gauge 4711")[0].reference == name  # type: ignore[attr-defined]
        assert find_orphans(place, log, store, SOON).names == ()
        assert len(find_orphans(place, log, None, SOON).names) == 1
        assert fetch_texts(log, store).texts == 1
        assert store.originals.read(name) == LONG
        assert list_names(place) == set()


def test_an_original_that_is_gone_is_told_and_hides_no_other(url: str, place: ObjectPlace):
    with closing(open_store(url)) as store:
        store.originals.keep({"u:1": LONG, "u:2": "the cellar holds casks"})
        move_originals(store, place, SOON, LEAST)
        place.delete(list_names(place))
        with pytest.raises(LostText, match="no such object"):
            store.originals.read("u:1")
        assert store.originals.search("cellar")[0].reference == "u:2"  # type: ignore[attr-defined]


def test_what_is_forgotten_goes_from_the_place_too(url: str, place: ObjectPlace):
    with closing(open_store(url)) as store:
        store.originals.keep({"u:1": LONG})
        move_originals(store, place, SOON, LEAST)
        assert store.purge(SOON) == 1
        assert list_names(place) == set()


def test_what_changed_meanwhile_is_left(url: str):
    with closing(open_store(url)) as store:
        assert isinstance(store, MovesOriginals)
        store.originals.keep({"u:1": LONG})
        ((number, _),) = store.list_originals(1, SOON, 9)
        assert not store.swap_original(number, "other", "x")
        assert store.originals.read("u:1") == LONG


def test_a_place_that_is_away_stops_it_with_nothing_lost(
    log: Both, monkeypatch: pytest.MonkeyPatch
):
    before = log.read("s")
    with serve_s3() as variables:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        bucket = ObjectPlace(f"s3://{BUCKET}/p")
        done = move_texts(log, bucket, SOON, LEAST)
        assert done.texts == 2
        assert log.read("s") == before
    with pytest.raises(StoreAway):
        log.read("s")
    assert log.head("s").seq == 5
    with pytest.raises(StoreAway):
        move_texts(log, bucket, SOON, 10)


class Plain:
    """A log, and a store, of another make."""

    url = "other:"


def test_other_logs_and_stores_are_refused(place: ObjectPlace):
    with closing(MemoryLog()) as memory:
        for work in (
            lambda: move_texts(memory, place, SOON),
            lambda: fetch_texts(memory),
            lambda: find_orphans(place, memory, None, SOON),
            lambda: move_originals(MemoryStore(), place, SOON),
        ):
            with pytest.raises(ConfigurationError, match="cannot be moved"):
                work()
