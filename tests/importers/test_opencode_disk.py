"""Where opencode keeps sessions: found, read without a trace, and damaged ones hide no other."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import pytest

from tests.importers.opencode_kept import (
    ARCHIVED,
    COMPACTED,
    FILED,
    PROJECT,
    TAILED,
    open_writer,
    restore,
    restore_files,
)
from ullage.cli.main import main
from ullage.core.errors import ConfigurationError
from ullage.importers import content, find, latest, load, parse
from ullage.importers.listing import list_sessions
from ullage.importers.opencode import disk, glance
from ullage.importers.places import folders
from ullage.importers.tail import read_reports
from ullage.sqlite_file import lend_tables


@pytest.fixture
def environ(tmp_path):
    return {"HOME": str(tmp_path)}


def test_sessions_are_listed_the_newest_first_without_those_of_subagents(tmp_path, environ):
    base = restore(tmp_path)
    found, total = list_sessions("opencode", environ, 30)
    assert [one.id for one in found] == [TAILED, ARCHIVED, COMPACTED]
    assert total == 3
    assert {one.project for one in found} == {PROJECT}
    assert {one.title for one in found} == {"Reads the notes"}
    assert found[0].path == str(base / TAILED)
    assert len(list_sessions("opencode", environ, 1)[0]) == 1


def test_the_last_one_and_one_by_its_id_are_found(tmp_path, environ):
    base = restore(tmp_path)
    assert latest("opencode", environ) == base / TAILED
    assert find("opencode", COMPACTED[:12], environ) == base / COMPACTED
    with pytest.raises(ConfigurationError, match="4 sessions of opencode have an id"):
        find("opencode", "ses_dead", environ)
    child = next(one for one in disk.list_kept(base.parent, environ) if one.is_spawned)
    assert find("opencode", child.id, environ) == child.path


def test_nothing_to_find_is_told_with_the_places_looked_at(tmp_path, environ):
    assert list_sessions("opencode", environ, 30) == ([], 0)
    with pytest.raises(ConfigurationError, match="no session of opencode was found in"):
        latest("opencode", environ)
    assert folders("opencode", environ) == [tmp_path / ".local/share/opencode"]
    moved = {"HOME": "/nowhere", "XDG_DATA_HOME": str(tmp_path)}
    assert folders("opencode", moved) == [tmp_path / "opencode"]


def test_a_database_is_named_by_its_channel_or_by_the_environment(tmp_path, environ):
    base = restore(tmp_path, name="opencode-dev.db")
    assert latest("opencode", environ).parent == base
    named = restore(tmp_path, "1.2.4", name="mine.sqlite")
    there = {**environ, "OPENCODE_DB": "mine.sqlite"}
    assert latest("opencode", there).parent == named
    assert list_sessions("opencode", {**environ, "OPENCODE_DB": ":memory:"}, 3) == ([], 0)


def test_files_of_older_versions_are_found_and_each_session_once(tmp_path, environ):
    storage = restore_files(tmp_path)
    (one,), total = list_sessions("opencode", environ, 30)
    assert (one.id, one.title, total) == (FILED, "Reads the notes", 1)
    assert latest("opencode", environ).name == f"{FILED}.json"
    base = restore(tmp_path)
    twin = storage / "session" / "x" / f"{COMPACTED}.json"
    twin.parent.mkdir()
    twin.write_text("{}", "utf-8")
    paths = [one.path for one in disk.list_kept(storage.parent, environ)]
    assert base / COMPACTED in paths
    assert twin not in paths


def test_the_path_of_a_database_is_its_newest_session(tmp_path):
    base = restore(tmp_path)
    assert load(base).id == TAILED
    assert parse(content(base / COMPACTED)).id == COMPACTED
    assert load(base / COMPACTED, source="opencode").path == str(base / COMPACTED)


LOOK = """
import json, sys
from ullage.importers import load
from ullage.importers.listing import list_sessions
listed, _ = list_sessions("opencode", {"HOME": sys.argv[2]}, 30)
print(json.dumps([load(sys.argv[1]).title, listed[0].title]))
"""


HASHES = """
import hashlib, pathlib, sys
for path in sorted(pathlib.Path(sys.argv[1]).iterdir()):
    print(path.name, path.stat().st_mtime_ns, hashlib.sha256(path.read_bytes()).hexdigest())
"""


def look(home, path):
    """Read in another process: SQLite shares the index of a log within one."""
    done = subprocess.run(
        [sys.executable, "-c", LOOK, str(path), str(home)],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    return json.loads(done.stdout)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def hashes(folder):
    return subprocess.run(
        [sys.executable, "-c", HASHES, str(folder)], capture_output=True, check=True, timeout=60
    ).stdout


def test_reading_leaves_no_trace(tmp_path):
    base = restore(tmp_path)
    writer = open_writer(base)
    writer.execute("UPDATE session SET title = 'Renamed' WHERE id = ?", (TAILED,))
    before = hashes(base.parent)
    assert names(base.parent) == ["opencode.db", "opencode.db-shm", "opencode.db-wal"]
    assert look(tmp_path, base / TAILED) == ["Renamed", "Renamed"]  # in the log of writes alone
    assert hashes(base.parent) == before
    writer.close()
    before = hashes(base.parent)
    assert names(base.parent) == ["opencode.db"]
    assert look(tmp_path, base / TAILED) == ["Renamed", "Renamed"]
    assert hashes(base.parent) == before


def test_a_writer_waits_for_no_reader(tmp_path):
    base = restore(tmp_path)
    writer = open_writer(base)
    writer.execute("UPDATE session SET title = 'Renamed' WHERE id = ?", (TAILED,))
    with lend_tables(base) as tables:
        rows = tables.select("SELECT title FROM session WHERE id = ?", (TAILED,))
        assert next(rows) == ("Renamed",)
        writer.execute("UPDATE session SET title = 'Again' WHERE id = ?", (TAILED,))
        again = tables.select("SELECT title FROM session WHERE id = ?", (TAILED,))
        assert next(again) == ("Renamed",)  # one look: what is read belongs together
    writer.close()
    assert load(base / TAILED).title == "Again"


def test_a_log_of_writes_without_its_index_is_told(tmp_path):
    base = restore(tmp_path)
    writer = open_writer(base)
    writer.execute("UPDATE session SET title = 'Renamed' WHERE id = ?", (TAILED,))
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in ("opencode.db", "opencode.db-wal"):
        shutil.copy(base.parent / name, copy / name)
    writer.close()
    session = load(copy / "opencode.db" / TAILED)
    assert session.title == "Reads the notes"
    assert session.warnings[0] == disk.BEHIND
    assert names(copy) == ["opencode.db", "opencode.db-wal"]


def test_half_written_rows_are_counted_and_hide_nothing_else(tmp_path, environ):
    base = restore(tmp_path)
    writer = open_writer(base)
    writer.execute("UPDATE part SET data = '{\"type\":' WHERE id = (SELECT max(id) FROM part)")
    writer.execute("INSERT INTO message VALUES ('msg_x', ?, 1, 1, 'no json')", (COMPACTED,))
    writer.execute("INSERT INTO message VALUES ('msg_y', ?, 1, 1, x'ff00')", (COMPACTED,))
    writer.execute("PRAGMA foreign_keys = OFF")
    writer.execute("INSERT INTO part VALUES ('prt_x', 'nobody', ?, 1, 1, '{}')", (COMPACTED,))
    writer.close()
    session = load(base / COMPACTED)
    assert dict(session.unread) == {"line that is no JSON object": 3}
    assert len(session.messages) == 18
    assert len(list_sessions("opencode", environ, 30)[0]) == 3


def test_half_written_files_are_counted_and_hide_nothing_else(tmp_path, environ):
    storage = restore_files(tmp_path)
    part = next(storage.glob("part/*/*.json"))
    part.write_text('{"type": "te', "utf-8")
    message = max(storage.glob(f"message/{FILED}/*.json"))
    message.write_text("", "utf-8")
    broken = storage / "session" / "other" / "ses_broken.json"
    broken.parent.mkdir()
    broken.write_text("{", "utf-8")
    assert [one.id for one in list_sessions("opencode", environ, 30)[0]] == [FILED]
    assert load(latest("opencode", environ)).unread["line that is no JSON object"] >= 1
    with pytest.raises(ConfigurationError, match="holds no session of opencode"):
        load(broken)


def test_a_damaged_database_hides_no_other(tmp_path, environ):
    base = restore(tmp_path)
    bad = base.with_name("opencode-dev.db")
    bad.write_bytes(base.read_bytes()[:5000])
    assert len(list_sessions("opencode", environ, 30)[0]) == 3
    base.unlink()
    with pytest.raises(ConfigurationError, match="cannot be read as SQLite"):
        list_sessions("opencode", environ, 30)
    bad.write_bytes(b"nothing of SQLite" * 400)
    with pytest.raises(ConfigurationError, match="cannot be read as SQLite"):
        latest("opencode", environ)


def test_without_the_package_for_sqlite_that_is_said_and_files_are_read(
    tmp_path, environ, monkeypatch
):
    base = restore(tmp_path)
    monkeypatch.setitem(sys.modules, "apsw", None)
    with pytest.raises(ConfigurationError, match=r"is a SQLite file and needs apsw.*ullage\[all\]"):
        load(base / TAILED)
    restore_files(tmp_path)
    assert latest("opencode", environ).name == f"{FILED}.json"


def test_a_database_of_something_else_and_an_unknown_session_are_refused(tmp_path):
    base = restore(tmp_path)
    with pytest.raises(ConfigurationError, match="holds no session 'ses_nobody'"):
        load(base / "ses_nobody")
    other = tmp_path / "other.db"
    with open_writer(other) as connection:
        connection.execute("CREATE TABLE session (id TEXT)")
    connection.close()
    with pytest.raises(ConfigurationError, match="no database of opencode that is known"):
        load(other)
    with open_writer(base) as connection:
        connection.execute("UPDATE session SET parent_id = 'ses_up'")
    connection.close()
    with pytest.raises(ConfigurationError, match="holds no session of opencode"):
        load(base)


def test_a_session_over_the_bound_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("ullage.importers.files.MOST_BYTES", 1000)
    with pytest.raises(ConfigurationError, match="the most that is read of a session"):
        load(restore(tmp_path) / TAILED)
    with pytest.raises(ConfigurationError, match="the most that is read of a session"):
        load(next(restore_files(tmp_path).glob(f"session/*/{FILED}.json")))


# ── the last reports alone ──────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", [COMPACTED, TAILED, ARCHIVED])
def test_the_glance_has_the_numbers_of_the_whole_session(tmp_path, name):
    path = restore(tmp_path) / name
    whole = load(path)
    one, provider = glance.read_fullness(str(path))
    assert (one.tokens, one.model, provider) == (whole.tokens, whole.model, "local")
    assert one.dollars == pytest.approx(whole.dollars)
    told = [call.tokens for call in read_reports(str(path), "opencode", 99) if call.tokens]
    assert told == [turn.tokens for turn in reversed(whole.turns)]


def test_the_glance_tells_a_compaction_without_a_report_since(tmp_path):
    base = restore(tmp_path)
    with open_writer(base) as connection:
        connection.execute(
            "DELETE FROM message WHERE session_id = ?1 AND id > (SELECT id FROM message "
            "WHERE session_id = ?1 AND data LIKE '%\"summary\":true%')",
            (COMPACTED,),
        )
    connection.close()
    one, _ = glance.read_fullness(str(base / COMPACTED))
    assert (one.tokens, one.reason) == (None, glance.COMPACTED)
    assert load(base / COMPACTED).tokens is None


def test_the_glance_says_what_it_cannot_read(tmp_path):
    base = restore(tmp_path)
    assert glance.read_fullness(str(base / "ses_nobody"))[0].reason == glance.SILENT
    bad = tmp_path / "opencode.db"
    bad.write_bytes(b"x" * 5000)
    for read in (glance.read_fullness, lambda path: glance.read_reports(path, 2)):
        with pytest.raises(OSError, match="SQLite"):
            read(str(bad / "ses_x"))
    assert list(glance.list_sessions("/", [str(bad)], None)) == []


def test_the_glance_finds_the_session_of_a_folder_or_one_above(tmp_path):
    base = str(restore(tmp_path))
    (found,) = glance.list_sessions(f"{PROJECT}/src", [base], None)
    assert found[1] == f"{base}{os.sep}{TAILED}"
    assert list(glance.list_sessions("/home/dev/notes2", [base], None)) == []
    (named,) = glance.list_sessions("/", [base], COMPACTED[:12])
    assert named[1].endswith(COMPACTED)


def test_the_glance_looks_where_the_whole_reader_looks(tmp_path, environ, monkeypatch):
    restore(tmp_path)
    restore(tmp_path, "1.2.4", name="opencode-dev.db")
    data = tmp_path / ".local/share"
    for named in (None, "opencode-dev.db", "nothing.db"):
        if named is None:
            monkeypatch.delenv("OPENCODE_DB", raising=False)
        else:
            monkeypatch.setenv("OPENCODE_DB", named)
            environ["OPENCODE_DB"] = named
        same = [str(path) for path in disk.list_databases(data / "opencode", environ)]
        assert glance.list_bases(str(data)) == same


def test_commands_list_and_show_sessions(tmp_path, monkeypatch, capsys):
    restore(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    assert main(["context", "--from", "opencode", "--list"]) == 0
    assert COMPACTED in capsys.readouterr().out
    shown = ["--session", COMPACTED[:12], "--window", "10000", "--json"]
    assert main(["context", "--from", "opencode", *shown]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["used"]["tokens"], report["window"]["tokens"]) == (1400, 10_000)
    assert report["spent"]["dollars"] == pytest.approx(0.030784)
    assert main(["context", "--from", "opencode", "--last", "--brief"]) == 0
