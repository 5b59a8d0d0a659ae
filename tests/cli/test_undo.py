"""`ullage undo` and what is typed in a chat: files come back, and what was done is said."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from tests.agent.acting import called, said, scripted
from ullage.agent import Session
from ullage.cli.main import main
from ullage.core.session.log.event import Draft
from ullage.storage import open_log

Capture = pytest.CaptureFixture[str]
STORE = ["--store", "sqlite:state/s.db"]


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> str:
    """Return a session with two turns that wrote files, in the folder where we stand."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "a.txt").write_text("one")
    script: list[Any] = []
    for text in ("two", "three"):
        script += [called(("write", {"path": "a.txt", "content": text})), said("done")]
    with scripted(*script) as server:
        model = ["--base-url", server.base_url, "--model", "m", "--window", "8000"]
        assert main(["run", "first", *STORE, *model, "--workspace", "work"]) == 0
        name = capsys.readouterr().err.split()[-1]
        assert main(["resume", name, "second", *STORE]) == 0
    capsys.readouterr()
    return name


def held(tmp_path: Path) -> str:
    return (tmp_path / "work" / "a.txt").read_text()


def test_each_undo_goes_one_turn_further_back(session: str, tmp_path: Path, capsys: Capture):
    assert main(["undo", session, "--dry-run", *STORE]) == 0
    assert "would be restored  a.txt" in capsys.readouterr().out
    assert held(tmp_path) == "three"
    assert main(["undo", session, *STORE]) == 0
    assert held(tmp_path) == "two"
    assert main(["undo", session, *STORE]) == 0
    assert held(tmp_path) == "one"
    assert capsys.readouterr().out.count("restored  a.txt") == 2
    assert main(["undo", session, *STORE]) == 0
    assert "nothing to undo" in capsys.readouterr().err


def test_what_a_person_wrote_is_left_and_the_exit_code_says_so(
    session: str, tmp_path: Path, capsys: Capture
):
    (tmp_path / "work" / "a.txt").write_text("mine")
    assert main(["undo", session, "--turn", "2", *STORE]) == 1
    assert "left  a.txt: it was changed since" in capsys.readouterr().out
    assert held(tmp_path) == "mine"
    assert main(["undo", session, "--force", *STORE]) == 0
    assert held(tmp_path) == "two"
    assert main(["undo", session, "--turn", "9", *STORE]) == 1
    assert "turns 1 to 2" in capsys.readouterr().err
    assert main(["show", session, *STORE]) == 0
    shown = capsys.readouterr().out
    assert "files changed: a.txt" in shown
    assert "files brought back" in shown
    assert "restored a.txt" in shown


def test_a_chat_brings_files_back(
    session: str, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
):
    lines = "/undo now\n/undo\n/undo force\n/undo\n/uncompact\n/retry\n/quit\n"
    monkeypatch.setattr("sys.stdin", io.StringIO(lines))
    assert main(["chat", "--session", session, *STORE]) == 0
    shown = capsys.readouterr().err
    assert held(tmp_path) == "one"
    assert "/uncompact is for compactions" in shown
    assert "turn 2: 1 brought back, 0 left" in shown
    assert "turn 1: 1 brought back, 0 left" in shown
    assert "no turn has changed a file since" in shown
    assert "there is no compaction to take back" in shown
    assert "nothing to try again" in shown


def test_force_is_named_only_where_it_brings_something_back(
    session: str, tmp_path: Path, capsys: Capture
):
    (tmp_path / "work" / "a.txt").write_text("mine")
    assert main(["undo", session, *STORE]) == 1
    assert "also brings back changed files" in capsys.readouterr().out
    script = [called(("write", {"path": "new/b.txt", "content": "b"})), said("done")]
    with scripted(*script) as server:
        model = ["--base-url", server.base_url, "--model", "m", "--window", "8000"]
        where = ["--workspace", str(tmp_path / "work")]
        assert main(["run", "third", "--session", session, *STORE, *model, *where]) == 0
    (tmp_path / "work" / "new" / "mine").write_text("mine")
    capsys.readouterr()
    assert main(["undo", session, *STORE]) == 1
    shown = capsys.readouterr().out
    assert "left  new: Directory not empty" in shown
    assert "also brings back changed files" not in shown


def test_in_a_session_that_goes_on_from_another_that_one_is_named(
    session: str, tmp_path: Path, capsys: Capture
):
    log = open_log("sqlite:state/s.db")
    with Session.create(log, "next") as made:
        made.record([Draft("subagent_event", {})])
    log.create("later", 0.0)
    with Session(log, "later") as made:
        made.record([Draft("session_created", {"continues": session})])
    log.close()
    assert main(["undo", "next", *STORE]) == 0
    assert "goes on from" not in capsys.readouterr().err
    assert main(["undo", "later", *STORE]) == 0
    assert f"ullage undo {session} undoes its turns" in capsys.readouterr().err
    assert main(["undo", session, *STORE]) == 0
    assert held(tmp_path) == "two"
