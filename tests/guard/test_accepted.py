"""After each kind of compaction: a real llama.cpp server takes the history, tools and all.

The request models of the official SDKs take it too. Three dialects; each kind is made by the public
functions, and its name stands in the checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import openai
import pytest
from anthropic.types import MessageParam
from openai.types.chat import ChatCompletionMessageParam
from openai.types.responses import ResponseInputItemParam
from pydantic import TypeAdapter

import ullage
from tests import presets
from tests.guard.test_dialects import SYSTEM, Anthropic, Responses, fields, history_of
from tests.voyage import WINDOW
from ullage.embedded import Server
from ullage.runtime import Runtime

PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5E"
    "rkJggg=="
)


class Chat:
    """Conversations in the dialect of Chat Completions, with the SDK against a real server."""

    dialect = "openai_chat"
    tools = (
        {
            "type": "function",
            "function": {
                "name": "look",
                "description": "Look it up.",
                "parameters": {"type": "object"},
            },
        },
    )

    def __init__(self, server: Server) -> None:
        self.client = openai.OpenAI(base_url=server.base_url, api_key="k", max_retries=0)

    def create(self, **kwargs: Any) -> Any:
        return self.client.chat.completions.create(**{**kwargs, "model": "tiny"})

    def prompt(self, answer: Any) -> int:
        return int(answer.usage.prompt_tokens)

    def words(self, text: str) -> Any:
        return {"role": "assistant", "content": text}

    def step(self, n: int, texts: tuple[str, str]) -> list[Any]:
        names = [f"call_{n}_{i}" for i in range(2)]
        function = {"name": "look", "arguments": f'{{"n": {n}}}'}
        calls = [{"id": i, "type": "function", "function": function} for i in names]
        results = [
            {"role": "tool", "tool_call_id": i, "content": text}
            for i, text in zip(names, texts, strict=True)
        ]
        return [{"role": "assistant", "content": None, "tool_calls": calls}, *results]


Speaker = Chat | Anthropic | Responses
SHAPES: Mapping[str, TypeAdapter[Any]] = {
    "openai_chat": TypeAdapter(list[ChatCompletionMessageParam]),
    "anthropic": TypeAdapter(list[MessageParam]),
    "openai_responses": TypeAdapter(list[ResponseInputItemParam]),
}
SUMMARY = "Goal:\n- Mend the pump.\nDone:\n- Several items were looked at."
LADDER = ullage.Rung(0.9, 0.5, ("summarise_middle", "clear", "trim_oldest"))
CLEAR = ullage.Policy(name="clear", rungs=(ullage.Rung(0.9, 0.5, ("clear",)),))
SUMMARISE = ullage.Policy(name="all", rungs=(LADDER,))


@pytest.fixture(params=[Chat, Anthropic, Responses])
def speaker(request: pytest.FixtureRequest, tiny_server: Server) -> Iterator[Speaker]:
    made: Speaker = request.param(tiny_server)
    with made.client:
        yield made


def asked(speaker: Speaker, messages: list[Any]) -> dict[str, Any]:
    if isinstance(speaker, Chat):
        system = {"role": "system", "content": SYSTEM}
        messages = messages if messages[0].get("role") == "system" else [system, *messages]
        return {"messages": messages, "tools": speaker.tools, "max_tokens": 16}
    return fields(speaker, messages)


def talk(speaker: Speaker, turns: int) -> list[Any]:
    return history_of(speaker, turns)  # type: ignore[arg-type]  # a third speaker


def taken(speaker: Speaker, messages: list[Any], kind: str, made: Any) -> None:
    """Assert that the compaction was of this kind, and that everybody takes its result."""
    assert made is not None
    assert kind in made.strategy
    SHAPES[speaker.dialect].validate_python(messages)
    answer = speaker.create(**asked(speaker, messages))
    assert 0 < speaker.prompt(answer) < WINDOW


def compacted(speaker: Speaker, history: list[Any], **options: Any) -> ullage.Compaction:
    given = {"target_tokens": 900, "dialect": speaker.dialect, "tools": speaker.tools, **options}
    if not isinstance(speaker, Chat):
        given["system"] = SYSTEM
    return ullage.compact(history, **given)


class Small:
    """A summarizer whose window holds a part of the history."""

    window = 2_000

    def __call__(self, request: ullage.SummaryRequest) -> str:
        return SUMMARY


@pytest.mark.parametrize(
    ("kind", "turns", "options"),
    [
        ("clear", 9, {"policy": CLEAR, "target_tokens": 1500}),
        ("trim_oldest", 14, {"policy": presets.trim(4)}),
        ("summarise_middle", 14, {"policy": presets.summarise(3)}),
        ("summarise_middle", 14, {"summarizer": lambda request: SUMMARY}),
        ("hierarchical", 105, {"summarizer": Small(), "policy": SUMMARISE, "target_tokens": 1700}),
    ],
)
def test_each_kind_of_compaction_is_taken(speaker, kind, turns, options) -> None:
    made = compacted(speaker, talk(speaker, turns), **options)
    taken(speaker, made.messages, kind, made.checkpoint)


def test_an_updated_summary_is_taken(speaker) -> None:
    options = {"summarizer": lambda r: SUMMARY, "policy": SUMMARISE, "target_tokens": 1700}
    first = compacted(speaker, talk(speaker, 14), **options)
    more = [*first.messages, speaker.words("So far."), *talk(speaker, 12)]
    made = compacted(speaker, more, **options)
    taken(speaker, made.messages, "incremental", made.checkpoint)


def test_placeholders_with_names_are_taken(speaker) -> None:
    store = ullage.open_store("memory:")
    made = compacted(speaker, talk(speaker, 14), store=store, target_tokens=1500)
    assert "; recall u:" in str(made.messages)
    taken(speaker, made.messages, "clear", made.checkpoint)


def test_a_recovered_request_is_taken(speaker) -> None:
    told: list[Any] = []
    apart = {} if isinstance(speaker, Chat) else {"system": SYSTEM}
    guard = ullage.Guard("tiny", dialect=speaker.dialect, runtime=Runtime(), on_event=told.append)
    answer = guard.call(
        speaker.create, talk(speaker, 14), tools=speaker.tools, max_tokens=16, **apart
    )
    assert speaker.prompt(answer) < WINDOW
    triggers = [e.checkpoint.trigger for e in told if isinstance(e, ullage.events.Compacted)]
    assert triggers == ["overflow_recovery"]


def picture(speaker: Speaker) -> dict[str, Any]:
    url = f"data:image/png;base64,{PIXEL}"
    if isinstance(speaker, Anthropic):
        source = {"type": "base64", "media_type": "image/png", "data": PIXEL}
        return {"type": "image", "source": source}
    if isinstance(speaker, Responses):
        return {"type": "input_image", "image_url": url, "detail": "auto"}
    return {"type": "image_url", "image_url": {"url": url}}


def test_stripped_media_are_taken_by_a_server_that_knows_none(speaker) -> None:
    text = "input_text" if isinstance(speaker, Responses) else "text"
    shown = {"role": "user", "content": [{"type": text, "text": "See."}, picture(speaker)]}
    history = [{"role": "user", "content": "Look."}, shown, speaker.words("Seen.")]
    history.append({"role": "user", "content": "And?"})
    guard = ullage.Guard("tiny", window=20_000, dialect=speaker.dialect, runtime=Runtime())
    sent: list[Any] = []

    def create(**request: Any) -> Any:
        sent.append(request)
        return speaker.create(**request)

    answer = guard.call(create, history, max_tokens=16)
    assert speaker.prompt(answer) > 0
    assert len(sent) == 2
    assert "[ullage: image left out]" in str(sent[1])
