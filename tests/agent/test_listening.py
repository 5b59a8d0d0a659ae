"""Who listens to a session: told all, able to end nothing; answers and gauges that say nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.agent.acting import agent, called, said, scripted, types
from ullage.agent import Live, Session


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


def test_a_listener_that_raises_is_logged_and_ends_no_turn(
    session: Session, workspace: Path, caplog: pytest.LogCaptureFixture
):
    def fail(event: Any) -> None:
        if event.type in ("tool_call", "turn_completed"):
            raise ZeroDivisionError("a listener's fault")

    heard: list[str] = []
    session.hear(fail)
    session.hear(lambda event: heard.append(event.type))
    with scripted(called(("list", {})), said("One file.")) as server:
        done = agent(server, workspace).run(session, "Look")
    assert (done.ok, done.text) == (True, "One file.")
    assert types(session)[-1] == "turn_completed"
    assert "turn_failed" not in types(session)
    assert {"tool_call", "turn_completed"} <= set(heard)
    failed = [r.getMessage() for r in caplog.records if r.name == "ullage.agent"]
    assert failed == [
        f"a listener of session s failed on {kind}: ZeroDivisionError: a listener's fault"
        for kind in ("tool_call", "turn_completed")
    ]


@pytest.mark.parametrize("text", [" ", "\n\n", "\t \u00a0"])
def test_an_answer_of_white_space_is_none(session: Session, text: str):
    with scripted(said(text)) as server:
        done = agent(server).run(session, "Well?")
    assert (done.ok, done.reason) == (False, "no_answer")


def test_the_live_event_of_an_unknown_window_says_that_there_is_no_gauge(session: Session):
    live: list[Live] = []
    session.hear(lambda event: live.append(event) if isinstance(event, Live) else None)
    with scripted(said("Yes.")) as server:
        agent(server, window=None).run(session, "Is it?")
    tiers = [e.data["tier"] for e in live if e.type == "context_pressure"]
    assert tiers
    assert set(tiers) == {"unavailable"}
