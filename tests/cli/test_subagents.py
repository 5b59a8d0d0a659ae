"""Subagents in the terminal: the option, what is shown of them, the links in lists and logs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.agent.acting import bodies, called, said, scripted
from tests.support.faults import Answer, FaultServer
from ullage.agent import Session
from ullage.cli.main import main
from ullage.core.session.log.event import Draft
from ullage.storage import open_log

SCRIPT = (called(("subagent", {"task": "look at it"})), said("Seven."), said("There are seven."))


class Desk:
    """Runs commands against one log and one workspace."""

    def __init__(self, folder: Path) -> None:
        self.workspace = folder / "work"
        self.workspace.mkdir()
        self.store = f"sqlite:{folder}/state/s.db"

    def run(self, server: FaultServer, *words: str) -> int:
        where = ["--workspace", str(self.workspace), "--window", "8000", "--model", "model"]
        return self.ask(*words, *where, "--base-url", server.base_url)

    def ask(self, *words: str) -> int:
        return main([*words, "--store", self.store])

    def sessions(self) -> list[Session]:
        log = open_log(self.store)
        return [Session(log, head.session) for head in log.sessions()]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def offered(body: dict[str, Any]) -> set[str]:
    return {tool["function"]["name"] for tool in body["tools"]}


def delegated(desk: Desk, *words: str, script: tuple[Answer, ...] = SCRIPT) -> tuple[str, str]:
    """Run a turn with a subagent; return the names of parent and child."""
    with scripted(*script) as server:
        assert desk.run(server, "run", "How many?", "--subagents", "1", *words) == 0
    parent, child = desk.sessions()
    return parent.name, child.name


def test_a_run_shows_what_its_subagent_does_and_answers_for_itself(desk: Desk, capsys: Any):
    _, child = delegated(desk)
    shown = capsys.readouterr()
    assert shown.out == "There are seven.\n"
    assert f"subagent {child} works on: look at it" in shown.err
    assert "< subagent Seven." in shown.err


def test_the_document_of_a_run_has_what_subagents_used(desk: Desk, capsys: Any):
    delegated(desk, "--json")
    told = json.loads(capsys.readouterr().out)
    assert (told["usage"]["input"], told["delegated"]["input"]) == (100, 50)
    assert told["dollars"] is None


def test_sessions_and_show_name_the_link_on_both_sides(desk: Desk, capsys: Any):
    parent, child = delegated(desk)
    capsys.readouterr()
    assert desk.ask("sessions") == 0
    rows = capsys.readouterr().out.splitlines()
    assert f"(subagent of {parent})" in rows[1]
    assert f"(subagents {child})" in rows[2]
    assert desk.ask("sessions", "--json") == 0
    last, first = json.loads(capsys.readouterr().out)["sessions"]
    assert (last["parent"], first["children"]) == (parent, [child])
    assert desk.ask("show", parent) == 0
    page = capsys.readouterr().out
    assert f"subagent in session {child}: look at it" in page
    assert f"subagent in session {child}: completed, 55 tokens" in page
    assert desk.ask("show", child) == 0
    assert f"a subagent of session {parent}" in capsys.readouterr().out
    assert desk.ask("show", "--json") == 0  # the newest is the one that a person began
    told = json.loads(capsys.readouterr().out)
    assert (told["session"], told["children"], told["parent"]) == (parent, [child], None)


def test_a_session_goes_on_with_subagents_as_it_was_begun(desk: Desk):
    parent, _ = delegated(desk)
    with scripted(said("Yes."), said("No.")) as server:
        assert desk.run(server, "resume", parent, "Sure?") == 0
        assert desk.run(server, "resume", parent, "Sure?", "--subagents", "0") == 0
        first, second = bodies(server)
    assert "subagent" in offered(first)
    assert "subagent" not in offered(second)
    assert desk.ask("compact", parent, "--dry-run", "--target", "4000") in (0, 1)


def test_a_depth_that_cannot_be_is_an_error_that_says_so(desk: Desk, capsys: Any):
    with scripted(said("x")) as server:
        assert desk.run(server, "run", "x", "--subagents", "-1") == 1
    assert "depth of subagents is -1" in capsys.readouterr().err


def test_other_links_are_drawn_as_what_they_are(desk: Desk, capsys: Any):
    log = open_log(desk.store, create=True)
    with Session.create(log, "one", now=lambda: 1.0) as session:
        priced = {"child": "kid", "outcome": "failed", "reason": "budget", "dollars": 0.5}
        links: list[dict[str, Any]] = [{"continued_in": "two", "seq": 3}, priced, {"other": 1}]
        session.record([Draft("subagent_event", link) for link in links])
    log.close()
    assert desk.ask("show", "one") == 0
    page = capsys.readouterr().out
    assert "continued in session two" in page
    assert "subagent in session kid: failed budget, 0 tokens, $0.5000" in page
    assert 'subagent: {"other": 1}' in page


def test_a_log_of_subagents_alone_has_a_newest_session(desk: Desk, capsys: Any):
    log = open_log(desk.store, create=True)
    log.create("kid", 1.0)
    with Session(log, "kid") as session:
        session.record([Draft("session_created", {"parent": "gone", "depth": 1})])
    log.close()
    assert desk.ask("show") == 0
    assert "session kid" in capsys.readouterr().out
