"""`ullage export`, `import`, `verify`: byte for byte, torn and corrupt lines, faults by place."""

from __future__ import annotations

import io
import os
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.cli import recorded as made
from tests.support.faults import FaultServer, of_json
from ullage.agent import Session
from ullage.cli import verify
from ullage.cli.main import main
from ullage.core.errors import StoreError
from ullage.core.session.log.event import Draft
from ullage.storage.log import Head, Stamped
from ullage.storage.log_memory import MemoryLog

Run = Callable[..., int]
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Return a log with one session, `cellar`, whose last event is of a kind yet to come."""
    newer = Draft("cellar_flooded", {"depth": 1}, 7)
    return made.recorded(tmp_path, "cellar", [*made.cellar(), newer])


@pytest.fixture
def run(url: str) -> Run:
    """Return what runs a command on that log."""
    return lambda *arguments: main([*arguments, "--store", url])


@pytest.fixture
def exported(run: Run, tmp_path: Path) -> Path:
    """Return the file of that session."""
    path = tmp_path / "cellar.ndjson"
    assert run("export", "cellar", "--out", str(path)) == 0
    return path


@pytest.fixture
def other(tmp_path: Path) -> str:
    """Return the URL of a log that is not there yet."""
    return f"sqlite:{tmp_path / 'other.db'}"


def test_an_exported_file_is_its_owners_and_never_overwritten(run: Run, exported: Path, capsys):
    assert stat.S_IMODE(exported.stat().st_mode) == 0o600
    before = exported.read_bytes()
    assert run("export", "cellar", "--out", str(exported)) == 1
    assert "give a path that is free" in capsys.readouterr().err
    assert exported.read_bytes() == before


def test_stdout_gets_the_same_bytes(run: Run, exported: Path, capfdbinary: Any):
    assert run("export", "cel") == 0
    assert capfdbinary.readouterr().out == exported.read_bytes()


def test_what_was_exported_comes_back_byte_for_byte(exported: Path, other, tmp_path, capsys):
    assert main(["import", str(exported), "--store", other]) == 0
    out, err = capsys.readouterr()
    assert out == "cellar\n"
    assert err == "brought in 11 events\n"
    again = tmp_path / "again.ndjson"
    assert main(["export", "cellar", "--out", str(again), "--store", other]) == 0
    assert again.read_bytes() == exported.read_bytes()
    out, err = capsys.readouterr()
    assert (out, err) == ("", f"wrote 11 events of session cellar to {again}\n")


def test_a_session_is_read_from_stdin(exported: Path, other: str, monkeypatch, capsys: Capture):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(exported.read_bytes())))
    assert main(["import", "-", "--store", other]) == 0
    assert capsys.readouterr().out == "cellar\n"


def test_a_taken_name_is_refused(run: Run, exported: Path, capsys: Capture):
    assert run("import", str(exported)) == 1
    assert "session cellar is in sqlite" in (err := capsys.readouterr().err)
    assert "give another log with --store" in err


def test_a_torn_tail_is_left_out_and_told(exported: Path, other: str, capsys: Capture):
    exported.write_bytes(exported.read_bytes()[:-20])
    assert main(["verify", str(exported)]) == 1
    assert f"line 11 of {exported} was cut off" in capsys.readouterr().out
    assert main(["import", str(exported), "--store", other]) == 0
    err = capsys.readouterr().err
    assert f"left out: line 11 of {exported} was cut off while it was written" in err
    assert "brought in 10 events" in err
    assert main(["verify", "cellar", "--store", other]) == 0
    assert capsys.readouterr().out == "10 events, chain whole\n"


def test_a_corrupt_line_is_named_and_nothing_brought_in(exported: Path, other: str, capsys):
    lines = exported.read_bytes().split(b"\n")
    lines[3] = lines[3][:-3]
    exported.write_bytes(b"\n".join(lines))
    assert main(["import", str(exported), "--store", other]) == 1
    assert f"line 4 of {exported}" in capsys.readouterr().err
    assert main(["verify", str(exported)]) == 1
    out, err = capsys.readouterr()
    assert f"line 4 of {exported}" in out
    assert err == ""


def test_a_changed_word_breaks_the_chain(exported: Path, other: str, capsys: Capture):
    exported.write_bytes(exported.read_bytes().replace(b"Thirty casks", b"Ninety casks"))
    assert main(["verify", str(exported)]) == 1
    (fault,) = capsys.readouterr().out.splitlines()
    assert fault.startswith("event 9 of session cellar was changed after it was written")
    assert main(["import", str(exported), "--store", other]) == 1
    assert "nothing was brought in: event 9" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["import", "verify"])
def test_a_file_without_events_is_no_session(command: str, tmp_path, other, capsys: Capture):
    path = tmp_path / "empty.ndjson"
    path.touch()
    assert main([command, str(path), "--store", other]) == 1
    assert "event" in "".join(capsys.readouterr())


def test_a_file_that_is_not_there_cannot_be_brought_in(other: str, capsys: Capture):
    assert main(["import", "no.ndjson", "--store", other]) == 1
    assert "no.ndjson cannot be read" in capsys.readouterr().err


# ── verify ──────────────────────────────────────────────────────────────────────────────────────


def test_a_whole_session_and_a_whole_file_verify(run: Run, exported: Path, capsys: Capture):
    assert run("verify", "cellar") == 0
    assert run("verify", str(exported)) == 0
    assert capsys.readouterr().out == "11 events, chain whole\n" * 2


def test_each_fault_is_on_its_line_and_sessions_are_told_apart(run: Run, url, tmp_path, capsys):
    made.recorded(tmp_path, "attic", [])
    import apsw

    connection = apsw.Connection(url.removeprefix("sqlite:"))
    connection.execute("DELETE FROM events WHERE seq = 5")
    connection.close()
    assert run("verify", "--all") == 1
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "cellar: event 6 of session cellar follows event 4"
    assert out[1].startswith("cellar: event 6 of session cellar was changed after it was written")
    assert out[-1] == "attic: 1 events, chain whole"
    assert run("verify", "cellar") == 1


def test_what_is_to_be_verified_is_named_once(run: Run, capsys: Capture):
    for arguments in ([], ["cellar", "--all"]):
        assert run("verify", *arguments) == 1
        assert "name what to check" in capsys.readouterr().err
    assert run("verify", "nobody") == 2


class Growing(MemoryLog):
    """A log in which another writer appends an event whenever somebody has read."""

    def read_stamped(self, session: str) -> list[Stamped]:
        with Session(self, session) as writer:
            writer.record([made.said("meanwhile")])
        return super().read_stamped(session)


class Broken(MemoryLog):
    """A log whose file cannot be read."""

    def head(self, session: str) -> Head:
        raise StoreError("the file is gone")


def test_a_session_that_is_written_to_meanwhile_is_whole(capsys: Capture):
    log = Growing()
    Session.create(log, "s").close()
    assert verify.check_session(log, "s") == 0
    assert capsys.readouterr().out == "1 events, chain whole\n"


def test_what_cannot_be_read_is_a_fault(capsys: Capture):
    assert verify.check_session(Broken(), "s", "s: ") == 1
    assert capsys.readouterr().out == "s: the file is gone\n"


# ── pipes ───────────────────────────────────────────────────────────────────────────────────────


def test_a_reader_who_has_enough_is_no_error(tmp_path: Path):
    url = made.recorded(tmp_path, "s", made.long(300))
    for command in (["export", "s"], ["show", "s", "--full"], ["replay", "s", "--no-tools"]):
        arguments = [sys.executable, "-m", "ullage.cli.main", *command, "--store", url]
        read, write = os.pipe()
        os.close(read)
        try:
            done = subprocess.run(
                arguments, stdout=write, stderr=subprocess.PIPE, check=False, timeout=60
            )
        finally:
            os.close(write)
        assert b"Traceback" not in done.stderr
        assert b"Exception" not in done.stderr
        assert done.returncode == 0


# ── a session whose stored bytes changed ────────────────────────────────────────────────────────


@pytest.fixture
def damaged(url: str, tmp_path: Path) -> str:
    """Return the log with one character of event 4 of `cellar` changed behind its back."""
    made.recorded(tmp_path, "attic", [made.said("What is up here?")])
    with closing(sqlite3.connect(url.removeprefix("sqlite:"))) as file:
        sql = "UPDATE events SET data = replace(data, 'gpt-5', 'gpt-7') WHERE {} AND seq = 4"
        assert file.execute(sql.format("session_id = 'cellar'")).rowcount == 1
        file.commit()
    return url


@pytest.mark.parametrize(
    "arguments",
    [
        ["resume", "cellar", "go on"],
        ["run", "go on", "--session", "cellar"],
        ["chat", "--session", "cellar"],
        ["compact", "cellar", "--target", "10"],
        ["replay", "cellar"],
        ["show", "cellar"],
        ["export", "cellar"],
        ["fork", "cellar"],
    ],
)
def test_no_command_uses_a_session_that_is_not_what_was_written(
    damaged: str, arguments: list[str], capsys: Capture
):
    with FaultServer({"POST /v1/chat/completions": of_json({})}) as server:
        needs = (
            [] if arguments[0] in ("show", "export", "fork") else ["--base-url", server.base_url]
        )
        model = ["--model", "m"] if needs else []
        code = main([*arguments, *needs, *model, "--store", damaged])
        assert not [r for r in server.requests if r.path.endswith("/completions")]
    out, err = capsys.readouterr()
    assert code == 1
    assert "gpt-7" not in out
    assert "ullage: event 4 of session cellar was changed after it was written" in err
    assert "`ullage verify cellar`" in err
    assert "`ullage fork cellar --at 3`" in err


def test_what_is_whole_of_a_damaged_session_can_be_taken_elsewhere(
    damaged: str, other: str, tmp_path: Path, capsys: Capture
):
    kept = tmp_path / "kept.ndjson"
    assert main(["export", "cellar", "--at", "3", "--out", str(kept), "--store", damaged]) == 0
    assert main(["import", str(kept), "--store", other]) == 0
    assert main(["verify", "cellar", "--store", other]) == 0
    assert main(["fork", "cellar", "--at", "3", "--name", "branch", "--store", damaged]) == 0
    capsys.readouterr()
    assert main(["verify", "--all", "--store", damaged]) == 1
    out = capsys.readouterr().out.splitlines()
    assert [line for line in out if "whole" not in line and "event 4" not in line] == []
    assert main(["show", "attic", "--store", damaged]) == 0
    assert main(["sessions", "--store", damaged]) == 0
    assert "corrupt" in capsys.readouterr().out
