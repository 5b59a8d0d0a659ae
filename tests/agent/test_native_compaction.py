"""An agent whose provider compacts by itself: its compactions go back as they came."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.agent.acting import QUICK
from tests.support.compacting import compacting
from ullage.agent import Agent, Session
from ullage.core.compaction.policy import Policy, Rung
from ullage.core.errors import ConfigurationError
from ullage.providers import Provider

WINDOW, THRESHOLD = 8000, 5000

EDITS = {"type": "compact_20260112", "trigger": {"type": "input_tokens", "value": THRESHOLD}}
ASKED: dict[str, Any] = {
    "anthropic": {"context_management": {"edits": [EDITS]}},
    "openai_responses": {
        "context_management": [{"type": "compaction", "compact_threshold": THRESHOLD}]
    },
}


@pytest.mark.parametrize("dialect", ASKED)
def test_forty_tool_turns_are_compacted_by_the_provider_alone(
    dialect: str, session: Session, tmp_path: Path
) -> None:
    workspace = tmp_path / "work"
    workspace.mkdir()
    (workspace / "log.txt").write_text("wind and water were fair today, all hands well. " * 20)
    with compacting(WINDOW, {"name": "read", "input": {"path": "log.txt"}}) as server:
        server.last = frozenset({14, 28, 41})
        provider = Provider(
            "tern-9", f"{server.url}/v1", dialect, "k", limits=QUICK, options=ASKED[dialect]
        )
        for number in range(3):
            agent = Agent(provider, workspace=workspace, window=WINDOW)
            assert agent.run(session, f"Read the log, part {number}.").ok
    assert server.refused == []
    assert len(server.sent) == 42
    assert len(server.made) >= 3
    assert server.made[-1]["encrypted_content"] in str(server.sent[-1])
    assert not [event for event in session.events() if event.type == "history_compaction"]


@pytest.mark.parametrize("dialect", ASKED)
def test_the_strategy_native_has_the_agents_provider_compact(
    dialect: str, session: Session, tmp_path: Path
) -> None:
    workspace = tmp_path / "work"
    workspace.mkdir()
    (workspace / "log.txt").write_text("wind and water were fair today, all hands well. " * 20)
    policy = Policy(name="asking", rungs=(Rung(0.8, 0.6, ("native", "clear", "trim_oldest")),))
    with compacting(WINDOW, {"name": "read", "input": {"path": "log.txt"}}) as server:
        server.last = frozenset({20, 41})
        for number in range(2):
            provider = Provider("tern-9", f"{server.url}/v1", dialect, "k", limits=QUICK)
            agent = Agent(provider, workspace=workspace, window=WINDOW, policy=policy)
            assert agent.run(session, f"Read the log, part {number}.").ok
    assert server.refused == []
    assert len(server.sent) == 42
    assert server.made[-1]["encrypted_content"] in str(server.sent[-1])


def test_a_policy_that_leaves_compaction_to_clients_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="leaves compaction to a proxy's clients"):
        Agent(Provider("m", "http://127.0.0.1:9/v1"), policy="client")
