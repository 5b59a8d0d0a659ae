"""Permissions of an agent's turns: what a person is shown, answers, and allows for a session."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.agent.acting import agent, bodies, called, data, said, scripted
from ullage.agent import Consent, Pending, Rule, Session
from ullage.storage.log_sqlite import SqliteLog


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


def test_who_is_asked_sees_the_diff_and_the_model_is_told_the_reason_of_a_no(
    session: Session, workspace: Path
):
    (workspace / "a.txt").write_text("old\n")
    script = (called(("write", {"path": "a.txt", "content": "new\n"})), said("done"))
    seen: list[Pending] = []

    def ask(call: Pending, reason: str) -> Consent:
        seen.append(call)
        return Consent(False, "the key is sk-sentinel-9, keep the old one")

    with scripted(*script) as server:
        asking = agent(server, workspace, secrets=["sk-sentinel-9"])
        assert asking.run(session, "Write", permission="ask", ask=ask).ok
        sent = json.dumps(bodies(server)[1])
    assert "-old\n+new" in seen[0].preview.text
    assert "keep the old one" in sent
    assert "sk-sentinel-9" not in sent + repr(session.events())
    assert (workspace / "a.txt").read_text() == "old\n"
    recorded = data(session, "permission_decision")[0]
    assert (recorded["decision"], recorded["scope"]) == ("deny", "once")
    assert "keep the old one" in recorded["said"]


@pytest.mark.parametrize(
    ("consent", "asked"),
    [
        (Consent(True), ["a.txt", "a.txt", "b/c.txt"]),
        (Consent(True, scope="same"), ["a.txt", "b/c.txt"]),
        (Consent(True, scope="pattern", pattern="*.txt"), ["a.txt", "b/c.txt"]),
        (Consent(True, scope="tool"), ["a.txt"]),
    ],
)
def test_what_a_person_allows_for_the_session_needs_no_question_in_its_later_turns(
    session: Session, workspace: Path, consent: Consent, asked: list[str]
):
    writes = [
        called(("write", {"path": path, "content": str(n)}))
        for n, path in enumerate(("a.txt", "a.txt", "b/c.txt"))
    ]
    script = (writes[0], said("one"), writes[1], writes[2], said("two"))
    questions: list[str] = []

    def ask(call: Pending, reason: str) -> Consent:
        questions.append(call.subject.text)
        return consent

    with scripted(*script) as server:
        asking = agent(server, workspace)
        for text in ("Write", "Write more"):
            assert asking.run(session, text, permission="ask", ask=ask).ok
    assert questions == asked
    assert (workspace / "b" / "c.txt").read_text() == "2"
    recorded = data(session, "permission_decision")
    assert [each["decision"] for each in recorded] == ["allow"] * 3
    assert [each["by"] for each in recorded].count("grant") == 3 - len(asked)
    assert recorded[0]["scope"] == consent.scope


def test_a_permission_of_one_session_is_none_of_another_and_never_beats_a_denial(
    tmp_path: Path, workspace: Path
):
    write = called(("write", {"path": "a.txt", "content": "x"}))
    closed = called(("write", {"path": "closed/b.txt", "content": "x"}))
    log = SqliteLog(tmp_path / "state" / "log.db")
    with scripted(write, said("one"), closed) as server:
        asking = agent(server, workspace, writes=[Rule("closed/**", "deny")])
        with Session.create(log, "first") as first:
            all_of_it = Consent(True, scope="tool")
            asking.run(first, "Write", permission="ask", ask=lambda call, why: all_of_it)
            asking.run(first, "Write", permission="ask", ask=_never)
            assert data(first, "permission_decision")[-1]["by"] == "policy"
    assert not (workspace / "closed").exists()
    (workspace / "a.txt").unlink()
    with scripted(write) as server, Session.create(log, "second") as second:
        asking = agent(server, workspace)
        assert asking.run(second, "Write", permission="ask").reason == "permission_denied"
    log.close()
    assert not (workspace / "a.txt").exists()


def test_an_answer_that_is_neither_yes_nor_no_allows_nothing(session: Session, workspace: Path):
    with scripted(called(("write", {"path": "a.txt", "content": "x"}))) as server:
        wrong: Any = lambda call, why: "no"  # noqa: E731 - what an untyped program may do
        done = agent(server, workspace).run(session, "Write", permission="ask", ask=wrong)
    assert done.reason == "crashed"
    assert "'no'" in done.error
    assert not (workspace / "a.txt").exists()


def test_an_edit_that_must_fail_is_not_asked_about(session: Session, workspace: Path):
    (workspace / "a.txt").write_text("one\n")
    script = (called(("edit", {"path": "a.txt", "old": "two", "new": "2"})), said("done"))
    with scripted(*script) as server:
        done = agent(server, workspace).run(session, "Edit", permission="ask", ask=_never)
    assert done.ok
    assert "not in" in data(session, "tool_result")[0]["text"]


def _never(call: Any, reason: str) -> bool:
    raise AssertionError(f"asked about {call}")
