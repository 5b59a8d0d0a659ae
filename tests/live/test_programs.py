"""Sessions of other programs: read when they grew, never changed, damaged ones told."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.importers.opencode_kept import COMPACTED, PROJECT, TAILED, open_writer, restore
from ullage.api.context import of_session
from ullage.core.errors import ConfigurationError
from ullage.importers import SAMPLE, load
from ullage.live.programs import ProgramSource
from ullage.live.source import NotPossible, UnknownConversation
from ullage.live.values import GONE, LiveSession

NAME = "0b1e7a52-0000-4000-8000-000000000000"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / ".claude" / "projects" / "shop"
    folder.mkdir(parents=True)
    shutil.copy(SAMPLE, folder / f"{NAME}.jsonl")
    return tmp_path


def test_the_numbers_are_those_of_the_context_report(home: Path):
    source = ProgramSource("claude", {"HOME": str(home)})
    (row,) = source.list_rows()
    path = home / ".claude" / "projects" / "shop" / f"{NAME}.jsonl"
    report = of_session(load(path)).to_dict()
    since = report["since"]["tokens"] if report["since"] else 0
    assert row.used == report["used"]["tokens"] + since
    assert (row.window, row.dollars) == (report["window"]["tokens"], report["spent"]["dollars"])
    detail = source.read_detail(NAME, reads=True)
    assert detail.report == report | {"source": detail.report["source"]} if detail.report else False
    assert [one.tokens for one in detail.requests] == [turn["tokens"] for turn in report["turns"]]
    assert len(detail.compactions) == sum(turn["compacted"] for turn in report["turns"])
    assert detail.window is not None
    assert json.dumps(detail.to_dict())
    assert source.read_detail(NAME, reads=False).report is None
    assert source.list_messages(NAME)[0].text


def test_a_file_is_read_again_only_when_it_grew_and_its_time_has_come(home: Path):
    now = [1_000.0]
    source = ProgramSource("claude", {"HOME": str(home)}, now=lambda: now[0])
    source.list_rows()
    assert source.list_rows() == []
    path = home / ".claude" / "projects" / "shop" / f"{NAME}.jsonl"
    lines = path.read_text("utf-8").splitlines()
    path.write_text("\n".join([*lines, lines[-1]]) + "\n", "utf-8")
    source.list_rows()
    held = source._files[NAME]
    seen, took = held.seen, held.took
    now[0] += 20 * took + 1
    source.list_rows()
    assert held.seen != seen


def test_a_damaged_file_and_a_missing_one_are_told(home: Path):
    path = home / ".claude" / "projects" / "shop" / f"{NAME}.jsonl"
    path.write_text('{"type": "user"', "utf-8")
    source = ProgramSource("claude", {"HOME": str(home)})
    (row,) = source.list_rows()
    assert row.state == "damaged"
    assert row.last
    with pytest.raises(UnknownConversation, match="no session nobody"):
        source.read_detail("nobody", reads=True)


def test_nothing_is_done_to_a_foreign_session_but_planned(home: Path):
    source = ProgramSource("claude", {"HOME": str(home)})
    source.list_rows()
    before = (home / ".claude" / "projects" / "shop" / f"{NAME}.jsonl").read_bytes()
    told = source.act(NAME, "again", {"policy": "auto_summary"})
    assert told["policy"] == "auto_summary"
    assert told["after"] <= told["before"]
    for action in ("undo", "pin", "dance"):
        with pytest.raises(NotPossible, match="read here, and never changed"):
            source.act(NAME, action, {})
    with pytest.raises(NotPossible, match="policy"):
        source.act(NAME, "again", {"policy": "nonsense"})
    with pytest.raises(NotPossible, match="does not say"):
        source.review(NAME, 1, reads=True)
    assert (home / ".claude" / "projects" / "shop" / f"{NAME}.jsonl").read_bytes() == before
    source.close()


def test_files_that_wait_to_be_read_are_told_of_until_all_were(home: Path):
    folder = home / ".claude" / "projects" / "shop"
    for n in range(1, 5):
        shutil.copy(SAMPLE, folder / f"{NAME[:-1]}{n}.jsonl")
    source = ProgramSource("claude", {"HOME": str(home)})
    rows: dict[str, LiveSession] = {}
    behind = []
    for _ in range(3):
        rows |= {row.id: row for row in source.list_rows()}
        behind.append(source.is_behind)
    assert (behind, len(rows)) == ([True, True, False], 5)
    assert all(row.used is not None for row in rows.values())


def test_a_session_that_was_taken_away_is_shown_no_more(home: Path):
    source = ProgramSource("claude", {"HOME": str(home)})
    source.list_rows()
    (home / ".claude" / "projects" / "shop" / f"{NAME}.jsonl").unlink()
    (row,) = source.list_rows()
    assert (row.id, row.state) == (NAME, GONE)
    assert source.list_rows() == []
    with pytest.raises(UnknownConversation):
        source.read_detail(NAME, reads=True)


# ── opencode ────────────────────────────────────────────────────────────────────────────────────


def test_sessions_of_opencode_are_shown_with_their_numbers(tmp_path: Path):
    base = restore(tmp_path)
    source = ProgramSource("opencode", {"HOME": str(tmp_path)})
    rows = {row.id: row for row in [*source.list_rows(), *source.list_rows()]}
    row = rows[COMPACTED]
    assert (row.title, row.project, row.model) == ("Reads the notes", PROJECT, "tiny-coder")
    assert (row.requests, row.compactions, row.upstream) == (8, 1, "local")
    assert row.dollars == pytest.approx(0.030784)
    assert row.cached == round(6_400 / 19_400, 4)
    report = of_session(load(base / COMPACTED)).to_dict()
    since = report["since"]["tokens"] if report["since"] else 0
    assert row.used == report["used"]["tokens"] + since
    detail = source.read_detail(COMPACTED, reads=True)
    assert [(one.before, one.after) for one in detail.compactions] == [(9000, 1400)]
    assert all(one.at > 0 for one in detail.requests)
    assert source.list_messages(COMPACTED)[0].text
    with pytest.raises(NotPossible, match="opencode compacts by itself"):
        source.review(COMPACTED, 1, reads=True)


def test_a_session_of_opencode_is_read_again_when_its_rows_changed(tmp_path: Path):
    base = restore(tmp_path)
    now = [1_000.0]
    source = ProgramSource("opencode", {"HOME": str(tmp_path)}, now=lambda: now[0])
    source.list_rows()
    now[0] += 100
    source.list_rows()
    assert source.list_rows() == []
    told = json.dumps({"role": "user", "time": {"created": 1}})
    later = 1_795_999_999_000
    with open_writer(base) as connection:
        connection.execute(
            "INSERT INTO message VALUES ('msg_z', ?, ?, ?, ?)", (TAILED, later, later, told)
        )
        connection.execute(
            "INSERT INTO part VALUES ('prt_z', 'msg_z', ?, ?, ?, ?)",
            (TAILED, later, later, json.dumps({"type": "text", "text": "What else?"})),
        )
        connection.execute("UPDATE session SET revert = NULL")
    connection.close()
    now[0] += 100
    (row,) = source.list_rows()
    assert row.id == TAILED
    assert row.at == later / 1000
    assert source.list_messages(TAILED)[-1].text == "What else?"


def test_a_database_that_is_damaged_is_told(tmp_path: Path):
    base = restore(tmp_path)
    base.write_bytes(base.read_bytes()[:5000])
    with pytest.raises(ConfigurationError, match="cannot be read as SQLite"):
        ProgramSource("opencode", {"HOME": str(tmp_path)}).list_rows()
