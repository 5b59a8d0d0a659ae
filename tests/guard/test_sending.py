"""`Guard.call` and its twins with the SDKs' own functions: what is sent, and by which names."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Self

import anthropic
import openai
import pytest

import ullage
from tests.support.faults import Answer, FaultServer, of_json, sse
from tests.voyage import opening
from ullage.embedded import Server
from ullage.runtime import Runtime

ASK = [{"role": "user", "content": "What is in the cellar?"}]
CHAT_TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
RESPONSES_TOOL = {"type": "function", "name": "look", "parameters": {"type": "object"}}
CLAUDE_TOOL = {"name": "look", "input_schema": {"type": "object"}}

CHOICE = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "wine"}}
CHUNK = {"index": 0, "finish_reason": "stop", "delta": {"content": "wine"}}
USED = {"prompt_tokens": 12, "completion_tokens": 1, "total_tokens": 13}
DONE = {"id": "r", "object": "response", "output": [], "status": "completed"}
SPOKEN: Mapping[str, Any] = {
    "id": "m",
    "type": "message",
    "role": "assistant",
    "content": [],
    "usage": None,
}
ANSWERS: Mapping[str, tuple[Answer, Answer]] = {
    "/v1/chat/completions": (
        of_json({"id": "c", "choices": [CHOICE], "usage": USED}),
        sse({"id": "c", "choices": [CHUNK], "usage": USED}, "[DONE]"),
    ),
    "/v1/responses": (
        of_json(DONE),
        sse({"type": "response.completed", "sequence_number": 0, "response": DONE}),
    ),
    "/v1/messages": (
        of_json(SPOKEN),
        sse({"type": "message_start", "message": SPOKEN}, {"type": "message_stop"}),
    ),
}


class Talk:
    """A guard, and the functions of both SDKs, that call a server which keeps what was asked."""

    def __init__(self, way: str) -> None:
        self.way = way
        self.streams = way in ("stream", "astream")
        scripts = {f"POST {path}": answers[self.streams] for path, answers in ANSWERS.items()}
        self.server = FaultServer({path: (answer,) * 4 for path, answer in scripts.items()})
        self.awaits = way in ("acall", "astream")

    def __enter__(self) -> Self:
        self.server.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.__exit__(None, None, None)

    def ask(self, of: str, *args: Any, guard: ullage.Guard | None = None, **options: Any) -> Any:
        """Call an SDK's function by its dotted name; return the body that the server was sent."""
        held = guard or ullage.Guard("gpt-4o", window=9_000, runtime=Runtime())
        if self.awaits:
            asyncio.run(self._aask(of, held, args, options))
        else:
            with self.client(of) as client:
                answer = getattr(held, self.way)(self.function(client, of), *args, **options)
                assert not self.streams or list(answer)
        return self.sent()

    def sent(self) -> Any:
        return json.loads(self.server.requests[-1].body)

    def client(self, of: str) -> Any:
        sdk: Any = anthropic if of == "messages.create" else openai
        kind = ("Async" if self.awaits else "") + ("Anthropic" if sdk is anthropic else "OpenAI")
        url = self.server.root_url if sdk is anthropic else self.server.base_url
        return getattr(sdk, kind)(base_url=url, api_key="k", max_retries=0)

    def function(self, client: Any, of: str) -> Any:
        for name in of.split("."):
            client = getattr(client, name)
        return client

    async def _aask(self, of: str, guard: ullage.Guard, args: Any, options: Any) -> None:
        async with self.client(of) as client:
            answer = await getattr(guard, self.way)(self.function(client, of), *args, **options)
            assert not self.streams or [event async for event in answer]


CHAT, RESPONSES, CLAUDE = "chat.completions.create", "responses.create", "messages.create"


@pytest.fixture(params=["call", "acall", "stream", "astream"])
def talk(request: pytest.FixtureRequest) -> Iterator[Talk]:
    with Talk(request.param) as made:
        yield made


@pytest.fixture
def calls() -> Iterator[Talk]:
    with Talk("call") as made:
        yield made


# --- the SDKs' own functions ----------------------------------------------------------------------


def test_chat_completions_get_model_and_unknown_keywords(talk: Talk) -> None:
    body = talk.ask(CHAT, ASK, max_tokens=64, tools=[CHAT_TOOL], temperature=0, seed=7)
    assert body["model"] == "gpt-4o"
    assert body["messages"] == ASK
    assert (body["max_tokens"], body["temperature"], body["seed"]) == (64, 0, 7)
    assert body["tools"] == [CHAT_TOOL]


def test_responses_get_a_plain_history_as_their_input(talk: Talk) -> None:
    body = talk.ask(
        RESPONSES, ASK, instructions="Be brief.", max_output_tokens=64, tools=[RESPONSES_TOOL],
        temperature=0,
    )  # fmt: skip
    assert (body["model"], body["input"], body["instructions"]) == ("gpt-4o", ASK, "Be brief.")
    assert (body["max_output_tokens"], body["temperature"]) == (64, 0)
    assert body["tools"] == [RESPONSES_TOOL]


def test_anthropic_gets_a_plain_history_with_its_system_text(talk: Talk) -> None:
    guard = ullage.Guard("claude-next", window=9_000, runtime=Runtime())
    body = talk.ask(
        CLAUDE, ASK, guard=guard, system="Be brief.", max_tokens=64, tools=[CLAUDE_TOOL],
        stop_sequences=["."],
    )  # fmt: skip
    assert (body["model"], body["messages"]) == ("claude-next", ASK)
    assert (body["system"], body["max_tokens"], body["stop_sequences"]) == ("Be brief.", 64, ["."])
    assert body["tools"] == [CLAUDE_TOOL]


def test_the_history_may_come_by_the_name_that_the_client_has_for_it(talk: Talk) -> None:
    assert talk.ask(RESPONSES, input=ASK)["input"] == ASK
    assert talk.ask(RESPONSES, input="What is there?")["input"] == [
        {"role": "user", "content": "What is there?"}
    ]
    assert talk.ask(CHAT, messages=ASK)["messages"] == ASK


def test_a_model_that_is_given_wins_over_the_guards(talk: Talk) -> None:
    assert talk.ask(CHAT, ASK, model="deployment-7")["model"] == "deployment-7"


@pytest.mark.parametrize(
    ("of", "given", "sent"),
    [
        (CHAT, "max_tokens", "max_tokens"),
        (CHAT, "max_completion_tokens", "max_completion_tokens"),
        (CHAT, "max_output_tokens", "max_tokens"),
        (RESPONSES, "max_tokens", "max_output_tokens"),
        (CLAUDE, "max_tokens", "max_tokens"),
        (CLAUDE, "max_completion_tokens", "max_tokens"),
    ],
)
def test_the_most_to_answer_goes_by_the_name_that_the_function_takes(
    calls: Talk, of: str, given: str, sent: str
) -> None:
    body = calls.ask(of, ASK, **dict[str, Any]({given: 100}))
    assert {name: body[name] for name in body if name.startswith("max_")} == {sent: 100}


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_the_most_to_answer_is_lowered_to_the_room_there_is_by_either_name(
    calls: Talk, name: str
) -> None:
    guard = ullage.Guard("gpt-4o", window=1_000, runtime=Runtime())
    body = calls.ask(CHAT, ASK, guard=guard, **{name: 5_000})
    assert 900 < body[name] < 1_000


def test_a_budget_of_thinking_is_lowered_with_the_answer_that_holds_it(talk: Talk) -> None:
    guard = ullage.Guard("claude-next", window=9_000, runtime=Runtime())
    thinking = {"type": "enabled", "budget_tokens": 9_999}
    body = talk.ask(CLAUDE, ASK, guard=guard, max_tokens=10_000, thinking=thinking)
    assert body["thinking"] == {"type": "enabled", "budget_tokens": 4_999}
    assert 4_999 < body["max_tokens"] < 9_000
    assert thinking["budget_tokens"] == 9_999


def test_a_history_that_is_too_long_is_sent_smaller(talk: Talk) -> None:
    history = [{"role": "user", "content": f"{n}: the barometer falls " * 40} for n in range(60)]
    body = talk.ask(CHAT, history, max_completion_tokens=64)
    assert 0 < len(body["messages"]) < 60
    assert body["messages"][-1] == history[-1]


def test_what_a_partial_holds_counts_as_given(calls: Talk) -> None:
    guard = ullage.Guard("gpt-4o", window=1_000, runtime=Runtime())
    with calls.client(CHAT) as client:
        create = partial(client.chat.completions.create, model="mine", max_tokens=5_000, seed=3)
        guard.call(create, ASK, seed=4)
    assert (calls.sent()["model"], calls.sent()["seed"]) == ("mine", 4)
    assert 900 < calls.sent()["max_tokens"] < 1_000


def test_what_an_sdk_calls_not_given_is_left_to_the_sdk(calls: Talk) -> None:
    body = calls.ask(CHAT, ASK, tools=openai.NOT_GIVEN, max_tokens=openai.omit, stop=None)
    assert "tools" not in body
    assert "max_tokens" not in body
    assert "stop" in body  # null is the caller's word


def test_a_guard_without_a_model_gives_none(calls: Talk) -> None:
    guard = ullage.Guard(window=9_000, runtime=Runtime())
    assert calls.ask(CHAT, ASK, guard=guard, model="mine")["model"] == "mine"
    with pytest.raises(TypeError, match="model"):
        calls.ask(CHAT, ASK, guard=guard)


def test_a_stream_is_refused_by_call_and_the_other_way_round(talk: Talk) -> None:
    wrong, twin = not talk.streams, talk.way.replace("call", "X").replace("stream", "call")
    twin = twin.replace("X", "stream")
    with pytest.raises(ullage.ConfigurationError, match=rf"stream={wrong}.*Guard\.{twin}\b"):
        talk.ask(CHAT, ASK, stream=wrong)
    assert not talk.server.requests
    assert talk.ask(CHAT, ASK, stream=not wrong)["stream"] is not wrong


@pytest.mark.parametrize(
    ("args", "options", "named"),
    [
        ((ASK,), {"input": ASK}, "input"),
        ((ASK,), {"max_tokens": 5, "max_completion_tokens": 6}, "max_completion_tokens"),
        ((ASK,), {"system": "a", "instructions": "b"}, "instructions"),
    ],
)
def test_a_field_that_is_given_twice_is_refused_by_name(
    calls: Talk, args: Any, options: Any, named: str
) -> None:
    with pytest.raises(ullage.ConfigurationError, match=f"twice.*{named}"):
        calls.ask(CHAT, *args, **options)


@pytest.mark.parametrize("of", [CHAT, RESPONSES, CLAUDE])
def test_a_real_server_answers_the_sdks_function(of: str, tiny_server: Server) -> None:
    root = tiny_server.base_url.removesuffix("/v1")
    made = {
        CLAUDE: lambda: anthropic.Anthropic(base_url=root, api_key="k", max_retries=0),
    }.get(of, lambda: openai.OpenAI(base_url=tiny_server.base_url, api_key="k", max_retries=0))()
    guard = ullage.Guard("tiny", base_url=tiny_server.base_url, runtime=Runtime())
    fn: Any = made
    for name in of.split("."):
        fn = getattr(fn, name)
    with made:
        answer = guard.call(fn, ASK, max_tokens=8)
        used = answer.usage
        assert getattr(used, "prompt_tokens", None) or used.input_tokens
        assert list(guard.stream(fn, ASK, max_tokens=8))


# --- plain functions ------------------------------------------------------------------------------


def test_a_plain_function_gets_what_it_takes_and_no_model() -> None:
    def ask(messages: list[Any], tone: str = "dry", max_tokens: int = 0) -> Any:
        return messages, tone, max_tokens

    guard = ullage.Guard("gpt-4o", window=9_000, runtime=Runtime())
    assert guard.call(ask, opening(), tone="wet", max_tokens=9) == (opening(), "wet", 9)


@pytest.mark.parametrize("takes", ["max_output_tokens", "max_completion_tokens", "num_predict"])
def test_a_plain_function_gets_the_most_to_answer_by_its_own_name(takes: str) -> None:
    shown: dict[str, Any] = {}
    exec(f"def ask(messages, {takes}): return {takes}", shown)
    guard = ullage.Guard("gpt-4o", window=9_000, runtime=Runtime())
    assert guard.call(shown["ask"], ASK, **{takes: 9}) == 9
    assert guard.call(shown["ask"], ASK, max_tokens=9) == 9


def chat(
    model: str = "",
    messages: Any = None,
    *,
    tools: Any = None,
    stream: bool = False,
    options: Any = None,
    keep_alive: Any = None,
) -> Any:
    """Take what Ollama's own client does."""
    return {"model": model, "messages": messages, "tools": tools, "options": options}


@pytest.mark.parametrize(
    "asked", [{"num_predict": 50}, {"max_tokens": 50}, {"options": {"num_predict": 50}}]
)
def test_ollamas_client_gets_the_most_to_answer_among_its_options(asked: dict[str, Any]) -> None:
    guard = ullage.Guard("llama3", window=9_000, runtime=Runtime())
    more = {**asked, "options": {"temperature": 0, **asked.get("options", {})}}
    sent = guard.call(chat, ASK, **more)
    assert sent["options"] == {"temperature": 0, "num_predict": 50}
    assert (sent["model"], sent["messages"]) == ("llama3", ASK)


def test_ollamas_word_for_no_bound_is_handed_on() -> None:
    guard = ullage.Guard("llama3", window=9_000, runtime=Runtime())
    assert guard.call(chat, ASK, options={"num_predict": -1})["options"] == {"num_predict": -1}


def open_to_all(**request: Any) -> Any:
    return request


def named_inside(**request: Any) -> Any:
    return open_to_all(model="mine", **request)


async def anamed_inside(**request: Any) -> Any:
    return open_to_all(model="mine", **request)


def fails_in_its_own_way(**request: Any) -> Any:
    raise TypeError(f"no {request['model']}")


@pytest.mark.parametrize(("fn", "model"), [(open_to_all, "gpt-4o"), (named_inside, "mine")])
def test_a_function_open_to_all_is_given_a_model_unless_it_names_its_own(
    fn: Callable[..., Any], model: str
) -> None:
    guard = ullage.Guard("gpt-4o", window=9_000, runtime=Runtime())
    assert guard.call(fn, ASK) == {"model": model, "messages": ASK}


def test_an_async_function_that_names_its_own_model_keeps_it() -> None:
    guard = ullage.Guard("gpt-4o", window=9_000, runtime=Runtime())
    assert asyncio.run(guard.acall(anamed_inside, ASK)) == {"model": "mine", "messages": ASK}


def test_a_fault_of_the_function_itself_comes_through() -> None:
    guard = ullage.Guard("gpt-4o", window=9_000, runtime=Runtime())
    with pytest.raises(TypeError, match="no gpt-4o"):
        guard.call(fails_in_its_own_way, ASK)


def test_what_the_messages_show_beats_what_the_function_shows() -> None:
    told = [*ASK, {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "look",
            "input": {}}]}, {"role": "user", "content": [{"type": "tool_result",
            "tool_use_id": "t", "content": "wine"}]}]  # fmt: skip
    guard = ullage.Guard("claude-next", window=9_000, runtime=Runtime())
    assert guard.call(open_to_all, told, system="Be brief.")["system"] == "Be brief."


def test_call_refuses_an_async_function_and_names_its_twin() -> None:
    client = openai.AsyncOpenAI(base_url="http://127.0.0.1:9/v1", api_key="none")
    guard = ullage.Guard("gpt-4o", window=8_000)
    with pytest.raises(ullage.ConfigurationError, match=r"use await guard\.acall\(\.\.\.\)"):
        _ = guard.call(client.chat.completions.create, ASK, max_tokens=5)


@pytest.mark.parametrize("of", ["openai", "anthropic"])
def test_a_helper_that_opens_its_stream_in_a_with_block_is_left_to_wrap(of: str) -> None:
    helpers: dict[str, Any] = {
        "openai": openai.OpenAI(api_key="none").chat.completions.stream,
        "anthropic": anthropic.Anthropic(api_key="none").messages.stream,
    }
    guard = ullage.Guard("gpt-4o", window=8_000)
    with pytest.raises(ullage.ConfigurationError, match=r"use that of ullage\.wrap\(client\)"):
        guard.stream(helpers[of], ASK, max_tokens=5)
