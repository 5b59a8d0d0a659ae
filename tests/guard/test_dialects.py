"""Anthropic and Responses requests from end to end: a real server and the SDKs take the results."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Iterator
from typing import Any

import anthropic
import openai
import pytest

import ullage
from tests.voyage import WINDOW, of
from ullage import events
from ullage.core.guard.events import Event
from ullage.embedded import Server
from ullage.runtime import Runtime

OUTPUT = "line of output, nothing to see; " * 12
SYSTEM = "You answer in one short sentence."


class Anthropic:
    """Conversations in the Anthropic dialect, with the SDK against a real server."""

    dialect = "anthropic"
    tools = ({"name": "look", "description": "Look it up.", "input_schema": {"type": "object"}},)

    def __init__(self, server: Server) -> None:
        root = server.base_url.removesuffix("/v1")
        self.client = anthropic.Anthropic(base_url=root, api_key="k", max_retries=0)

    def create(self, **kwargs: Any) -> Any:
        return self.client.messages.create(**{**kwargs, "model": "tiny"})

    def prompt(self, answer: Any) -> int:
        """Return the tokens of the prompt; what came from the cache is reported apart."""
        used = answer.usage
        return int(used.input_tokens + (used.cache_read_input_tokens or 0))

    def words(self, text: str) -> Any:
        return {"role": "assistant", "content": text}

    def said(self, answer: Any) -> list[Any]:
        """Return the answer as part of a history: the SDK's own blocks."""
        return [{"role": "assistant", "content": answer.content}]

    def step(self, n: int, texts: tuple[str, str]) -> list[Any]:
        names = [f"toolu_{n}_{i}" for i in range(2)]
        uses = [{"type": "tool_use", "id": i, "name": "look", "input": {"n": n}} for i in names]
        results = [
            {"type": "tool_result", "tool_use_id": i, "content": text}
            for i, text in zip(names, texts, strict=True)
        ]
        return [{"role": "assistant", "content": uses}, {"role": "user", "content": results}]


class Responses:
    """The same in the dialect of the Responses API."""

    dialect = "openai_responses"
    tools = (
        {
            "type": "function",
            "name": "look",
            "description": "Look it up.",
            "parameters": {"type": "object"},
            "strict": False,
        },
    )

    def __init__(self, server: Server) -> None:
        self.client = openai.OpenAI(base_url=server.base_url, api_key="k", max_retries=0)

    def create(self, **kwargs: Any) -> Any:
        return self.client.responses.create(**{**kwargs, "model": "tiny"})

    def prompt(self, answer: Any) -> int:
        return int(answer.usage.input_tokens)

    def words(self, text: str) -> Any:
        """Return an assistant's message; llama.cpp wants its type, which OpenAI does not."""
        return {"type": "message", "role": "assistant", "content": text}

    def said(self, answer: Any) -> list[Any]:
        return [item for item in answer.output if item.type == "message"]

    def step(self, n: int, texts: tuple[str, str]) -> list[Any]:
        names = [f"call_{n}_{i}" for i in range(2)]
        calls = [
            {"type": "function_call", "call_id": i, "name": "look", "arguments": '{"n": 1}'}
            for i in names
        ]
        results = [
            {"type": "function_call_output", "call_id": i, "output": text}
            for i, text in zip(names, texts, strict=True)
        ]
        return [*calls, *results]


Speaker = Anthropic | Responses


@pytest.fixture(params=[Anthropic, Responses])
def speaker(request: pytest.FixtureRequest, tiny_server: Server) -> Iterator[Speaker]:
    made: Speaker = request.param(tiny_server)
    with made.client:
        yield made


@pytest.fixture
def runtime() -> Runtime:
    return Runtime()


def history_of(speaker: Speaker, turns: int) -> list[Any]:
    history: list[Any] = [{"role": "user", "content": "Find what is wrong with the pump."}]
    for n in range(turns):
        history += speaker.step(n, (OUTPUT, f"{n}: {OUTPUT}"))
        history.append(speaker.words(f"Looked at {n}."))
        history += [{"role": "user", "content": f"Go on with item {n}."}]
    return history


def fields(speaker: Speaker, messages: list[Any]) -> dict[str, Any]:
    """Return the request that carries a plain list."""
    if isinstance(speaker, Anthropic):
        return {"messages": messages, "system": SYSTEM, "tools": speaker.tools, "max_tokens": 16}
    apart = {"instructions": SYSTEM, "tools": speaker.tools, "max_output_tokens": 16}
    return {"input": messages, **apart}


def compact_sync(messages: Any, **options: Any) -> ullage.Compaction:
    return ullage.compact(messages, **options)


def compact_async(messages: Any, **options: Any) -> ullage.Compaction:
    return asyncio.run(ullage.acompact(messages, **options))


@pytest.mark.parametrize("compact", [compact_sync, compact_async])
@pytest.mark.parametrize("summary", [None, "Goal: mend the pump."])
def test_a_real_server_takes_what_compact_returns(
    compact: Callable[..., ullage.Compaction], summary: str | None, speaker: Speaker
) -> None:
    history = history_of(speaker, 14)
    before = copy.deepcopy(history)
    summarizer = None if summary is None else (lambda request: summary)
    made = compact(history, target_tokens=900, summarizer=summarizer, system=SYSTEM)
    assert (made.changed, made.reached) == (True, True)
    assert history == before
    assert made.checkpoint is not None
    answer = speaker.create(**fields(speaker, made.messages))
    assert speaker.prompt(answer) < WINDOW
    with pytest.raises((anthropic.BadRequestError, openai.BadRequestError)):
        speaker.create(**fields(speaker, history))


def test_a_real_server_takes_what_repair_returns(speaker: Speaker) -> None:
    history = history_of(speaker, 2)
    broken = [m for i, m in enumerate(history) if i not in (2, 3)]
    mended = ullage.repair([*broken, *history[2:4]])
    assert mended.repairs
    assert speaker.prompt(speaker.create(**fields(speaker, mended.messages)))


@pytest.mark.parametrize("named", [True, False])
def test_a_guarded_conversation_with_tools_never_overflows(
    speaker: Speaker, runtime: Runtime, tiny_server: Server, named: bool
) -> None:
    told: list[Event] = []
    guard = ullage.Guard(
        "tiny",
        base_url=tiny_server.base_url,
        dialect=speaker.dialect if named else None,
        runtime=runtime,
        on_event=told.append,
    )
    history: list[Any] = [{"role": "user", "content": "Find what is wrong with the pump."}]
    bases = set()
    for n in range(10):
        history += speaker.step(n, (OUTPUT, f"{n}: {OUTPUT}"))
        view = guard.prepare(history, system=SYSTEM, tools=speaker.tools, max_tokens=24)
        answer = speaker.create(**view.kwargs)
        seen = view.observe(answer)
        assert seen.input_tokens == speaker.prompt(answer) < WINDOW
        bases.add(view.prepared.count.basis)
        if view.prepared.count.basis == "server":
            assert view.prepared.count.tokens == speaker.prompt(answer)
        history += speaker.said(answer)
        history.append({"role": "user", "content": f"Go on with item {n + 1}, please."})
    assert of(events.Compacted, told)
    assert not of(events.Repaired, told)
    assert "server" in bases


def test_a_real_overflow_is_recovered_from(speaker: Speaker, runtime: Runtime) -> None:
    sent: list[Any] = []

    def create(**kwargs: Any) -> Any:
        sent.append(kwargs)
        return speaker.create(**kwargs)

    guard = ullage.Guard("tiny", window=10**6, runtime=runtime)
    asked = {"system": SYSTEM, "tools": speaker.tools, "max_tokens": 24}
    answer = guard.call(create, history_of(speaker, 14), **asked)
    assert speaker.prompt(answer) < WINDOW
    assert len(sent) == 2


def test_the_view_carries_what_the_client_of_the_dialect_takes(runtime: Runtime) -> None:
    said = [{"role": "user", "content": "hi"}]
    blocks = [{"type": "text", "text": "be brief"}]
    asked: dict[str, Any] = {"tools": [], "max_tokens": 9}
    chat = ullage.Guard("m", window=4096, runtime=runtime).prepare(said, **asked)
    assert chat.kwargs == {"messages": said, "tools": [], "max_tokens": 9}
    claude = ullage.Guard("m", window=4096, runtime=runtime, dialect="claude")
    made = claude.prepare(said, system=blocks, **asked)
    assert made.kwargs == {"messages": said, "system": blocks, "tools": [], "max_tokens": 9}
    assert made.prepared.count.tokens > claude.prepare(said, **asked).prepared.count.tokens
    responses = ullage.Guard("m", window=4096, runtime=runtime, dialect="responses")
    made = responses.prepare(said, system="be brief", **asked)
    apart = {"instructions": "be brief", "tools": [], "max_output_tokens": 9}
    assert made.kwargs == {"input": said, **apart}
    assert responses.prepare("hi").kwargs == {"input": said}
    assert responses.assess("hi", system="be brief").input_tokens
    assert asyncio.run(responses.aassess("hi", system="x")).state == "estimated"


def test_a_system_prompt_beside_chat_messages_is_refused(runtime: Runtime) -> None:
    guard = ullage.Guard("m", window=4096, runtime=runtime)
    with pytest.raises(ullage.ConfigurationError, match="put a system message first"):
        guard.prepare([{"role": "user", "content": "hi"}], system="be brief")


@pytest.mark.parametrize("dialect", ["openai_chat", "anthropic"])
def test_a_bare_text_is_a_request_of_the_responses_api_alone(dialect: str) -> None:
    assert ullage.repair("hi", "responses").messages == [{"role": "user", "content": "hi"}]
    with pytest.raises(ullage.MalformedHistoryError, match="must be a list of messages"):
        ullage.repair("hi", dialect)
