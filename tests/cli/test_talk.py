"""What a line of a chat does, whatever shows it: commands, turns, what goes with them."""

from __future__ import annotations

import argparse
import asyncio
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.agent.acting import agent, bodies, called, said, scripted
from tests.support.faults import FaultServer
from ullage.agent import Session
from ullage.cli.talk import COMMANDS, Talk
from ullage.core.session.log.event import Draft
from ullage.storage import open_log

EDIT = {"path": "ledger.py", "old": "sum", "new": "len"}


class Fake:
    """A face that keeps what it is shown."""

    def __init__(self) -> None:
        self.waited: list[str] = []
        self.diffs: list[str] = []
        self.reports: list[Mapping[str, Any]] = []
        self.opened: list[str] = []

    async def ask(self, call: Any, reason: str) -> bool:
        return True

    def begin(self, what: str) -> None:
        self.waited.append(what)

    def end(self) -> None:
        pass

    def hear(self, event: Any) -> None:
        pass

    def open(self, session: Session) -> None:
        self.opened.append(session.name)

    def show_past(self, session: Session) -> None:
        pass

    def show_diff(self, text: str) -> None:
        self.diffs.append(text)

    def show_report(self, report: Mapping[str, Any]) -> None:
        self.reports.append(report)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    made = tmp_path / "work"
    made.mkdir()
    (made / "ledger.py").write_text("def count(casks):\n    return sum(casks)\n")
    return made


Begin = Callable[..., tuple[Talk, Fake]]


@pytest.fixture
def begin(tmp_path: Path, work: Path) -> Iterator[Begin]:
    log = open_log(f"sqlite:{tmp_path}/state/s.db")
    made: list[Talk] = []

    def start(server: FaultServer, **more: Any) -> tuple[Talk, Fake]:
        given = argparse.Namespace(
            plan=False,
            permission="auto",
            dry_run=False,
            shell=False,
            max_iterations=None,
            context=None,
            tools=None,
            text=None,
        )
        face = Fake()
        talk = Talk(agent(server, work, **more), Session.create(log, "first"), given, face)
        made.append(talk)
        return talk, face

    yield start
    for talk in made:
        talk.session.close()
    log.close()


def take(talk: Talk, *lines: str) -> None:
    for line in lines:
        asyncio.run(talk.take(line))


def test_the_diff_of_the_last_turn_is_shown_and_gone_once_it_is_undone(
    begin: Begin, work: Path, capsys: Any
):
    with scripted(called(("edit", EDIT)), said("Done."), said("Nothing to do.")) as server:
        talk, face = begin(server)
        take(talk, "/diff", "mend it", "/diff")
        assert "-    return sum(casks)\n+    return len(casks)" in face.diffs[0]
        (work / "ledger.py").write_text("mine\n")
        take(talk, "/diff")
        assert "changed since the turn" in face.diffs[1]
        (work / "ledger.py").unlink()
        take(talk, "/diff")
        assert "+++ /dev/null" in face.diffs[2]
        take(talk, "and now?", "/diff")
    assert len(face.diffs) == 3
    assert capsys.readouterr().err.count("the last turn changed no file") == 2


def test_clear_begins_a_new_session_and_sessions_goes_back(begin: Begin, capsys: Any):
    with scripted(said("one"), said("two"), said("three")) as server:
        talk, face = begin(server)
        take(talk, "hi", "/clear")
        new = talk.session.name
        take(talk, "hello", "/sessions", "/sessions first")
        assert talk.session.name == "first"
        take(talk, "again", "/sessions first", "/sessions nonsense")
        assert [m["content"] for m in bodies(server)[-1]["messages"][1:]] == ["hi", "one", "again"]
    err = capsys.readouterr().err
    assert f"session {new} begins; session first is kept: /sessions first goes back" in err
    assert "SESSION" in err
    assert "is the one that you are in" in err
    assert "nonsense" in err
    assert face.opened == ["first", new, "first"]


def test_a_session_is_saved_as_what_was_said_or_as_its_events(
    begin: Begin, tmp_path: Path, capsys: Any
):
    with scripted(called(("edit", EDIT)), said("Done.")) as server:
        talk, _ = begin(server)
        take(talk, "/save", "mend it")
        told, events = tmp_path / "talk.md", tmp_path / "talk.jsonl"
        take(talk, f"/save {told}", f"/save {told}", f"/save {events}")
    assert told.read_text().startswith("# Session first\n\n## You\n\nmend it\n\n## model")
    assert "- `edit`" in told.read_text()
    assert stat.S_IMODE(told.stat().st_mode) == 0o600
    assert stat.S_IMODE(events.stat().st_mode) == 0o600
    assert '"user_message"' in events.read_text()
    err = capsys.readouterr().err
    assert "takes the name of a file" in err
    assert "cannot be written: File exists" in err


def test_what_looks_like_a_secret_is_not_saved(begin: Begin, tmp_path: Path, capsys: Any):
    key = "sk-ant-api03-" + "a1B2" * 23 + "AA"
    with scripted(said("ok")) as server:
        talk, _ = begin(server)
        talk.session.record([Draft("user_message", {"text": f"my key is {key}"})])
        take(talk, f"/save {tmp_path / 'x.md'}")
    assert not (tmp_path / "x.md").exists()
    assert "nothing was written; ullage export first --redact" in capsys.readouterr().err


def test_costs_tools_and_what_is_found(begin: Begin, capsys: Any):
    with scripted(said("The cask is red.")) as server:
        talk, _ = begin(server)
        take(talk, "what colour has the cask?", "/cost", "/tools", "/plan", "/tools", "/search")
        take(talk, "/search cask red", "/search zebra")
    err = capsys.readouterr().err
    assert "1 request, 50 tokens sent, 5 answered" in err
    assert err.count("  edit ") == 1
    assert err.count("  read ") == 2
    assert "takes words" in err
    assert "in session first" in err
    assert "nothing was found" in err


def test_without_tools_none_are_listed(begin: Begin, capsys: Any):
    from ullage.tools import Executor

    with scripted(said("unused")) as server:
        talk, _ = begin(server, executor=lambda _: Executor(Path(), tools=()))
        take(talk, "/tools")
    assert "offered no tools" in capsys.readouterr().err


def test_a_file_that_is_named_goes_with_the_message(begin: Begin, capsys: Any):
    with scripted(said("I see.")) as server:
        talk, _ = begin(server)
        take(talk, "what is @ledger.py", "and @../state/s.db")
        assert len(bodies(server)) == 1
        sent = bodies(server)[0]["messages"][-1]["content"]
    assert '<file name="ledger.py">\ndef count(casks):' in sent
    err = capsys.readouterr().err
    assert "attached ledger.py, 40 bytes" in err
    assert "cannot be attached" in err


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("/hlep", "there is no /hlep: did you mean '/help'?"),
        ("/qiut", "did you mean '/quit'?"),
        ("/xyzzy", "there is no /xyzzy: /help lists what there is"),
    ],
)
def test_an_unknown_command_gets_the_nearest_one(begin: Begin, capsys: Any, typed: str, told: str):
    with scripted(said("unused")) as server:
        take(begin(server)[0], typed)
        assert bodies(server) == []
    assert told in capsys.readouterr().err


def test_a_path_is_no_command(begin: Begin):
    with scripted(said("yes")) as server:
        take(begin(server)[0], "/etc/hosts is a file")
        assert bodies(server)[0]["messages"][-1]["content"] == "/etc/hosts is a file"


def test_help_names_every_command(begin: Begin, capsys: Any):
    wanted = "sessions cost tools clear save diff context compact search model window undo plan"
    with scripted(said("unused")) as server:
        take(begin(server)[0], "/help")
    err = capsys.readouterr().err
    for name in [*wanted.split(), "build", "summary", "help", "quit", "unfold", "edit"]:
        assert f"  /{name} " in err
    assert {f"/{name}" for name in wanted.split()} <= COMMANDS.keys()


def test_a_log_in_the_workspace_itself_keeps_nobody_from_talking(tmp_path: Path, capsys: Any):
    from ullage.tools import Executor

    (tmp_path / "a.py").write_text("x")
    given = argparse.Namespace(
        plan=False, permission="auto", dry_run=False, shell=False, max_iterations=None
    )
    vars(given).update(context=None, tools=False, text=None)
    log = open_log(f"sqlite:{tmp_path}/s.db")
    with scripted(said("yes")) as server:
        bare = agent(server, tmp_path, executor=lambda _: Executor(tmp_path, tools=()))
        talk = Talk(bare, Session.create(log), given, Fake())
        take(talk, "hi @a.py")
        assert bodies(server)[0]["messages"][-1]["content"] == "hi @a.py"
        talk.session.close()
    log.close()
