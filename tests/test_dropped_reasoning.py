"""Templates that drop old reasoning, on a real llama.cpp server, by every door.

The reported size falls there with each new question. That is lawful: it is no sign that a prompt
was cut, lowers no window and compacts nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import openai
import pytest

import ullage
from tests.agent.acting import QUICK
from tests.proxy.serving import CHAT, proxied
from tests.support.fixtures import StartServer
from tests.support.templates import SINCE_ASKED, SINCE_USER, STRICT, TOOLS
from ullage.agent import Agent, Session
from ullage.config.serving import ModelRule
from ullage.core.session.log.event import Draft
from ullage.embedded import Launch, Server
from ullage.providers import Provider
from ullage.runtime import Runtime
from ullage.tools import Executor

WINDOW = 8_192

TEMPLATES = {
    "glm": SINCE_USER,
    "qwen3": SINCE_ASKED,
    "gemma": STRICT,
    "mistral": TOOLS,
}

THOUGHT = "which of these pages is the one, and what did the last one say of it? " * 25


@pytest.fixture(scope="module", params=TEMPLATES)
def family(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def server(family: str, llama_server: StartServer) -> Server:
    return llama_server(Launch(window=WINDOW, chat_template=TEMPLATES[family]))


def turns(family: str) -> Iterator[list[dict[str, Any]]]:
    """Yield a history at each of its requests: reasoning in every answer, a question at times.

    Gemma's template takes no tools.
    """
    calls = family != "gemma"
    history: list[dict[str, Any]] = [{"role": "system", "content": "Be brief."}]
    for n in range(10 if calls else 40):
        history.append({"role": "user", "content": f"Question {n}: what does page {n} say?"})
        for step in range(3 if calls else 0):
            yield list(history)
            name = f"c{n}{step}"
            call = {"id": name, "type": "function", "function": {"name": "look", "arguments": "{}"}}
            history.append(
                {
                    "role": "assistant",
                    "content": "",
                    "reasoning_content": THOUGHT,
                    "tool_calls": [call],
                }
            )
            history.append({"role": "tool", "tool_call_id": name, "content": f"Page {n}.{step}."})
        yield list(history)
        history.append(
            {"role": "assistant", "content": f"It says {n}.", "reasoning_content": THOUGHT}
        )


def check(told: list[Any], reports: list[int]) -> None:
    """The server's count fell; nothing was taken for a cut, and nothing was left out."""
    assert any(later < earlier for earlier, later in pairwise(reports)) or max(reports) < 2_000
    assert not [event for event in told if isinstance(event, ullage.events.TruncationDetected)]
    assert not [event for event in told if isinstance(event, ullage.events.Compacted)]


@pytest.mark.parametrize("wrapped", [False, True])
def test_the_window_never_falls_with_the_reported_size(
    server: Server, family: str, wrapped: bool
) -> None:
    told: list[Any] = []
    runtime = Runtime()
    guard = ullage.Guard("tiny", base_url=server.base_url, api_key="k", runtime=runtime,
                         on_event=told.append)  # fmt: skip
    reports: list[int] = []
    with openai.OpenAI(base_url=server.base_url, api_key="k", max_retries=0) as client:
        inside = ullage.wrap(client, runtime=runtime, on_event=told.append)
        for history in turns(family):
            sent: Any = history
            if wrapped:
                made = inside.chat.completions.create(model="tiny", messages=sent, max_tokens=4)
            else:
                made = guard.call(client.chat.completions.create, sent, max_tokens=4)
            assert made.usage is not None
            reports.append(made.usage.prompt_tokens)
            assert guard.window().input_tokens == WINDOW
    check(told, reports)


def test_the_proxy_leaves_such_a_conversation_alone(server: Server, family: str) -> None:
    with proxied(server.root_url, rules=(ModelRule(),)) as proxy:
        for history in turns(family):
            body = {"model": "tiny", "messages": history, "max_tokens": 4}
            answer = proxy.post(CHAT, body)
            assert answer.status_code == 200
            assert "x-ullage-compaction" not in answer.headers
            assert f"window={WINDOW}" in answer.headers["x-ullage-context"]


def test_the_agent_compacts_nothing_that_its_template_drops(server: Server, tmp_path: Path) -> None:
    with Session.create(ullage.open_log("memory:")) as session:
        for n in range(8):
            made = {"model": "tiny", "dialect": "openai_chat", "round": 1}
            session.record([Draft("user_message", {"text": f"Question {n}."})])
            session.record(
                [
                    Draft("reasoning", {**made, "block": {"reasoning_content": THOUGHT}}),
                    Draft("assistant_message", {"text": f"It says {n}.", "model": "tiny"}),
                ]
            )
        provider = Provider("tiny", server.base_url, limits=QUICK, options={"max_tokens": 16})
        for n in range(4):
            agent = Agent(provider, executor=lambda _: Executor(tmp_path, tools=[]))
            done = agent.run(session, f"And page {n}?")
            assert done.ok, done.error
        assert not [e for e in session.events() if e.type == "history_compaction"]
