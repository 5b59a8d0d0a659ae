"""Overviews of sessions: as if all was read, whatever was kept; no text; two at once."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.agent import Session
from ullage.agent.overview import Overview
from ullage.agent.overviews import Overviews
from ullage.agent.purging import purge_sessions
from ullage.core.errors import CorruptLog, StoreError
from ullage.core.session.log.event import Draft, Event
from ullage.storage.log_memory import MemoryLog
from ullage.storage.log_sqlite import SqliteLog

SECRET = "what is in the cellar"

CHECKPOINT = {"checkpoint": {"since": {"calls": 4, "repeated": 1}}}

DRAFTS: Sequence[Draft] = (
    Draft("session_created", {"served": {"model": "m", "workspace": "/w"}}),
    Draft("session_created", {"parent": "p"}),
    Draft("user_message", {"text": "  "}),
    Draft("user_message", {"text": SECRET}),
    Draft("turn_started", {"turn": "t1", "served": {"workspace": SECRET}}),
    Draft("turn_started", {"turn": "t2"}),
    Draft("turn_completed", {"turn": "t1"}),
    Draft("turn_failed", {"turn": "t2", "reason": SECRET}),
    Draft("tool_result", {"call_id": "c", "text": SECRET}),
    Draft("assistant_message", {"text": SECRET, "model": "m"}),
    Draft("provider_usage", {"model": "m", "input": 7, "output": 2, "dollars": 0.5}),
    Draft("provider_usage", {"model": "m", "context": {"ratio": 0.25, "faults": 2}}),
    Draft("history_compaction", CHECKPOINT),
    Draft("history_compaction", {**CHECKPOINT, "measured": True}),
    Draft("history_compaction", {"checkpoint": {}}),
    Draft("session_fork", {"parent": "f", "seq": 3}),
    Draft("branch_summary", {"text": SECRET, "parent": "old"}),
    Draft("branch_summary", {"text": SECRET}),
    Draft("subagent_event", {"child": "c1", "task": SECRET}),
    Draft("subagent_event", {"child": "c2"}),
    Draft("subagent_event", {"continued_in": "next"}),
    Draft("session_purged", {"events": 3}),
)


def recorded(drafts: Sequence[Draft]) -> list[Event]:
    log = MemoryLog()
    log.create("s", 0.0)
    session = Session(log, "s")
    if drafts:
        session.record(drafts)
    return session.events()


def take(events: Sequence[Event], found: Overview | None = None) -> Overview:
    found = Overview() if found is None else found
    found.take(events)
    return found


@given(st.lists(st.sampled_from(DRAFTS), max_size=25), st.data())
def test_in_pieces_over_json_it_is_as_at_once_and_holds_no_text(drafts, data):
    events = recorded(drafts)
    found, at = Overview(), 0
    while at < len(events):
        end = data.draw(st.integers(at + 1, len(events)))
        take(events[at:end], found)
        written = json.dumps(found.to_dict())
        assert SECRET not in written
        found, at = Overview.from_dict(json.loads(written)), end
    assert found == take(events)
    assert found.seq == len(events)


def test_what_the_events_tell():
    found = take(recorded([DRAFTS[0], *DRAFTS[2:]]))
    assert (found.turns, found.turn, found.said, found.served) == (2, None, 3, 4)
    assert (found.forked_from, found.continues, found.continued_in) == (("f", 3), "old", "next")
    assert (found.children, found.parent) == (["c1", "c2"], None)
    assert found.erased is not None
    sums = found.sums.total()
    assert (sums.requests, sums.prompt_tokens, sums.dollars, sums.pressures) == (2, 7, 0.5, (0.25,))
    assert (sums.faults, sums.calls, sums.repeated) == (2, 4, 1)


def test_events_that_do_not_follow_are_refused():
    events = recorded(DRAFTS[:5])
    other = recorded([DRAFTS[3], *DRAFTS[:5]])
    with pytest.raises(StoreError, match="does not follow"):
        take(events[3:], take(events[:2]))
    with pytest.raises(StoreError, match="does not follow"):
        take(other[2:], take(events[:2]))


@pytest.mark.parametrize(
    "change",
    [
        {"turns": "two"},
        {"turns": True},
        {"id": None},
        {"children": [1]},
        {"forked_from": ["f", "3"]},
        {"forked_from": ["f"]},
        {"sums": {}},
        {"sums": None},
        {"erased": "yesterday"},
    ],
)
def test_what_is_no_overview_is_refused(change: dict[str, Any]):
    whole = take(recorded(DRAFTS)).to_dict()
    with pytest.raises((TypeError, ValueError)):
        Overview.from_dict({**whole, **change})
    whole["sums"]["pressures"] = ["full"]
    with pytest.raises(ValueError, match="pressures"):
        Overview.from_dict(whole)


# --- kept on disk ---------------------------------------------------------------------------------


class Reading(SqliteLog):
    """A log that notes what was read of it."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.reads: list[tuple[int, int | None]] = []

    def read(self, session: str, after: int = 0, upto: int | None = None) -> list[Event]:
        self.reads.append((after, upto))
        return super().read(session, after, upto)


@pytest.fixture
def log(tmp_path: Path):
    log = Reading(tmp_path / "log.db")
    with Session.create(log, "s") as session:
        session.record([DRAFTS[3], *DRAFTS[4:12]])
    yield log
    log.close()


def read(log: Any, folder: Path | None) -> Overview:
    """Read as a process of its own does."""
    log.reads = []
    made = Overviews(log, folder)
    found = made.read(log.head("s"))
    made.save(log.sessions())
    return found


def files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.json"))


def test_only_what_is_new_is_read(log: Reading, tmp_path: Path):
    first = read(log, tmp_path)
    assert log.reads == [(0, 10)]
    assert read(log, tmp_path) == first
    assert log.reads == []
    with Session(log, "s") as session:
        session.record([DRAFTS[5], DRAFTS[10]])
    grown = read(log, tmp_path)
    assert log.reads == [(10, 12)]
    assert grown == take(log.read("s"))
    (file,) = files(tmp_path)
    assert SECRET not in file.read_text()
    assert file.stat().st_mode & 0o077 == 0


def test_a_session_that_was_purged_or_begun_anew_is_read_anew(log: Reading, tmp_path: Path):
    assert read(log, tmp_path).erased is None
    purge_sessions(log, ["s"])
    found = read(log, tmp_path)
    assert found.erased is not None
    assert found == take(log.read("s"))
    log.close()
    for path in tmp_path.glob("log.db*"):
        path.unlink()
    anew = Reading(tmp_path / "log.db")
    with Session.create(anew, "s") as session:
        session.record(list(DRAFTS[3:5]) * 10)
    assert read(anew, tmp_path) == take(anew.read("s"))
    anew.close()


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: "",
        lambda text: text[: len(text) // 2],
        lambda text: "[]",
        lambda text: '{"version": 1}',
        lambda text: '{"version": 99, "sessions": {"s": 1}}',
        lambda text: '{"version": 1, "sessions": {"s": 1}}',
        lambda text: '{"version": 1, "sessions": {"s": {"seq": 3}}}',
        lambda text: text.replace('"seq": 10', '"seq": 4'),
        lambda text: text.replace('"seq": 10', '"seq": 400'),
        lambda text: text.replace('"seq": 10', '"seq": -1'),
        lambda text: text.replace('"turns": 2', '"turns": "many"'),
    ],
)
def test_a_damaged_file_is_as_none(log: Reading, tmp_path: Path, damage: Any):
    whole = read(log, tmp_path)
    (file,) = files(tmp_path)
    file.write_text(damage(file.read_text()))
    assert read(log, tmp_path) == whole
    assert read(log, tmp_path) == whole
    assert log.reads == []


def test_what_cannot_be_read_is_told_and_not_kept(log: Reading, tmp_path: Path):
    log._database.together(
        lambda connection: connection.execute("DELETE FROM events WHERE seq = 3").fetchall()
    )
    with pytest.raises(CorruptLog, match="lacks event 3"):
        read(log, tmp_path)
    assert files(tmp_path) == []


def test_of_a_log_in_memory_and_without_a_folder_nothing_is_kept(log: Reading, tmp_path: Path):
    read(log, None)
    memory = MemoryLog()
    Session.create(memory, "s").close()
    made = Overviews(memory, tmp_path)
    assert made.read(memory.head("s")).seq == 1
    made.save(memory.sessions())
    assert files(tmp_path) == []


def test_two_at_once_and_a_writer_beside_are_both_right(log: Reading, tmp_path: Path):
    faults: list[object] = []

    def list_often() -> None:
        other = SqliteLog(tmp_path / "log.db")
        for _ in range(20):
            made = Overviews(other, tmp_path)
            head = other.head("s")
            found = made.read(head)
            if found != take(other.read("s", upto=found.seq)) or found.seq < head.seq:
                faults.append(found)
            made.save(other.sessions())
        other.close()

    threads = [threading.Thread(target=list_often) for _ in range(3)]
    for thread in threads:
        thread.start()
    with Session(log, "s") as session:
        for n in range(30):
            session.record([Draft("turn_started", {"turn": f"n{n}"})])
    for thread in threads:
        thread.join()
    assert faults == []
    assert read(log, tmp_path) == take(log.read("s"))
