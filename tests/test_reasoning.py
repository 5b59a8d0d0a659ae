"""Servers that leave out reasoning which was sent to them: their smaller reports cut no window.

By every door, on the real llama.cpp server with templates that do what those of four families do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import openai
import pytest

import ullage
from tests.agent.acting import QUICK, data
from tests.proxy.serving import proxied
from tests.support.fixtures import StartServer
from tests.support.reasoning import Thinker, thinking
from tests.support.templates import FAMILIES
from ullage.agent import Agent, Session
from ullage.config.serving import ModelRule
from ullage.embedded import Launch, Server
from ullage.providers import Provider
from ullage.runtime import Runtime

WINDOW = 8_192
QUESTIONS = 4
TOOLS: Any = [
    {
        "type": "function",
        "function": {
            "name": "look",
            "description": "Look at a page",
            "parameters": {"type": "object", "properties": {"page": {"type": "integer"}}},
        },
    }
]
PAGE = "page of text and words " * 10

Send = Callable[..., Any]
Family = Callable[..., Server]


class Seen:
    """What a door told: events, windows and how many compactions were made."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        self.windows: set[int | None] = set()
        self.compacted = 0
        self.cut = 0
        self.reported: list[int | None] = []

    def note(self, event: Any) -> None:
        """Take an event of a guard."""
        self.events.append(event)
        if isinstance(event, ullage.events.ContextPressure):
            self.windows.add(event.assessment.window_tokens)
            if event.phase == "reported":
                self.reported.append(event.assessment.input_tokens)
        self.compacted += isinstance(
            event, ullage.events.Compacted | ullage.events.CompactionFailed
        )
        self.cut += isinstance(event, ullage.events.TruncationDetected)


@contextmanager
def library(server: Thinker, seen: Seen, **more: Any) -> Iterator[Send]:
    url = f"{server.url}/v1"
    with openai.OpenAI(base_url=url, api_key="k", max_retries=0) as client:
        guard = ullage.Guard(
            "tiny", base_url=url, api_key="k", runtime=Runtime(), on_event=seen.note, **more
        )
        yield lambda **fields: guard.call(client.chat.completions.create, **fields)


@contextmanager
def wrapped(server: Thinker, seen: Seen) -> Iterator[Send]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="k", max_retries=0) as client:
        inside = ullage.wrap(client, runtime=Runtime(), on_event=seen.note)
        yield lambda **fields: inside.chat.completions.create(model="tiny", **fields)


@contextmanager
def proxy(server: Thinker, seen: Seen) -> Iterator[Send]:
    with (
        proxied(server.url, rules=(ModelRule(),)) as running,
        openai.OpenAI(base_url=f"{running.url}/v1", api_key="k", max_retries=0) as client,
    ):

        def send(**fields: Any) -> Any:
            raw = client.chat.completions.with_raw_response.create(model="tiny", **fields)
            context = raw.headers["x-ullage-context"]
            seen.windows |= {int(n) for n in re.findall(r"window=(\d+)", context)}
            seen.compacted += "x-ullage-compaction" in raw.headers
            parsed = raw.parse()
            seen.reported.append(parsed.usage.prompt_tokens)
            return parsed

        yield send
        seen.cut += int(running.shown("ullage_silent_truncations_total"))


DOORS = {"library": library, "wrap": wrapped, "proxy": proxy}


def converse(
    send: Send,
    *,
    tools: bool,
    questions: int = QUESTIONS,
    padding: int = 20,
    most: int = 100,
    page: str = PAGE,
) -> int:
    """Hold a conversation, each answer sent back as the client has it; return its answers."""
    messages: list[Any] = [{"role": "user", "content": "question 0: what of this page?"}]
    answers, asked = 0, 1
    while asked <= questions and answers < most:
        answer = send(messages=list(messages), max_tokens=64, **({"tools": TOOLS} if tools else {}))
        said = answer.choices[0].message.model_dump(exclude_none=True)
        messages.append(said)
        answers += 1
        for call in said.get("tool_calls") or ():
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": page})
        if not said.get("tool_calls"):
            text = f"question {asked}: what of the next one?" + " and more" * padding
            messages.append({"role": "user", "content": text})
            asked += 1
    return answers


@pytest.fixture(scope="module")
def family(llama_server: StartServer) -> Family:
    def start(name: str, window: int = WINDOW) -> Server:
        return llama_server(Launch(window=window, batch=2048, chat_template=FAMILIES[name]))

    return start


@pytest.mark.parametrize(
    ("name", "door", "inline"),
    [
        ("glm", "library", False),
        ("glm", "wrap", True),
        ("qwen3", "library", True),
        ("qwen3", "proxy", True),
        ("gemma", "library", False),
        ("mistral", "wrap", False),
    ],
)
def test_reasoning_that_a_template_drops_is_no_cut(
    family: Family, name: str, door: str, inline: bool
) -> None:
    seen, tools = Seen(), name != "gemma"
    real = family(name).root_url
    with thinking(real, inline=inline, thought=30) as server, DOORS[door](server, seen) as send:
        answers = converse(send, tools=tools, questions=QUESTIONS if tools else 20)
    assert answers >= 20
    assert server.refused == []
    assert (seen.windows, seen.cut, seen.compacted) == ({WINDOW}, 0, 0)
    assert seen.reported == server.sizes


@pytest.mark.parametrize("counts", [True, False], ids=["counts", "does not count"])
@pytest.mark.parametrize("inline", [False, True], ids=["field", "text"])
def test_a_question_that_closes_a_turn_compacts_nothing_for_its_reasoning(
    family: Family, inline: bool, counts: bool
) -> None:
    """All that was said is over 80 % of the window, all that is read under 30 %."""
    seen, real = Seen(), family("qwen3").root_url
    with (
        thinking(real, inline=inline, thought=54, counts=counts) as server,
        library(server, seen) as send,
    ):
        assert converse(send, tools=True, padding=220, most=9) == 9
    assert max(server.sizes[:6]) > 0.6 * WINDOW
    assert server.sizes[6] < 0.3 * WINDOW
    assert (seen.windows, seen.cut, seen.compacted) == ({WINDOW}, 0, 0)
    assert seen.reported == server.sizes


def test_a_prompt_that_is_cut_in_silence_is_found_in_spite_of_reasoning(family: Family) -> None:
    """A server that tells nothing of its window and drops the oldest messages of what is longer."""
    seen, real = Seen(), family("glm", 2 * WINDOW).root_url
    with (
        thinking(real, cut=2_000, tells=False, counts=False, loop=18, thought=8) as server,
        library(server, seen) as send,
    ):
        converse(send, tools=True, questions=2, page=4 * PAGE)
    assert max(server.sizes) <= 2_000
    assert seen.cut > 0
    assert min(filter(None, seen.windows)) >= 2_000


@pytest.mark.parametrize("name", ["glm", "mistral"])
def test_an_agent_keeps_its_window(family: Family, name: str, tmp_path: Path) -> None:
    (tmp_path / "page.txt").write_text(PAGE)
    call = {"name": "read", "arguments": '{"path": "page.txt"}'}
    told: dict[str, list[Any]] = {"context_pressure": [], "status": []}
    with (
        thinking(family(name, 2 * WINDOW).root_url, call) as server,
        Session.create(ullage.open_log("memory:")) as session,
    ):
        session.hear(lambda event: told.get(event.type, []).append(event.data))
        provider = Provider("tiny", f"{server.url}/v1", limits=QUICK)
        agent = Agent(provider, workspace=tmp_path, runtime=Runtime())
        for question in range(QUESTIONS):
            done = agent.run(session, f"Question {question}: what of page.txt?")
            assert done.ok, done.error
        assert data(session, "history_compaction") == []
    assert len(server.sizes) == QUESTIONS * 6
    assert server.refused == []
    assert {each["window_tokens"] for each in told["context_pressure"]} == {2 * WINDOW}
    assert [each for each in told["status"] if "text" in each] == []
    assert (sorted(server.sizes) == server.sizes) == (name == "mistral")
    read = [e["input_tokens"] for e in told["context_pressure"] if e["phase"] == "reported"]
    assert read == server.sizes
