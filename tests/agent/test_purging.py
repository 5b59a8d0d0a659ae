"""A session is purged with all that belongs to it, and what else holds its text is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from ullage.agent import Draft, Session
from ullage.agent.purging import list_old_sessions, purge_sessions
from ullage.core.errors import CorruptLog, StoreError, UnknownSession
from ullage.storage import open_log
from ullage.storage.blobs import Blobs
from ullage.storage.log import EventLog, Owner, verify
from ullage.storage.log_memory import MemoryLog

DAY = 24 * 3600.0


def said(text: str) -> Draft:
    return Draft("user_message", {"text": text})


def make_session(log: EventLog, name: str, *drafts: Draft, at: float = 1.0) -> None:
    with Session.create(log, name, now=lambda: at) as session:
        session.record([said(f"what {name} said"), *drafts])


def changed(blobs: Blobs, *contents: bytes) -> Draft:
    """Return the record of a change of files that held these contents."""
    files = [
        {"path": f"f{n}", "before": {"kind": "file", "hash": blobs.keep(data)}, "after": None}
        for n, data in enumerate(contents)
    ]
    return Draft("file_changes", {"turn": "t", "workspace": "/w", "files": files})


def test_a_session_goes_with_its_subagents_and_what_shares_its_text_is_named() -> None:
    log = MemoryLog()
    make_session(log, "s", Draft("subagent_event", {"child": "c", "task": "look"}))
    make_session(log, "c")
    make_session(log, "of another")
    Session(log, "s").fork(None, "fork").close()
    make_session(log, "later", Draft("branch_summary", {"text": "summary", "parent": "c"}))
    done = purge_sessions(log, ["s"])
    assert done.sessions == ("s", "c")
    assert set(done.linked) == {"fork", "later"}
    for name in ("s", "c"):
        assert verify(log, name) == []
        assert f"what {name} said" not in str(log.read(name))
    assert "what s said" in str(log.read("fork"))
    assert purge_sessions(log, ["s", "s"]).sessions == ("s",), "a second time nothing changes"


def test_nothing_goes_on_from_a_purged_session() -> None:
    log = MemoryLog()
    make_session(log, "s")
    purge_sessions(log, ["s"])
    with Session(log, "s") as session, pytest.raises(StoreError, match="was erased"):
        session.record([said("more")])
    assert log.leases("s")[-1].released is not None


def test_a_session_that_is_written_is_left_and_told() -> None:
    log = MemoryLog()
    make_session(log, "s")
    make_session(log, "t")
    log.acquire("s", Owner.here("an agent"), 1e12)
    done = purge_sessions(log, ["s", "t"], now=lambda: 1e12)
    assert done.sessions == ("t",)
    assert [name for name, _ in done.busy] == ["s"]
    assert "an agent" in done.busy[0][1]
    assert "what s said" in str(log.read("s"))
    with pytest.raises(UnknownSession):
        purge_sessions(log, ["nobody"])


def test_what_files_held_goes_unless_another_session_has_it_too(tmp_path: Path) -> None:
    log = open_log(f"sqlite:{tmp_path / 's.db'}")
    blobs = Blobs(tmp_path / "undo")
    manifest = blobs.keep(b'{"f": {"kind": "file", "hash": "%s"}}' % blobs.keep(b"x").encode())
    snapshot = Draft("snapshot_taken", {"turn": "t", "workspace": "/w", "manifest": manifest})
    make_session(log, "s", changed(blobs, b"only here", b"in both"), snapshot)
    make_session(log, "t", changed(blobs, b"in both"))
    done = purge_sessions(log, ["s"])
    assert done.files == 3
    kept = [path.read_bytes() for path in (tmp_path / "undo").glob("??/*")]
    assert kept == [b"in both"]
    log.close()


def test_a_damaged_session_can_be_purged(tmp_path: Path) -> None:
    import apsw

    log = open_log(f"sqlite:{tmp_path / 's.db'}")
    make_session(log, "s", Draft("tool_result", {"call_id": "c", "text": "found"}))
    connection = apsw.Connection(str(tmp_path / "s.db"))
    connection.execute("UPDATE events SET data = 'no json' WHERE seq = 2")
    connection.execute("UPDATE events SET data = CAST(x'ff41' AS TEXT) WHERE seq = 3")
    connection.close()
    with pytest.raises(CorruptLog):
        log.read("s")
    assert list_old_sessions(log, DAY) == ["s"]
    assert purge_sessions(log, ["s"]).sessions == ("s",)
    assert verify(log, "s") == []
    log.close()


def test_old_is_what_had_no_event_since() -> None:
    log = MemoryLog()
    make_session(log, "old", at=1 * DAY)
    make_session(log, "new", at=9 * DAY)
    make_session(log, "gone", at=1 * DAY)
    log.create("empty", 2 * DAY)
    with Session(log, "old", now=lambda: 8 * DAY) as session:
        session.record([said("again")])
    purge_sessions(log, ["gone"], now=lambda: 1 * DAY)
    assert list_old_sessions(log, 5 * DAY) == []
    assert list_old_sessions(log, 8.5 * DAY) == ["old"]
    assert purge_sessions(log, ["empty"]).sessions == ("empty",)
