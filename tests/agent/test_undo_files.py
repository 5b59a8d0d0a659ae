"""Undo: the files that a turn changed come back as they were, and nobody's work is lost by it."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from tests.agent.acting import agent, bodies, called, data, said, scripted
from ullage.agent import Session
from ullage.core.errors import ConfigurationError
from ullage.core.session.log.event import Draft
from ullage.storage.blobs import Blobs
from ullage.storage.log_memory import MemoryLog
from ullage.storage.log_sqlite import SqliteLog
from ullage.tools import Sandbox, Workspace, survey

SHELL = pytest.mark.skipif(
    bool(Sandbox().lacking(Workspace(Path("/tmp")))),
    reason="needs the shell's sandbox",
)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "a.py").write_text("one\n")
    (folder / "b.bin").write_bytes(bytes(range(256)) * 40)
    (folder / "b.bin").chmod(0o750)
    return folder


def picture(folder: Path) -> dict[str, Any]:
    """Return all that is in a folder: kind, mode, content."""
    made: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        name = str(path.relative_to(folder))
        if path.is_symlink():
            made[name] = path.readlink()
        elif path.is_dir():
            made[name] = stat.S_IMODE(status.st_mode)
        else:
            made[name] = (stat.S_IMODE(status.st_mode), path.read_bytes())
    return made


def turn(session: Session, work: Path, *calls: tuple[str, dict[str, Any]]) -> None:
    """Run a turn in which a model makes these calls, one a round."""
    with scripted(
        *[called(call, prompt=50 + i) for i, call in enumerate(calls)], said("done")
    ) as s:
        assert agent(s, work).run(session, "change it").ok


def write(path: str, content: str) -> tuple[str, dict[str, Any]]:
    return ("write", {"path": path, "content": content})


def edit(path: str, old: str, new: str) -> tuple[str, dict[str, Any]]:
    return ("edit", {"path": path, "old": old, "new": new})


def shell(command: str) -> tuple[str, dict[str, Any]]:
    return ("shell", {"command": command})


def test_what_a_turn_wrote_comes_back_and_what_it_made_goes(session: Session, work: Path):
    before = picture(work)
    turn(session, work, write("src/a.py", "two\n"), write("new/deep/c.txt", "x"))
    turn(session, work, edit("src/a.py", "two", "three"), write("b.bin", "text"))
    after_one = {**picture(work), "src/a.py": (0o644, b"two\n")}
    done = session.undo_files()
    assert done is not None
    assert (done.number, done.left) == (2, ())
    assert sorted(done.files) == [("b.bin", "restored"), ("src/a.py", "restored")]
    assert picture(work) == {**after_one, "b.bin": before["b.bin"]}
    second = session.undo_files()
    assert second is not None
    assert dict(second.files)["new/deep/c.txt"] == "removed"
    assert picture(work) == before
    assert session.undo_files() is None


def test_each_change_is_on_record_before_it_is_made(session: Session, work: Path):
    turn(session, work, edit("src/a.py", "one", "two"), write("c.txt", "x"))
    first, second = data(session, "file_changes")
    (file,) = first["files"]
    assert (file["path"], file["before"]["mode"]) == ("src/a.py", 0o644)
    assert file["before"]["hash"] != file["after"]["hash"]
    assert session.blobs.read(file["before"]["hash"]) == b"one\n"
    assert second["files"][0]["before"] is None
    order = [e.type for e in session.events() if e.type in ("file_changes", "tool_result")]
    assert order == ["file_changes", "tool_result"] * 2


@SHELL
def test_what_a_command_changed_comes_back(session: Session, work: Path):
    (work / "link").symlink_to("b.bin")
    (work / "gone").mkdir(mode=0o700)
    (work / "gone" / "x").write_text("x")
    before = picture(work)
    command = (
        "echo two > src/a.py; rm b.bin link; rm -r gone; mkdir -p made/deep; echo x > made/deep/f; "
        "ln -s /etc/passwd out; chmod 600 src/a.py; rm -r src/none; mv src moved"
    )
    turn(session, work, shell(command))
    assert not (work / "src").exists()
    dry = session.undo_files(dry_run=True)
    done = session.undo_files()
    assert done == dry
    assert done is not None
    assert done.left == ()
    assert picture(work) == before


@SHELL
def test_a_command_that_only_reads_and_a_dry_run_record_nothing(session: Session, work: Path):
    turn(session, work, shell("cat src/a.py"))
    with scripted(called(shell("touch x")), said("done")) as server:
        agent(server, work).run(session, "look", dry_run=True)
    assert not data(session, "snapshot_taken") + data(session, "file_changes")


def test_what_a_person_changed_since_is_left_until_it_is_forced(session: Session, work: Path):
    turn(session, work, write("src/a.py", "two\n"), write("c.txt", "x"), write("d.txt", "x"))
    (work / "src" / "a.py").write_text("mine\n")
    (work / "d.txt").unlink()
    done = session.undo_files()
    assert done is not None
    assert done.left == (("src/a.py", "it was changed since"),)
    assert done.files == (("c.txt", "removed"),)
    assert (work / "src" / "a.py").read_text() == "mine\n"
    forced = session.undo_files(force=True)
    assert forced is not None
    assert (forced.number, forced.files) == (1, (("src/a.py", "restored"),))
    assert (work / "src" / "a.py").read_text() == "one\n"


def test_a_mode_that_a_person_changed_since_is_a_change(session: Session, work: Path):
    turn(session, work, write("src/a.py", "two\n"))
    (work / "src" / "a.py").chmod(0o600)
    done = session.undo_files()
    assert done is not None
    assert [path for path, _ in done.left] == ["src/a.py"]


@pytest.mark.parametrize("force", [False, True])
def test_no_link_leads_an_undo_out_of_the_workspace(
    session: Session, work: Path, tmp_path: Path, force: bool
):
    turn(session, work, write("src/a.py", "two\n"), write("src/new.txt", "x"))
    outside = tmp_path / "outside"
    (work / "src").rename(outside)
    (work / "src").symlink_to(outside)
    before = picture(outside)
    done = session.undo_files(force=force)
    assert done is not None
    assert {path for path, _ in done.left} == {"src/a.py", "src/new.txt"}
    assert picture(outside) == before


def test_a_file_that_became_a_link_is_replaced_and_never_written_through(
    session: Session, work: Path, tmp_path: Path
):
    outside = tmp_path / "outside.txt"
    outside.write_text("theirs")
    turn(session, work, write("src/a.py", "two\n"))
    (work / "src" / "a.py").unlink()
    (work / "src" / "a.py").symlink_to(outside)
    assert session.undo_files().left  # type: ignore[union-attr]  # it was changed since
    done = session.undo_files(force=True)
    assert done is not None
    assert outside.read_text() == "theirs"
    assert (work / "src" / "a.py").read_text() == "one\n"
    assert not (work / "src" / "a.py").is_symlink()


def test_a_crash_between_the_record_and_the_write_leaves_nothing_to_undo(
    session: Session, work: Path
):
    turn(session, work, write("src/a.py", "two\n"))
    (record,) = data(session, "file_changes")
    session.undo_files()
    session.record(
        [
            Draft("user_message", {"text": "again"}),
            Draft("turn_started", {"turn": "crashed"}),
            Draft("file_changes", {**record, "turn": "crashed"}),  # and the process ends here
        ]
    )
    done = session.undo_files()
    assert done is not None
    assert (done.number, done.files, done.left) == (2, (), ())
    assert (work / "src" / "a.py").read_text() == "one\n"


@SHELL
def test_a_process_that_died_in_a_command_leaves_the_choice_to_the_person(
    session: Session, work: Path
):
    turn(session, work, shell("true; echo x > kept"))
    found = survey.survey(Workspace(work), session.blobs, keep=True)
    manifest = session.blobs.keep(json.dumps(found.states).encode())
    begun = {"turn": "crashed", "workspace": str(work), "manifest": manifest}
    session.record([Draft("turn_started", {"turn": "crashed"}), Draft("snapshot_taken", begun)])
    (work / "src" / "a.py").write_text("half")
    (work / "made").write_text("half")
    done = session.undo_files()
    assert done is not None
    assert {path for path, _ in done.left} == {"src/a.py", "made"}
    assert all("the process died" in why for _, why in done.left)
    forced = session.undo_files(force=True)
    assert forced is not None
    assert sorted(forced.files) == [("made", "removed"), ("src/a.py", "restored")]


def test_a_process_that_comes_later_brings_back_what_another_changed(tmp_path: Path, work: Path):
    before = picture(work)
    log = SqliteLog(tmp_path / "state" / "log.db")
    with Session.create(log, "s") as session:
        turn(session, work, write("b.bin", "two"), write("c", "x"))
    log.close()
    log = SqliteLog(tmp_path / "state" / "log.db")
    with Session(log, "s") as session:
        assert session.undo_files().left == ()  # type: ignore[union-attr]
        events = session.events()
    log.close()
    assert picture(work) == before
    assert events[-1].type == "files_restored"
    kept = [path for path in (tmp_path / "state" / "undo").rglob("*") if path.is_file()]
    assert {stat.S_IMODE(path.stat().st_mode) for path in kept} == {0o600}


def test_a_log_in_memory_keeps_what_files_held_in_memory(work: Path):
    with Session.create(MemoryLog(), "s") as session:
        turn(session, work, write("src/a.py", "two\n"))
        assert session.undo_files().files == (("src/a.py", "restored"),)  # type: ignore[union-attr]


def test_the_model_is_told_of_it_in_the_next_turn(session: Session, work: Path):
    turn(session, work, write("src/a.py", "two\n"), write("c.txt", "x"))
    session.undo_files()
    with scripted(said("I see.")) as server:
        agent(server, work).run(session, "go on")
        *_, notice, spoken = bodies(server)[0]["messages"]
    assert "the person took back what a turn before had changed in files" in notice["content"]
    assert "restored: src/a.py; removed: c.txt" in notice["content"]
    assert spoken["content"] == "go on"


@pytest.mark.parametrize("big", ["before", "in a command"])
def test_a_file_that_is_too_large_is_told_before_and_left(
    session: Session, work: Path, big: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(survey, "LARGEST_FILE", 1_000)
    told: list[str] = []
    session.hear(lambda event: told.append(str(event.data.get("text"))))
    call = write("b.bin", "x") if big == "before" else shell("echo x > b.bin")
    if big == "in a command" and Sandbox().lacking(Workspace(work)):
        pytest.skip("needs the shell's sandbox")
    turn(session, work, call)
    assert any("undo cannot bring back" in text and "b.bin" in text for text in told)
    done = session.undo_files()
    assert done is not None
    assert done.left == (("b.bin", "it was too large to be kept"),)
    assert (work / "b.bin").read_text().strip() == "x"


def test_a_turn_is_named_by_its_number(session: Session, work: Path):
    turn(session, work, write("c.txt", "x"))
    turn(session, work, write("src/a.py", "two\n"))
    assert session.undo_files(1).files == (("c.txt", "removed"),)  # type: ignore[union-attr]
    assert (work / "src" / "a.py").read_text() == "two\n"
    with pytest.raises(ConfigurationError, match="turns 1 to 2, no turn 3"):
        session.undo_files(3)


def test_a_folder_that_is_gone_is_told(session: Session, work: Path):
    turn(session, work, write("c.txt", "x"))
    work.rename(work.with_name("moved"))
    with pytest.raises(ConfigurationError, match="is gone"):
        session.undo_files()


def test_a_file_with_another_name_elsewhere_is_left(session: Session, work: Path, tmp_path: Path):
    turn(session, work, write("src/a.py", "two\n"))
    os.link(work / "src" / "a.py", tmp_path / "other name")
    done = session.undo_files()
    assert done is not None
    assert "hard links" in dict(done.left)["src/a.py"]
    assert (tmp_path / "other name").read_text() == "two\n"


@pytest.mark.parametrize("path", ["../outside", "..", "/etc/hostname", "src/../../outside", ""])
def test_a_log_that_somebody_made_up_leads_nowhere_else(
    session: Session, work: Path, tmp_path: Path, path: str
):
    (tmp_path / "outside").mkdir()
    before = picture(tmp_path / "outside")
    mode = tmp_path.stat().st_mode
    folder = {"kind": "folder", "mode": 0o777}
    for then, now in ((folder, None), (None, {"kind": "folder", "mode": None})):
        file = {"path": path, "before": then, "after": now}
        data = {"turn": "x", "workspace": str(work), "files": [file]}
        session.record([Draft("turn_started", {"turn": "x"}), Draft("file_changes", data)])
        done = session.undo_files(len(session.fold.turns), force=True)
        assert done is not None
        assert [why for _, why in done.left] != []
    assert (tmp_path / "outside").is_dir()
    assert picture(tmp_path / "outside") == before
    assert tmp_path.stat().st_mode == mode


def test_what_is_kept_has_bounds(tmp_path: Path):
    clock = [1_000.0]

    def now() -> float:
        return clock[0]

    for folder in (None, tmp_path / "undo"):
        blobs = Blobs(folder, largest=10, ttl_s=1e12, now=now)
        first, second = blobs.keep(b"12345678"), blobs.keep(b"abcdefgh")
        assert blobs.keep(b"abcdefgh") == second
        assert blobs.purge() == 1
        assert [blobs.has(first), blobs.has(second)].count(True) == 1
    old = Blobs(tmp_path / "old", ttl_s=10.0)
    name = old.keep(b"x")
    os.utime(tmp_path / "old" / name[:2] / name, (1.0, 1.0))
    assert old.purge() == 1
    assert old.read(name) is None


def test_a_content_that_is_not_what_was_kept_is_never_put_back(session: Session, work: Path):
    turn(session, work, write("src/a.py", "two\n"))
    for path in session.blobs._folder.rglob("*"):  # type: ignore[union-attr]  # a disk that lies
        if path.is_file():
            path.write_bytes(b"0ne\n")
    done = session.undo_files()
    assert done is not None
    assert done.left == (("src/a.py", "what it held is kept no longer"),)
    assert (work / "src" / "a.py").read_text() == "two\n"
