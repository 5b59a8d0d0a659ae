"""What a wrapped client hands to its SDK: the caller's own objects, in the form of each SDK."""

from __future__ import annotations

import asyncio
import types as python
from collections.abc import Mapping
from typing import Any

import boto3
import ollama
import openai
import pytest
from google import genai
from google.genai import types
from mistralai.client import Mistral
from mistralai.client.models import UserMessage

import ullage
from tests.api.speakers import (
    BEDROCK,
    GENAI,
    GENAI_AIO,
    MISTRAL,
    OLLAMA,
    OLLAMA_ASYNC,
    Speaker,
    speaking,
)  # fmt: skip
from tests.support import mistral
from ullage import events
from ullage.api.wrap.methods import find_forms
from ullage.api.wrap.sending import CallSender, bind
from ullage.sdk.errors import lost_connection

pytestmark = pytest.mark.filterwarnings(  # google-genai derives from a class that aiohttp closed
    "ignore:Inheritance class AiohttpClientSession:DeprecationWarning"
)

BIG = 10**6


def echo(**fields: Any) -> Mapping[str, Any]:
    return fields


def make_sender(client: Any, path: tuple[str, ...], name: str, given: dict[str, Any]) -> CallSender:
    known = [form.list_methods() for form in find_forms(client)]
    how = next(methods[path, name] for methods in known if (path, name) in methods)
    return CallSender(echo, how, given, client)


def bare(speaker: Speaker) -> Any:
    return speaker.make("http://127.0.0.1:9")


@pytest.mark.parametrize(
    ("client", "path", "name", "given", "view"),
    [
        (bare(GENAI), ("models",), "generate_content",
         {"contents": [types.UserContent(parts=[types.Part(text="a")])]}, "contents"),
        (bare(BEDROCK), (), "converse",
         {"messages": [{"role": "user", "content": [{"text": "a"}]}]}, "messages"),
        (bare(OLLAMA), (), "chat", {"messages": [ollama.Message(role="user", content="a")]},
         "messages"),
        (bare(MISTRAL), ("chat",), "complete", {"messages": [UserMessage(content="a")]},
         "messages"),
    ],
)  # fmt: skip
def test_the_very_objects_of_the_caller_leave(
    client: Any, path: tuple[str, ...], name: str, given: dict[str, Any], view: str
) -> None:
    sender = make_sender(client, path, name, given)
    sent = sender(**{view: [*sender.parts["messages"]]})
    assert sent[view] is given[view]


def test_loose_parts_are_measured_as_one_content_and_leave_as_they_came() -> None:
    file = types.File(uri="gs://bucket/a.pdf", mime_type="application/pdf")
    image = object()
    call = types.Part(function_call=types.FunctionCall(name="f", args={}))
    content = types.Content(role="model", parts=[types.Part(text="yes")])
    given = ["look", file, image, content, ["again", {"text": "and"}], call]
    sender = make_sender(bare(GENAI), ("models",), "generate_content", {"contents": given})
    read = sender.parts["messages"]
    assert [one["role"] if isinstance(one, dict) else one.role for one in read] == [
        "user", "model", "user", "model",
    ]  # fmt: skip
    assert len(read[0]["parts"]) == 3
    assert sender(contents=[*read])["contents"] is given
    kept = sender(contents=[{"role": "user", "parts": [{"text": "block"}]}, *read[1:]])["contents"]
    assert kept[1:] == [content, ["again", {"text": "and"}], call]
    assert sender(contents=[read[0], read[3]])["contents"] == ["look", file, image, call]


@pytest.mark.parametrize(
    "config",
    [
        {"system_instruction": "Be brief.", "max_output_tokens": 400},
        {"systemInstruction": ["Be", types.Part(text="brief.")], "maxOutputTokens": 400},
        types.GenerateContentConfig(
            system_instruction=types.Content(parts=[types.Part(text="Be brief.")]),
            max_output_tokens=400,
            tools=[len],
        ),
    ],
)
def test_a_config_is_changed_only_where_the_output_is_lowered(config: Any) -> None:
    given = {"contents": "hi", "config": config}
    sender = make_sender(bare(GENAI), ("models",), "generate_content", given)
    assert sender.parts["max_tokens"] == 400
    assert sender.parts["system"]
    view = {"contents": sender.parts["messages"], "systemInstruction": sender.parts["system"]}
    kept = sender(**view, generationConfig={"maxOutputTokens": 400})
    assert kept["config"] is config
    lowered = sender(**view, generationConfig={"maxOutputTokens": 9})["config"]
    names = ("max_output_tokens", "maxOutputTokens")
    held = lowered if isinstance(lowered, dict) else lowered.model_dump()
    assert 9 in [held.get(name) for name in names]
    assert type(lowered) is type(config)
    assert lowered is not config


def test_converse_is_measured_with_its_tools_and_its_limit() -> None:
    tools = [{"toolSpec": {"name": "find", "inputSchema": {"json": {}}}}]
    given = {
        "modelId": "m",
        "messages": [{"role": "user", "content": [{"text": "a"}]}],
        "toolConfig": {"tools": tools, "toolChoice": {"auto": {}}},
        "inferenceConfig": {"maxTokens": 100, "temperature": 0},
    }
    sender = make_sender(bare(BEDROCK), (), "converse", given)
    assert sender.parts["tools"] is tools
    sent = sender(messages=given["messages"], tools=tools, inferenceConfig={"maxTokens": 7})
    assert sent == {**given, "inferenceConfig": {"maxTokens": 7, "temperature": 0}}


@pytest.mark.parametrize("speaker", [GENAI, GENAI_AIO], ids=lambda s: s.name)
@pytest.mark.parametrize("stream", [False, True])
def test_a_chat_of_googles_client_goes_through_the_guard(speaker: Speaker, stream: bool) -> None:
    with speaking(speaker, window=500) as voice:
        own = voice.client.aio if speaker.awaits else voice.client
        chat = own.chats.create(model="gemini-x")
        assert isinstance(own.chats, (genai.chats.Chats, genai.chats.AsyncChats))

        async def asend(text: str) -> None:
            if stream:
                assert [made async for made in await chat.send_message_stream(text)]
            else:
                assert (await chat.send_message(text)).text

        for n in range(12):
            text = f"question {n}? " * 12
            if speaker.awaits:
                voice._runner.run(asend(text))
            elif stream:
                assert list(chat.send_message_stream(text))
            else:
                assert chat.send_message(text).text
        assert voice.refused == 0
        assert voice.of(events.Compacted)


def test_an_asked_num_ctx_is_the_window_and_an_own_one_wins() -> None:
    with speaking(OLLAMA) as voice:
        history = [{"role": "user", "content": "hi"}]
        for options in ({"num_ctx": 900, "num_predict": -1}, ollama.Options(num_ctx=900)):
            voice.client.chat("qwen3:14b", history, options=options)
        found = {e.assessment.window_tokens for e in voice.of(events.ContextPressure)}
        assert found == {900}
        assert voice.server.asked[-2]["options"] == {"num_ctx": 900, "num_predict": -1}
    with speaking(OLLAMA, window=700) as voice:
        voice.client.chat("qwen3:14b", history, options={"num_ctx": 900})
        assert voice.of(events.ContextPressure)[0].assessment.window_tokens == 700


def test_an_answer_is_lowered_in_the_options_of_the_request() -> None:
    with speaking(OLLAMA, window=500) as voice:
        history = [m for n in range(2) for m in OLLAMA.turn(n)] + [OLLAMA.last("now?")]
        voice.client.chat("qwen3:14b", history, options=ollama.Options(num_predict=480, seed=1))
        sent = voice.server.asked[-1]["options"]
        assert sent["seed"] == 1
        assert 0 < sent["num_predict"] < 480


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def test_functions_as_tools_are_measured_and_described_by_the_sdk() -> None:
    with speaking(OLLAMA_ASYNC, window=5_000) as voice:
        assert voice.ask([OLLAMA.last("2 + 3?")], stream=False, tools=[add, len])
        assert [t["function"]["name"] for t in voice.server.asked[-1]["tools"]] == ["add", "len"]
        bare = voice.reports()[0]
        voice.ask([OLLAMA.last("2 + 3?")], stream=False)
        assert voice.reports()[2] < bare


def test_a_server_that_cannot_be_reached_is_asked_once() -> None:
    with ollama.Client(host="http://127.0.0.1:9") as own:
        client = ullage.wrap(own, runtime=ullage.Runtime(), window=500)
        with pytest.raises(ConnectionError, match="Failed to connect") as failed:
            client.chat("m", [OLLAMA.last("hi")])
    assert not lost_connection(failed.value)
    assert lost_connection(ConnectionError("reset by peer"))


def test_a_call_without_a_history_is_the_sdks_own() -> None:
    with speaking(OLLAMA, window=500) as voice:
        with pytest.raises(TypeError):
            voice.client.chat("m", [OLLAMA.last("hi")], None, None)
        with pytest.raises(TypeError):
            voice.client.chat("m", messages=[OLLAMA.last("hi")], model="m")
    assert bind(echo, (1,), {}) is None
    assert bind(dict.fromkeys, (), {"a": 1}) == {"a": 1}
    with speaking(BEDROCK, window=500) as voice, pytest.raises(TypeError, match="keyword"):
        voice.client.converse("m")


def test_a_call_whose_arguments_have_no_names_is_told_of_once() -> None:
    heard: list[Any] = []
    with ollama.Client(host="http://127.0.0.1:9") as own:
        client = ullage.wrap(own, runtime=ullage.Runtime(), window=500, on_event=heard.append)
        for _ in range(2):
            with pytest.raises(TypeError):
                client.chat("m", [OLLAMA.last("hi")], None, None)  # one more than it has names for
    told = [event.text for event in heard if isinstance(event, events.Notice)]
    assert len(told) == 1
    assert "give them as keywords" in told[0]


def test_the_stream_of_converse_keeps_what_stands_beside_it() -> None:
    with speaking(BEDROCK, window=500) as voice:
        made = voice.client.converse_stream(modelId="m", messages=[BEDROCK.last("hi")])
        assert made["ResponseMetadata"]["HTTPStatusCode"] == 200
        with made["stream"] as stream:
            assert next(stream)
            assert callable(stream.get_initial_response)


def test_mistrals_stream_is_its_own_and_a_with_block_closes() -> None:
    with mistral.running() as server:
        with ullage.wrap(Mistral(api_key="k", server_url=server.url), window=500) as client:
            assert isinstance(client, Mistral)
            with client.chat.stream(model="m", messages=[UserMessage(content="hi")]) as stream:
                assert type(stream).__module__ == "mistralai.client.utils.eventstreaming"
                assert list(stream)
            assert client.models.list == client.models.list

        async def ask() -> Any:
            bare = Mistral(api_key=lambda: "k", server_url=f"{server.url}/v1")
            async with ullage.wrap(bare, window=500) as client:
                return client._ullage_shared.guards

        ((key, _),) = asyncio.run(ask()).items()
        assert key[1:3] == (f"{server.url}/v1", "k")
        assert server.keys == ["Bearer k"]


# --- LiteLLM, by its shape; the package itself: tests/integrations/test_litellm.py --------------


def shape_litellm(url: str) -> Any:
    """Return a module of LiteLLM's shape, whose calls go to an OpenAI client."""

    def completion(model: str, messages: list[Any], **fields: Any) -> Any:
        with openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0) as client:
            fields.pop("api_base", None)
            return client.chat.completions.create(model=model, messages=messages, **fields)

    async def acompletion(model: str, messages: list[Any], **fields: Any) -> Any:
        return await asyncio.to_thread(completion, model, messages, **fields)

    module = python.ModuleType("litellm")
    vars(module).update(completion=completion, acompletion=acompletion, drop_params=False)
    return module


@pytest.mark.parametrize("awaits", [False, True])
def test_the_functions_of_litellm_are_guarded(awaits: bool) -> None:
    with mistral.running() as server:
        told: list[Any] = []
        module = shape_litellm(server.url)
        client = ullage.wrap(module, window=500, on_event=told.append, runtime=ullage.Runtime())
        assert isinstance(client, python.ModuleType)
        history: list[Any] = []
        for n in range(20):
            history += [{"role": "user", "content": f"question {n}? " * 9}]
            if awaits:
                made = asyncio.run(client.acompletion("openai/m", history))
            else:
                made = client.completion("openai/m", history)
            history += [made.choices[0].message]
        assert server.refused == []
        assert any(isinstance(event, events.Compacted) for event in told)
        setattr(client, "drop_params", True)  # noqa: B010 - mypy knows that there is none
        assert vars(module)["drop_params"]


def test_other_clients_of_aws_are_none_of_ours() -> None:
    client = boto3.client("s3", region_name="us-east-1")
    with pytest.raises(ullage.ConfigurationError, match=r"bedrock-runtime.*not botocore\.client"):
        ullage.wrap(client)
