"""Forks share what is cached of their root: the same bytes, up to what is said anew."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.fixtures import StartServer
from ullage.agent import Agent, Call, Reply, Session
from ullage.core.dialects import registry
from ullage.embedded import Launch
from ullage.providers import Provider
from ullage.storage.log_memory import MemoryLog

READ = Reply("I look.", calls=(Call("", "read", '{"path": "cellar.txt"}'),), stop="calls")
DIALECTS = [name for name in registry.DIALECTS if name != "bedrock_converse"]
NEW = "What is new?"


class Recording:
    """Read a file in its first answer; keep every request as it would be sent."""

    model = "recording"
    window = 100_000

    def __init__(self, dialect: str, base_url: str | None = None) -> None:
        self.dialect, self.base_url = dialect, base_url
        self.asked: list[Mapping[str, Any]] = []

    async def stream(self, request: Mapping[str, Any]) -> AsyncIterator[object]:
        self.asked.append(json.loads(json.dumps(request)))
        yield READ if len(self.asked) == 1 else Reply("Seven casks.")

    def prompts(self) -> list[str]:
        """Return what comes before the model of each request: tools, system, history."""
        place = registry.find(self.dialect).fields
        names = ("tools", place.system, place.messages)
        return [json.dumps([body.get(n) for n in names if n], indent=1) for body in self.asked]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "cellar.txt").write_text("seven casks\n")
    return tmp_path


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_fork_sends_the_bytes_of_its_root_up_to_what_is_said_anew(dialect: str, workspace: Path):
    model = Recording(dialect)
    agent = Agent(model, workspace=workspace)
    root = Session.create(MemoryLog(), "the root")
    agent.run(root, "What is in the cellar?")
    fork = root.fork(name="the fork")
    further = fork.fork(name="further")
    for session in (root, fork, further):
        agent.run(session, f"{NEW} {session.name}")
    befores = {prompt.partition(NEW)[0] for prompt in model.prompts()[2:]}
    assert len(befores) == 1
    assert "seven casks" in befores.pop()
    assert not any("the root" in prompt.partition(NEW)[0] for prompt in model.prompts())


def test_sessions_of_one_workspace_share_prompts_and_tools(workspace: Path):
    model = Recording("anthropic")
    for name in ("one", "other"):
        Agent(model, workspace=workspace).run(Session.create(MemoryLog(), name), NEW)
    first, *_, last = (prompt.partition(NEW)[0] for prompt in model.prompts())
    assert first == last


def test_marks_and_keys_are_those_of_the_root(workspace: Path):
    model = Recording("anthropic")
    agent = Agent(model, workspace=workspace)
    root = Session.create(MemoryLog())
    agent.run(root, "What is in the cellar?")
    for session in (root, root.fork()):
        agent.run(session, NEW)
    assert [str(body).count("cache_control") for body in model.asked] == [3, 3, 4, 4]
    keyed = Recording("openai_responses", "https://api.openai.com/v1")
    agent = Agent(keyed, executor=None, window=9_000)
    for session in (root, root.fork(), Session.create(MemoryLog())):
        agent.run(session, NEW)
    keys = [body["prompt_cache_key"] for body in keyed.asked]
    assert keys[0] == keys[1]
    assert keys[-1] != keys[0]


def test_a_real_server_reads_the_prompt_of_a_root_from_its_cache_for_a_fork(
    llama_server: StartServer, workspace: Path
):
    server = llama_server(Launch(window=8192))
    agent = Agent(Provider("tiny", server.base_url), workspace=workspace)
    root = Session.create(MemoryLog())
    first = agent.run(root, "What is in the cellar? " + "It is dark in there. " * 50).usage
    forked = agent.run(root.fork(), NEW).usage
    assert forked.cache_read > 0.99 * first.prompt_tokens
