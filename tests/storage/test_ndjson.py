"""Logs as lines: what goes out comes in as it was; what was cut off or damaged is told."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.core.errors import CorruptLog, StoreError
from ullage.core.session.log.event import Draft, Event
from ullage.storage.log import Owner
from ullage.storage.log_memory import MemoryLog
from ullage.storage.log_sqlite import SqliteLog
from ullage.storage.ndjson import Torn, bring_in, export, lines, parse, verify


def session(*texts: str) -> tuple[MemoryLog, list[Event]]:
    """Return a log with a session `s` of these words."""
    log = MemoryLog()
    log.create("s", 1.0)
    epoch = log.acquire("s", Owner("o", 1, "", ""), 1.0).epoch
    drafts = [Draft("user_message", {"text": text}) for text in texts]
    return log, log.append("s", epoch, 0, drafts, 2.0)


def test_a_session_exported_and_brought_in_is_the_same_to_the_byte(tmp_path: Path):
    _, events = session("a", "\u2028\x85\ud800\0\n", "c")
    export(events, "s", tmp_path / "out")
    other = SqliteLog(tmp_path / "log.db")
    head, loaded = bring_in(other, tmp_path / "out", 9.0)
    assert (head.seq, loaded.torn) == (3, None)
    assert other.read("s") == events
    assert b"".join(lines(other.read("s"))) == (tmp_path / "out").read_bytes()
    other.close()


@pytest.mark.skipif(os.name != "posix", reason="permissions are POSIX's")
def test_an_export_is_private_and_takes_no_others_place(tmp_path: Path):
    _, events = session("a")
    export(events, "s", tmp_path / "out")
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o600
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for taken in ("out", "link"):
        with pytest.raises(StoreError, match="give a path that is free"):
            export(events, "s", tmp_path / taken)
    assert not (tmp_path / "elsewhere").exists()


@given(st.data())
def test_of_a_log_cut_anywhere_the_whole_lines_are_read_and_the_cut_is_told(data):
    _, events = session("a", "é😀", "c")
    whole = b"".join(lines(events))
    cut = data.draw(st.integers(0, len(whole)))
    loaded = parse(whole[:cut])
    assert loaded.events == tuple(events[: len(loaded.events)])
    if loaded.torn is None:
        assert whole[:cut].rstrip(b"\n") == b"".join(lines(loaded.events)).rstrip(b"\n")
    else:
        rest = whole[:cut].rpartition(b"\n")[2]
        assert loaded.torn == Torn(len(loaded.events) + 1, rest)


def test_a_last_line_that_only_lacks_its_end_is_whole():
    _, events = session("a", "b")
    loaded = parse(b"".join(lines(events))[:-1])
    assert (loaded.events, loaded.torn) == (tuple(events), None)


def test_a_torn_last_line_is_left_out_and_told_when_it_is_brought_in(tmp_path: Path):
    _, events = session("a", "b")
    (tmp_path / "in").write_bytes(b"".join(lines(events))[:-9])
    log = MemoryLog()
    head, loaded = bring_in(log, tmp_path / "in", 9.0)
    assert head.seq == 1
    assert loaded.torn is not None
    assert loaded.torn.line == 2
    assert loaded.torn.kept == tmp_path / "in.torn"
    assert (tmp_path / "in.torn").read_bytes() == loaded.torn.rest
    again, _ = bring_in(MemoryLog(), tmp_path / "in", 9.0)  # the record is there already
    assert again.seq == 1


def test_a_torn_line_that_cannot_be_recorded_is_not_left_out(tmp_path: Path):
    _, events = session("a", "b")
    (tmp_path / "in").write_bytes(b"".join(lines(events))[:-9])
    (tmp_path / "in.torn").write_bytes(b"of another")
    log = MemoryLog()
    with pytest.raises(StoreError, match=r"in\.torn cannot record it"):
        bring_in(log, tmp_path / "in", 9.0)
    assert log.sessions() == []


@pytest.mark.parametrize("damage", [b"{", b"", b"\xff", b"[]"])
def test_a_corrupt_line_that_is_not_cut_off_is_an_error_that_names_it(damage: bytes):
    first, _, last = lines(session("a", "b", "c")[1])
    with pytest.raises(CorruptLog, match="line 2 of x"):
        parse(first + damage + b"\n" + last, "x")
    with pytest.raises(CorruptLog, match="line 2 of x"):
        parse(first + damage + b"\n", "x")


def test_lines_that_lack_or_differ_are_found():
    _, events = session("a", "b", "c")
    assert verify(events) == []
    assert "follows event 1" in verify([events[0], events[2]])[0]
    changed = parse(b"".join(lines(events)).replace(b'"b"', b'"B"')).events
    assert "event 2 of session s was changed after it was written" in verify(changed)[0]


def test_a_file_that_is_not_there_is_told(tmp_path: Path):
    with pytest.raises(StoreError, match="cannot be read"):
        bring_in(MemoryLog(), tmp_path / "none", 1.0)
