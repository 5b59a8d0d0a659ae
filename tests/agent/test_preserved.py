"""An agent on models that bind thinking to what stands before it."""

from __future__ import annotations

from pathlib import Path

from tests.agent.acting import QUICK
from tests.support.preserved import NEWER, OLDER, preserving
from ullage.agent import Agent, Session
from ullage.providers import Provider

WINDOW = 6000


def test_forty_tool_turns_over_two_families_meet_no_refusal(
    session: Session, tmp_path: Path
) -> None:
    workspace = tmp_path / "work"
    workspace.mkdir()
    (workspace / "log.txt").write_text("wind and water were fair today, all hands well. " * 20)
    call = {"name": "read", "input": {"path": "log.txt"}}
    with preserving(WINDOW, call=call) as server:
        for number, model in enumerate((OLDER, NEWER, OLDER)):
            server.last = 14 * (number + 1)
            provider = Provider(model, server.url, "anthropic", "k", limits=QUICK)
            agent = Agent(provider, workspace=workspace, window=WINDOW)
            assert agent.run(session, f"Read the log, part {number}.").ok
    assert server.refused == []
    assert len(server.sent) > 40
