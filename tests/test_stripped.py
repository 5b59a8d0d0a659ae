"""Claude drops the thinking of earlier turns and does not count it: 200,000 stays 200,000."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import anthropic
import pytest

import ullage
from tests.agent.acting import QUICK, data
from tests.proxy.serving import proxied
from tests.support.stripping import MODEL, WINDOW, Stripping, stripping
from ullage.agent import Agent, Session
from ullage.config.serving import ModelRule
from ullage.providers import Provider
from ullage.runtime import Runtime

# the SDK says when it ends; the window and the behaviour are those of this family
pytestmark = pytest.mark.filterwarnings("ignore:The model 'claude:DeprecationWarning")

TOOLS: Any = [{"name": "look", "input_schema": {"type": "object", "properties": {}}}]
THINKING: Any = {"type": "enabled", "budget_tokens": 1024}

Send = Callable[..., Any]
Told = list[Any]


@contextmanager
def client_of(url: str) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=url, api_key="k", max_retries=0) as client:
        yield client


@contextmanager
def library(server: Stripping, told: Told, **more: Any) -> Iterator[Send]:
    guard = ullage.Guard(MODEL, runtime=Runtime(), on_event=told.append, **more)
    with client_of(server.url) as client:
        yield lambda **fields: guard.call(client.messages.create, **fields)
    # what is on disk is read by another process, too
    assert ullage.Guard(MODEL, runtime=Runtime(), **more).window().input_tokens == WINDOW


@contextmanager
def wrapped(server: Stripping, told: Told) -> Iterator[Send]:
    with client_of(server.url) as client:
        inside = ullage.wrap(client, window=WINDOW, runtime=Runtime(), on_event=told.append)
        yield lambda **fields: inside.messages.create(model=MODEL, **fields)


@contextmanager
def proxy(server: Stripping, told: Told) -> Iterator[Send]:
    with (
        proxied(server.url, rules=(ModelRule(window=WINDOW),)) as running,
        client_of(running.url) as client,
    ):

        def send(**fields: Any) -> Any:
            raw = client.messages.with_raw_response.create(model=MODEL, **fields)
            (window,) = re.findall(r"window=(\d+)", raw.headers["x-ullage-context"])
            assert int(window) == WINDOW
            assert "x-ullage-compaction" not in raw.headers
            return raw.parse()

        yield send
        assert running.shown("ullage_silent_truncations_total") == 0


DOORS: dict[str, Any] = {
    "library": library,
    "library, with a window": lambda *given: library(*given, window=WINDOW),
    "wrap": wrapped,
    "proxy": proxy,
}


def converse(send: Send, questions: int) -> None:
    messages: list[Any] = []
    for question in range(questions):
        messages.append({"role": "user", "content": f"Question {question}: what is there?"})
        calls: list[Any] = [None]
        while calls:
            answer = send(messages=list(messages), max_tokens=2048, tools=TOOLS, thinking=THINKING)
            said = [block.model_dump(exclude_none=True) for block in answer.content]
            messages.append({"role": "assistant", "content": said})
            calls = [block["id"] for block in said if block["type"] == "tool_use"]
            page = "wind and water were fair today, all hands well. " * 10
            results = [{"type": "tool_result", "tool_use_id": c, "content": page} for c in calls]
            messages += [{"role": "user", "content": results}] if results else []


@pytest.mark.parametrize(
    ("door", "thought", "questions"),
    [
        *((door, 20, 4) for door in DOORS),
        # what was said is over 80 % of the window where a turn ends, and 1 % when the next begins
        *((door, 1_450, 2) for door in DOORS if door != "proxy"),
        ("proxy", 380, 3),
    ],
)
def test_thinking_that_the_provider_removes_is_no_cut(
    door: str, thought: int, questions: int
) -> None:
    told: Told = []
    with stripping(thought=thought) as server, DOORS[door](server, told) as send:
        converse(send, questions)
    assert len(server.sizes) == questions * 6
    assert server.refused == []
    assert any(after < before for before, after in pairwise(server.sizes))
    pressures = [e for e in told if isinstance(e, ullage.events.ContextPressure)]
    assert {e.assessment.window_tokens for e in pressures} <= {WINDOW}
    read = [e.assessment.input_tokens for e in pressures if e.phase == "reported"]
    assert read == (server.sizes if pressures else [])
    harmless = ullage.events.ContextPressure | ullage.events.Answered
    more = [e for e in told if not isinstance(e, harmless)]
    assert [e for e in more if "Context window at" not in str(e)] == []


def test_an_agent_keeps_the_window(tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_text("wind and water were fair today, all hands well. " * 20)
    call = {"name": "read", "input": {"path": "log.txt"}}
    windows: set[int] = set()

    def hear(event: Any) -> None:
        if event.type == "context_pressure":
            windows.add(event.data["window_tokens"])

    with (
        stripping(call=call) as server,
        Session.create(ullage.open_log("memory:")) as session,
    ):
        session.hear(hear)
        provider = Provider(MODEL, server.url, "anthropic", "k", limits=QUICK)
        agent = Agent(provider, workspace=tmp_path, window=WINDOW, runtime=Runtime())
        for question in range(4):
            done = agent.run(session, f"Question {question}: what is there?")
            assert done.ok, done.error
        assert data(session, "history_compaction") == []
    assert windows == {WINDOW}
    assert server.refused == []
    assert any(after < before for before, after in pairwise(server.sizes))
