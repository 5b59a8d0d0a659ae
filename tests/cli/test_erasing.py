"""`ullage purge`, `export` of what holds secrets, and the settings of both."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.agent.acting import said as answered
from tests.agent.acting import scripted
from tests.cli import recorded as made
from tests.cli.room import ULLAGE, Room
from tests.cli.terminal import Terminal
from tests.storage.records import checkpoint, talk
from ullage.agent import Session
from ullage.cli.main import main
from ullage.storage import ndjson, open_log, open_store
from ullage.storage.ndjson import verify
from ullage.windows.question import Question, make_party

Run = Callable[..., int]
Capture = pytest.CaptureFixture[str]
TOKEN = "gh" + "p_" + "a1B2" * 9


def long_ago() -> float:
    return time.time() - 3 * 24 * 3600


@pytest.fixture
def url(tmp_path: Path) -> str:
    return made.recorded(tmp_path, "cellar", made.cellar())


@pytest.fixture
def run(url: str) -> Run:
    return lambda *arguments: main([*arguments, "--store", url])


def test_a_purged_session_is_listed_shown_and_verified(
    run: Run, url: str, tmp_path: Path, capsys: Capture
) -> None:
    assert run("fork", "cellar", "--name", "branch") == 0
    assert run("purge", "cel", "--yes") == 0
    out, _ = capsys.readouterr()
    assert "erased  cellar" in out
    assert "purge them too: branch" in out
    assert "may still hold it" not in out
    assert run("verify", "cellar") == 0
    assert run("sessions") == 0
    assert "erased on 2" in capsys.readouterr().out
    assert run("show", "cellar") == 0
    out, _ = capsys.readouterr()
    assert "user_message, erased" in out
    assert "the text of all 10 events was erased" in out
    held = open_log(url)
    said = held.read("branch")[1].data["text"]
    held.close()
    assert run("purge", "branch", "--yes") == 0
    assert all(
        said.encode() not in file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()
    )


def test_what_is_not_confirmed_stays(run: Run, url: str, tmp_path: Path, capsys: Capture) -> None:
    assert run("purge", "cellar") == 1
    assert "confirm it with --yes" in capsys.readouterr().err
    assert run("purge", "cellar", "--dry-run") == 0
    assert capsys.readouterr().out == "cellar\n"
    words = [ULLAGE, "purge", "cellar", "--store", url]
    with Terminal(words, os.environ) as terminal:
        terminal.until("Type yes")
        terminal.type("no")
        terminal.until("nothing was erased")
    assert run("verify", "cellar") == 0
    assert "10 events" in capsys.readouterr().out
    with Terminal(words, os.environ) as terminal:
        terminal.until("Type yes")
        terminal.type("yes")
        terminal.until("erased  cellar")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "name what to erase"),
        (("cellar", "--older-than", "3"), "name what to erase"),
        (("--older-than", "0"), "a number of days over 0"),
        (("--tenant-key-env", "NOT_SET_AT_ALL"), "is not set"),
        (("nobody",), "there is no session"),
        (("--tenant", "x", "--dry-run"), "leave it out for a tenant"),
    ],
)
def test_what_cannot_be_purged_is_told(
    run: Run, capsys: Capture, words: tuple[str, ...], told: str
) -> None:
    assert run("purge", *words, "--yes") in {1, 2}
    assert told in capsys.readouterr().err


def test_a_busy_session_is_left_with_an_exit_code(run: Run, url: str, capsys: Capture) -> None:
    log = open_log(url)
    with Session(log, "cellar") as session:
        session.acquire()
        assert run("purge", "cellar", "--yes") == 5
    log.close()
    assert "left    cellar: session cellar is being written by" in capsys.readouterr().out


def test_what_is_old_goes_from_log_and_store(url: str, run: Run, capsys: Capture) -> None:
    log = open_log(url)
    with Session.create(log, "old", now=long_ago) as session:
        session.record(made.cellar())
    log.close()
    store = open_store(url, now=long_ago)
    store.originals.keep({"u:1": "old"})
    store.close()
    assert run("purge", "--older-than", "2", "--yes") == 0
    out = capsys.readouterr().out
    assert "erased  old\n" in out
    assert "cellar" not in out
    assert "1 record erased in sqlite:" in out
    assert run("purge", "--older-than", "2", "--yes") == 0
    out = capsys.readouterr().out
    assert "nothing to erase" in out
    assert "0 records erased" in out


def test_a_tenant_is_named_by_token_or_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    url = f"sqlite:{tmp_path / 'proxy.db'}"
    store = open_store(url)
    scopes = {
        party or key: Question("m", "http://h/v1", key, party=party).tenant
        for key, party in (("one", ""), ("op", make_party("ann")), ("op", make_party("bob", "k2")))
    }
    for scope in scopes.values():
        store.checkpoints.save(checkpoint("k", 1, scope=f"{scope}|p"))
        store.conversations.save(talk("k", f"{scope}|p"))
    store.close()
    monkeypatch.setenv("THE_KEY", "one")
    for words in (("--tenant", "ann"), ("--tenant", "bob"), ("--tenant-key-env", "THE_KEY")):
        assert main(["purge", *words, "--yes", "--store", url]) == 0
        assert capsys.readouterr().out.startswith("2 records of this tenant erased")
    assert main(["purge", "--tenant", "ann", "--yes", "--store", url]) == 0
    assert capsys.readouterr().out.startswith("0 records")


def test_sessions_older_than_the_setting_are_erased_at_the_next_start(tmp_path: Path) -> None:
    room = Room(tmp_path)
    (tmp_path / "config.toml").write_text("retention_days = 2\n")
    log = open_log(room.store)
    with Session.create(log, "old", now=long_ago) as session:
        session.record(made.cellar())
    with Session.create(log, "new") as session:
        session.record(made.cellar())
    with scripted(answered("fine")) as server:
        done = subprocess.run(
            room.command(server, "run", "hello"),
            env=room.environment,
            capture_output=True,
            text=True,
            check=True,
        )
    assert "1 session older than 2 days erased (retention_days)" in done.stderr
    assert log.read("old")[-1].type == "session_purged"
    assert log.read("new")[-1].type != "session_purged"
    log.close()


# ── secrets ─────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def leaky(tmp_path: Path) -> str:
    return made.recorded(tmp_path, "leaky", [made.said(f"deploy with {TOKEN} please")])


def test_an_export_with_a_key_in_it_has_to_be_meant(
    leaky: str, tmp_path: Path, capsys: Capture
) -> None:
    target = tmp_path / "out.ndjson"
    words = ["export", "leaky", "--out", str(target), "--store", leaky]
    assert main(words) == 1
    err = capsys.readouterr().err
    assert "GitHub token in event" in err
    assert "--redact" in err
    assert TOKEN not in err
    assert not target.exists()
    assert main([*words, "--with-secrets"]) == 0
    assert TOKEN in target.read_text()
    target.unlink()
    assert main([*words, "--redact"]) == 0
    events = ndjson.parse(target.read_bytes()).events
    assert verify(events) == []
    assert TOKEN not in target.read_text()
    assert "deploy with [redacted] please" in target.read_text()
    assert main(["import", str(target), "--store", f"sqlite:{tmp_path / 'new.db'}"]) == 0


def test_a_secret_of_this_environment_is_found_at_export(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    url = made.recorded(tmp_path, "s", [made.said("the word is openbarrelhead")])
    assert main(["export", "s", "--store", url]) == 0
    monkeypatch.setenv("OPENAI_API_KEY", "openbarrelhead")
    capsys.readouterr()
    assert main(["export", "s", "--store", url]) == 1
    assert "a known secret in event" in capsys.readouterr().err


@pytest.mark.parametrize("kept", [True, False])
def test_a_key_is_not_recorded_unless_that_is_set(tmp_path: Path, *, kept: bool) -> None:
    room = Room(tmp_path)
    (tmp_path / "config.toml").write_text(f"redact_keys = {str(kept).lower()}\n")
    with scripted(answered("fine")) as server:
        command = room.command(server, "run", f"use {TOKEN} for it")
        subprocess.run(command, env=room.environment, capture_output=True, check=True)
    (text,) = [data["text"] for data in room.events("user_message")]
    assert text == (f"use {TOKEN} for it" if not kept else "use [redacted] for it")
