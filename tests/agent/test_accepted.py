"""Turns of a real llama.cpp server: its own calls of tools, on all dialects in turn."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from tests.agent.acting import data, types
from tests.support import tinymodel
from tests.support.fixtures import StartServer
from ullage.agent import Agent, Session, Subagents
from ullage.core.messages.transcript import DialectName
from ullage.embedded import Launch, Server
from ullage.providers import Provider
from ullage.storage.log import verify

DIALECTS: Final[tuple[DialectName, ...]] = ("openai_chat", "openai_responses", "anthropic")

WINDOW: Final = 8192

CALL: Final = '[CALL=read]{"path":"cellar.txt"} END'
"""All that the calling model says. Its template writes calls like this, from which the server
learns how to read them."""

CALLING: Final = (
    tinymodel.CHAT_TEMPLATE.replace(r"""'\n<tool_call>\n{"name": "'""", "'[CALL='")
    .replace("""'", "arguments": '""", "']'")
    .replace(r"'}\n</tool_call>'", "' END'")
)

FORCED: Final[Mapping[str, Any]] = {
    "openai_chat": "required",
    "openai_responses": "required",
    "anthropic": {"type": "any"},
}
"""The server then holds the model to a grammar of its tools."""

TURN: Final = """
import sys, ullage
provider = ullage.Provider("tiny", sys.argv[1], sys.argv[2])
with ullage.Session.create(ullage.open_log("memory:")) as session:
    assert ullage.Agent(provider).run(session, "hello").ok
assert not {"openai", "anthropic"} & set(sys.modules)
"""


@pytest.fixture(scope="module")
def speaking(llama_server: StartServer) -> Server:
    return llama_server(Launch(window=WINDOW))


@pytest.fixture(scope="module")
def calling(llama_server: StartServer, tmp_path_factory: pytest.TempPathFactory) -> Server:
    model = tinymodel.make(tmp_path_factory.mktemp("calling") / "calling.gguf", sentence=CALL)
    return llama_server(Launch(window=WINDOW, chat_template=CALLING), model)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "cellar.txt").write_text("seven casks\n")
    return folder


def agent(server: Server, model: str, dialect: DialectName, workspace: Path) -> Agent:
    return Agent(Provider(model, server.base_url, dialect), workspace=workspace)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_real_calls_are_run_and_every_dialect_takes_the_history_then(
    calling: Server, speaking: Server, session: Session, workspace: Path, dialect: DialectName
):
    capped = agent(calling, "calling", dialect, workspace).run(
        session,
        "What is in the cellar?",
        max_iterations=3,
        provider_options={"tool_choice": FORCED[dialect], "temperature": 0},
    )
    assert (capped.outcome, capped.reason, capped.rounds) == ("failed", "iteration_cap", 3)
    calls, results = data(session, "tool_call"), data(session, "tool_result")
    assert [call["round"] for call in calls] == [1, 2]
    assert [r["call_id"] for r in results] == [call["call_id"] for call in calls]
    assert all("seven casks" in result["text"] for result in results)
    assert len(data(session, "provider_usage")) == 3
    assert types(session)[-1] == "turn_failed"

    for other in sorted(DIALECTS, key=lambda name: name != dialect):
        done = agent(speaking, "speaking", other, workspace).run(session, "Say something.")
        assert done.text == tinymodel.SENTENCE, done
        assert done.usage.prompt_tokens > 0
    assert not session.fold.open_calls
    assert verify(session.log, "s") == []


def test_a_real_model_gives_tasks_to_another_one_on_a_server_of_its_own(
    llama_server: StartServer, speaking: Server, session: Session, workspace: Path, tmp_path: Path
):
    task = CALL.replace("read", "subagent").replace("path", "task")
    file = tinymodel.make(tmp_path / "delegating.gguf", sentence=task)
    server = llama_server(Launch(window=WINDOW, chat_template=CALLING), file)
    other = Provider("speaking", speaking.base_url, "anthropic")
    made = Agent(
        Provider("delegating", server.base_url),
        workspace=workspace,
        subagents=Subagents(provider=other),
    )
    forced = {"tool_choice": "required", "temperature": 0}
    done = made.run(session, "Look.", max_iterations=3, provider_options=forced)
    assert (done.reason, done.rounds) == ("iteration_cap", 3)
    assert [r["text"] for r in data(session, "tool_result")] == [tinymodel.SENTENCE] * 2
    assert done.delegated.prompt_tokens > 2_000
    names = [link["child"] for link in session.fold.links]
    assert len(set(names)) == 2
    for name in names:
        assert verify(session.log, name) == []
        assert Session(session.log, name).fold.created["parent"] == "s"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_turn_needs_no_client_library_of_openai_or_anthropic(
    speaking: Server, tmp_path: Path, dialect: DialectName
):
    command = [sys.executable, "-c", TURN, speaking.base_url, dialect]
    run = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("dialect", ["openai_chat", "anthropic"])
def test_tools_that_the_server_leaves_out_of_the_prompt_cost_no_answer(
    llama_server: StartServer, session: Session, workspace: Path, dialect: DialectName
):
    bare = tinymodel.CHAT_TEMPLATE.split("{%- endif -%}\n", 1)[1]
    server = llama_server(Launch(window=2048, chat_template=bare))
    made = agent(server, "tiny", dialect, workspace)
    limited = {"max_tokens": 120}
    for turn in range(24):
        said = f"Turn {turn}. " + "what is there? " * 12
        done = made.run(session, said, provider_options=limited)
        assert (done.outcome, done.text) == ("completed", tinymodel.SENTENCE), done
    found = data(session, "history_compaction")
    assert 1 <= len(found) <= 12
    for made_one in found:
        checkpoint = made_one["checkpoint"]
        assert checkpoint["tokens_after"] < checkpoint["tokens_before"] <= 2048
