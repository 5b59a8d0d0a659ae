"""Wrapped clients: the official SDKs, blocking and awaiting, in three dialects."""

from __future__ import annotations

import asyncio
import copy
import inspect
import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import anthropic
import openai
import pytest
from pydantic import BaseModel

import ullage
from tests.support.faults import Answer, FaultServer, dropped, of_json, sse
from tests.voyage import WINDOW, immovable, of
from tests.wrapped import DIALECTS, REFUSED, Talk, answered, history_of, step, tools_of, user
from ullage import events
from ullage.api.wrap import wrap
from ullage.api.wrap.shared import MOST_GUARDS
from ullage.config.settings import Settings
from ullage.core.guard.events import Event
from ullage.embedded import Server
from ullage.guard.driver import Pause
from ullage.runtime import Runtime


@pytest.fixture(params=DIALECTS)
def dialect(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=[False, True], ids=["blocks", "awaits"])
def awaits(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def talk(dialect: str, awaits: bool, tiny_server: Server) -> Iterator[Talk]:
    with Talk(tiny_server.base_url, dialect, awaits) as talk:
        yield talk


# --- on a real server -----------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_conversation_over_several_windows_never_overflows(talk: Talk, stream: bool) -> None:
    asked: dict[str, Any] = {"tools": tools_of(talk.dialect), "stream": stream}
    if stream and talk.dialect == "chat":
        asked["stream_options"] = {"include_usage": True}
    history: list[Any] = [user("The codeword is marlin. Keep the log for me.")]
    for n in range(26):
        history += step(talk.dialect, n)
        if n % 3 == 0 or n > 22:
            before = json.dumps(history)
            answer = talk.done(talk.part().create(**talk.fields(history, **asked)))
            assert json.dumps(history) == before
            if stream:
                assert isinstance(answer, (openai.Stream, openai.AsyncStream, anthropic.Stream,
                                           anthropic.AsyncStream))  # fmt: skip
                assert talk.read(answer)
            else:
                assert type(answer).__module__.startswith(("openai.types", "anthropic.types"))
        history += answered(talk.dialect, n)
    assert of(events.Compacted, talk.told)
    assert not of(events.RecoveryExhausted, talk.told)
    assert talk.notices() == []
    assert len(talk.sizes()) == 2 * 11
    assert all(0 < tokens < WINDOW for tokens in talk.sizes())
    with pytest.raises(REFUSED):
        talk.done(talk.part(talk.bare).create(**talk.fields(history, **asked)))


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_real_overflow_is_recovered_from(
    dialect: str, awaits: bool, stream: bool, tiny_server: Server
) -> None:
    history = history_of(dialect, 26)
    with Talk(tiny_server.base_url, dialect, awaits, window=10**6) as talk:
        answer = talk.done(talk.part().create(**talk.fields(history, stream=stream)))
        if stream:
            talk.read(answer)
        (made,) = of(events.Compacted, talk.told)
        assert made.checkpoint.trigger == "overflow_recovery"


@pytest.mark.parametrize("dialect", ["chat", "messages"])
def test_a_helpers_stream_is_the_sdks_own_and_recovers(
    dialect: str, awaits: bool, tiny_server: Server
) -> None:
    with Talk(tiny_server.base_url, dialect, awaits, window=10**6) as talk:
        asked = {"stream_options": {"include_usage": True}} if dialect == "chat" else {}
        manager = talk.part().stream(**talk.fields(history_of(dialect, 26), **asked))
        stream, seen = talk.within(manager)
        assert type(stream).__module__.startswith(("openai.lib", "anthropic.lib"))
        if dialect == "chat":
            assert stream.current_completion_snapshot.model
        else:
            assert talk.done(stream.get_final_message()).model
        assert len(seen) > 3
        assert len(of(events.Compacted, talk.told)) == 1
        assert len(talk.sizes()) == 3  # prepared, prepared again, reported


def test_a_raw_response_is_guarded_and_teaches_nothing(talk: Talk) -> None:
    part = talk.part().with_raw_response
    made = talk.done(part.create(**talk.fields(history_of(talk.dialect, 26))))
    assert made.status_code == 200
    assert of(events.Compacted, talk.told)
    other = talk.part(talk.client.with_raw_response)
    again = talk.done(other.create(**talk.fields(history_of(talk.dialect, 26))))
    assert again.status_code == 200
    assert len(talk.sizes()) == 2  # prepared, twice


def test_a_streaming_response_is_guarded(dialect: str, awaits: bool, tiny_server: Server) -> None:
    with Talk(tiny_server.base_url, dialect, awaits, window=10**6) as talk:
        part = talk.part().with_streaming_response
        manager = part.create(**talk.fields(history_of(dialect, 26)))
        made, _ = talk.within(manager, watched=False)
        assert made.status_code == 200
        assert len(of(events.Compacted, talk.told)) == 1


class Entry(BaseModel):
    """What is to be parsed."""

    item: int


def test_parsed_answers_are_guarded(dialect: str, awaits: bool) -> None:
    text = '{"item": 7}'
    usage = {"prompt_tokens": 77, "completion_tokens": 5, "total_tokens": 82}
    spent = {"input_tokens": 77, "output_tokens": 5}
    message = {"type": "message", "role": "assistant", "status": "completed", "id": "m"}
    output = [{**message, "content": [{"type": "output_text", "text": text, "annotations": []}]}]
    answers = {
        "chat": {"id": "c", "object": "chat.completion", "created": 1, "model": "tiny",
                 "usage": usage,
                 "choices": [{"index": 0, "finish_reason": "stop",
                              "message": {"role": "assistant", "content": text}}]},
        "responses": {"id": "r", "object": "response", "created_at": 1, "model": "tiny",
                      "status": "completed", "output": output, "parallel_tool_calls": True,
                      "tool_choice": "auto", "tools": [],
                      "usage": {**spent, "total_tokens": 82}},
        "messages": {"id": "a", "type": "message", "role": "assistant", "model": "tiny",
                     "stop_reason": "end_turn", "content": [{"type": "text", "text": text}],
                     "usage": spent},
    }  # fmt: skip
    with (
        FaultServer({"POST *": of_json(answers[dialect])}) as server,
        Talk(server.base_url, dialect, awaits, window=4096) as talk,
    ):
        key = {"chat": "response_format", "responses": "text_format"}.get(dialect, "output_format")
        history = [user("Which item?")]
        made = talk.done(talk.part().parse(**talk.fields(history, **{key: Entry})))
        parsed = {
            "chat": lambda: made.choices[0].message.parsed,
            "responses": lambda: made.output_parsed,
            "messages": lambda: made.parsed_output,
        }
        assert parsed[dialect]() == Entry(item=7)
        assert talk.sizes()[1:] == [77]


def test_what_cannot_fit_is_refused_before_the_send(tiny_server: Server) -> None:
    with Talk(tiny_server.base_url, "chat", False) as talk:
        with pytest.raises(ullage.ContextTooLargeError):
            talk.part().create(model="tiny", messages=immovable())
        with pytest.raises(ullage.ContextTooLargeError):
            talk.part().create(model="tiny", messages=immovable(), stream=True)
    with Talk(tiny_server.base_url, "messages", True) as talk:
        asked = {"messages": [user("hi")], "system": immovable()[0]["content"]}
        with pytest.raises(ullage.ContextTooLargeError):
            talk.done(talk.part().create(model="tiny", max_tokens=5, **asked))


# --- what is sent ---------------------------------------------------------------------------------

OVERFLOW = of_json(
    {"error": {"message": "Your input exceeds the context window of this model. Please adjust "
               "your input and try again.", "code": "context_length_exceeded"}}, 400
)  # fmt: skip


def bodies(server: FaultServer) -> list[Any]:
    return [json.loads(asked.body) for asked in server.requests if asked.method == "POST"]


def keys(server: FaultServer) -> list[str | None]:
    posts = [asked for asked in server.requests if asked.method == "POST"]
    return [asked.headers.get("idempotency-key") for asked in posts]


DONE = of_json({"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": []})


def test_a_call_that_needs_nothing_is_sent_as_it_came(dialect: str, awaits: bool) -> None:
    omit = anthropic.omit if dialect == "messages" else openai.omit
    more = {"tools": omit, "extra_body": {"min_p": 0.5}, "extra_headers": {"x-mine": "1"}}
    with (
        FaultServer({"POST *": DONE}) as server,
        Talk(server.base_url, dialect, awaits, window=4096) as talk,
    ):
        for client in (talk.bare, talk.client):
            talk.done(talk.part(client).create(**talk.fields([user("hi")], **more)))
            talk.done(talk.part(client).create(**talk.fields([user("hi")], tools=[])))
        talk.done(talk.part().create(**talk.fields(iter([user("hi")]), tools=iter([]))))
        first, second, third, fourth, fifth = bodies(server)
        assert (third, fourth, fifth) == (first, second, second)


@pytest.mark.parametrize("said", ["hello", [user("hello")], (user("hello"),)])
def test_an_input_of_any_form_is_sent_in_that_form(awaits: bool, said: Any) -> None:
    with (
        FaultServer({"POST *": DONE}) as server,
        Talk(server.base_url, "responses", awaits, window=4096) as talk,
    ):
        talk.done(talk.client.responses.create(model="m", input=said, instructions="be brief"))
        (body,) = bodies(server)
        assert body == {"model": "m", "input": json.loads(json.dumps(said)),
                        "instructions": "be brief"}  # fmt: skip
        assert of(events.ContextPressure, talk.told)


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_a_lowered_output_goes_by_the_name_the_caller_used(awaits: bool, name: str) -> None:
    with (
        FaultServer({"POST *": DONE}) as server,
        Talk(server.base_url, "chat", awaits, window=4096) as talk,
    ):
        asked = {"model": "m", "messages": [user("hi")], name: 9000}
        talk.done(talk.client.chat.completions.create(**asked))
        (body,) = bodies(server)
        assert 3000 < body[name] < 4096
        assert set(body) == {"model", "messages", name}


def test_a_budget_of_thinking_is_lowered_with_the_answer_that_holds_it(awaits: bool) -> None:
    with (
        FaultServer({"POST *": DONE}) as server,
        Talk(server.base_url, "chat", awaits, window=4096) as talk,
    ):
        asked = {"model": "m", "messages": [user("hi")], "max_tokens": 9000}
        more = {"reasoning": {"max_tokens": 8_000}}
        talk.done(talk.client.chat.completions.create(**asked, extra_body=more))
        (body,) = bodies(server)
    assert body["reasoning"] == {"max_tokens": 2_000}
    assert 3000 < body["max_tokens"] < 4096
    assert more["reasoning"]["max_tokens"] == 8_000


@pytest.mark.parametrize(
    "field", [{"previous_response_id": "r"}, {"conversation": "c"}, {"prompt": {"id": "p"}}]
)
def test_a_history_that_the_server_keeps_is_forwarded_with_one_notice(
    awaits: bool, field: dict[str, Any]
) -> None:
    with (
        FaultServer({"POST *": (DONE, OVERFLOW)}) as server,
        Talk(server.base_url, "responses", awaits, window=4096) as talk,
    ):
        asked = {"model": "m", "input": "x " * 9000, **field}
        talk.done(talk.client.responses.create(**asked))
        with pytest.raises(openai.BadRequestError):
            talk.done(talk.client.responses.create(**asked))
        assert bodies(server) == [asked, asked]
        (notice,) = talk.notices()
        assert "kept by the server" in notice


@pytest.mark.parametrize("how", ["extra_headers", "default_headers"])
def test_a_smaller_retry_has_a_new_idempotency_key(awaits: bool, how: str) -> None:
    with (
        FaultServer({"POST *": (OVERFLOW, DONE)}) as server,
        Talk(server.base_url, "chat", awaits) as talk,
    ):
        client, asked = talk.client, talk.fields(history_of("chat", 20))
        if how == "extra_headers":
            asked["extra_headers"] = {"idempotency-key": "mine", "x-other": "kept"}
        else:
            client = client.with_options(default_headers={"Idempotency-Key": "mine"})
        talk.done(talk.part(client).create(**asked))
        first, second = keys(server)
        assert first == "mine"
        assert second not in (None, "mine")
        assert len(bodies(server)[1]["messages"]) < len(bodies(server)[0]["messages"])


def test_the_same_request_again_keeps_its_idempotency_key_and_none_is_made_up(
    awaits: bool,
) -> None:
    pause = Pause(longest_s=0)
    with (
        FaultServer({"POST *": (dropped(), DONE, OVERFLOW, DONE)}) as server,
        Talk(server.base_url, "chat", awaits, pause=pause) as talk,
    ):
        asked = talk.fields([user("hi")], extra_headers={"Idempotency-Key": "mine"})
        talk.done(talk.part().create(**asked))
        talk.done(talk.part().create(**talk.fields(history_of("chat", 20))))
        assert keys(server) == ["mine", "mine", None, None]


# --- the client -----------------------------------------------------------------------------------


def test_everything_else_is_the_clients_own(tiny_server: Server) -> None:
    with Talk(tiny_server.base_url, "chat", False) as talk:
        client = talk.client
        assert isinstance(client, openai.OpenAI)
        assert [m.id for m in client.models.list()]
        assert client.api_key == "k"
        assert client.chat.completions.list == talk.bare.chat.completions.list
        assert client.responses.input_items is talk.bare.responses.input_items
        assert "completions" in dir(client.chat)
        assert copy.copy(client).chat.completions.create.__name__ == "create"
        assert "seed" in inspect.signature(client.chat.completions.create).parameters
        assert repr(talk.bare) in repr(client)
        client.max_retries = 3
        assert talk.bare.max_retries == 3
        with pytest.raises(AttributeError, match="nothing"):
            getattr(client.chat, "nothing")  # noqa: B009 - mypy knows that there is none


@pytest.mark.parametrize("copying", ["with_options", "copy"])
def test_a_copy_of_a_wrapped_client_is_wrapped_and_of_its_own_server(
    awaits: bool, copying: str, tiny_server: Server
) -> None:
    with Talk("http://127.0.0.1:9/v1", "chat", awaits) as talk:
        client = getattr(talk.client, copying)(base_url=tiny_server.base_url)
        made = talk.done(talk.part(client).create(**talk.fields(history_of("chat", 26))))
        assert made.usage.prompt_tokens < WINDOW
        assert of(events.Compacted, talk.told)


def test_a_with_block_gives_the_wrapped_client(tiny_server: Server) -> None:
    asked: Any = {"model": "tiny", "messages": history_of("chat", 26), "max_tokens": 4}
    with wrap(openai.OpenAI(base_url=tiny_server.base_url, api_key="k")) as client:
        assert client.chat.completions.create(**asked).usage.prompt_tokens < WINDOW
    assert client.is_closed()

    async def awaited() -> Any:
        bare = openai.AsyncOpenAI(base_url=tiny_server.base_url, api_key="k")
        async with wrap(bare, runtime=Runtime()) as client:
            return await client.chat.completions.create(**asked)

    assert asyncio.run(awaited()).usage.prompt_tokens < WINDOW


def test_a_derived_class_is_wrapped_and_a_model_may_be_named_for_its_deployment() -> None:
    class Mine(openai.OpenAI):
        pass

    with FaultServer({"POST *": DONE}) as server:
        mine = Mine(base_url=server.base_url, api_key="k")
        with closing(mine):
            told: list[Event] = []
            served = Runtime(settings=Settings(base_models={"gpt-4": "openai/gpt-4"}))
            client: Any = wrap(mine, model="gpt-4", runtime=served, on_event=told.append)
            client.chat.completions.create(model="my-deployment", messages=[user("hi")])
            assert of(events.ContextPressure, told)[0].assessment.window_tokens == 8192
            assert bodies(server)[0]["model"] == "my-deployment"


def test_the_guards_of_many_models_are_bounded() -> None:
    with Talk("http://127.0.0.1:9/v1", "chat", False) as talk:
        shared = talk.client._ullage_shared
        how = shared.methods[("chat", "completions"), "create"]
        made = [shared.guard(talk.bare, how, {"model": f"m{n}"}) for n in range(MOST_GUARDS + 8)]
        assert len(shared.guards) == MOST_GUARDS
        assert shared.guard(talk.bare, how, {"model": f"m{MOST_GUARDS}"}) is made[MOST_GUARDS]
        assert shared.guard(talk.bare, how, {"model": "m0"}) is not made[0]


class Other:
    """A client that is none of theirs."""


@pytest.mark.parametrize("client", [None, Other(), openai, openai.OpenAI])
def test_another_client_is_refused_by_naming_what_is_taken(client: Any) -> None:
    with pytest.raises(ullage.ConfigurationError, match=r"AsyncAnthropic.*Guard\.call"):
        wrap(client)


def test_a_senseless_wrapping_is_refused() -> None:
    with closing(anthropic.Anthropic(api_key="k")) as bare:
        with pytest.raises(ullage.ConfigurationError, match="already"):
            wrap(wrap(bare))
        with pytest.raises(ullage.ConfigurationError, match="leave it out"):
            wrap(bare, dialect="anthropic")
        with pytest.raises(ullage.ConfigurationError):
            wrap(bare, window=0)
        with pytest.raises(TypeError):
            wrap(bare, colour="blue")


def test_a_credential_is_taken_where_there_is_one() -> None:
    bare = anthropic.Anthropic(auth_token="t", api_key=None, base_url="http://127.0.0.1:9")
    with closing(bare):
        client: Any = wrap(bare)
        (key,) = client._ullage_shared.guards
        assert key[1:3] == ("http://127.0.0.1:9", bare.api_key or "t")


def test_a_call_without_a_conversation_is_the_sdks_to_refuse(talk: Talk) -> None:
    with pytest.raises((TypeError, openai.BadRequestError)):
        talk.done(talk.part().create(model="tiny"))
    assert talk.told == []


RESPONSE = {"id": "r", "object": "response", "created_at": 1, "model": "m", "output": [],
            "parallel_tool_calls": True, "tool_choice": "auto", "tools": []}  # fmt: skip
FULL = {"code": "context_length_exceeded",
        "message": "Your input exceeds the context window of this model."}  # fmt: skip
USED = {"input_tokens": 900, "output_tokens": 3, "total_tokens": 903,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 0}}  # fmt: skip
PART = {"type": "output_text", "text": "", "annotations": []}
SPOKEN = {"id": "i", "type": "message", "role": "assistant", "status": "in_progress", "content": []}
SAID = {**SPOKEN, "status": "completed", "content": [{**PART, "text": "hi"}]}
AT = {"item_id": "i", "output_index": 0, "content_index": 0}


def responses_events(*told: dict[str, Any]) -> Any:
    return sse(*({**event, "sequence_number": n} for n, event in enumerate(told)))


OPENING: list[dict[str, Any]] = [
    {"type": "response.created", "response": {**RESPONSE, "status": "in_progress"}},
    {"type": "response.in_progress", "response": {**RESPONSE, "status": "in_progress"}},
]
REFUSAL = responses_events(
    *OPENING,
    {"type": "response.failed", "response": {**RESPONSE, "status": "failed", "error": FULL}},
)
ANSWER = responses_events(
    *OPENING,
    {"type": "response.output_item.added", "output_index": 0, "item": SPOKEN},
    {"type": "response.content_part.added", "part": PART, **AT},
    {"type": "response.output_text.delta", "delta": "hi", "logprobs": [], **AT},
    {"type": "response.output_item.done", "output_index": 0, "item": SAID},
    {
        "type": "response.completed",
        "response": {**RESPONSE, "status": "completed", "output": [SAID], "usage": USED},
    },
)


@pytest.mark.parametrize("helper", [False, True], ids=["create", "stream"])
def test_an_overflow_inside_a_stream_is_recovered_from(awaits: bool, helper: bool) -> None:
    with (
        FaultServer({"POST *": (REFUSAL, ANSWER)}) as server,
        Talk(server.base_url, "responses", awaits) as talk,
    ):
        asked = talk.fields(history_of("responses", 20))
        if helper:
            _, seen = talk.within(talk.client.responses.stream(**asked))
        else:
            seen = talk.read(talk.done(talk.client.responses.create(**asked, stream=True)))
        assert [event.type for event in seen][:2] == ["response.created", "response.in_progress"]
        assert "response.failed" not in [event.type for event in seen]
        assert seen[-1].type == "response.completed"
        assert len(of(events.Compacted, talk.told)) == 1
        assert talk.sizes()[2:] == [900]
        assert talk.notices() == []
        first, second = bodies(server)
        assert len(second["input"]) < len(first["input"])


def test_the_beta_endpoints_are_guarded_too(awaits: bool) -> None:
    with (
        FaultServer({"POST *": (OVERFLOW, DONE)}) as server,
        Talk(server.base_url, "messages", awaits) as talk,
    ):
        asked = talk.fields(history_of("messages", 20))
        talk.done(talk.client.beta.messages.create(**asked))
        first, second = bodies(server)
        assert len(second["messages"]) < len(first["messages"])


def test_a_resumed_response_is_the_sdks_own(awaits: bool) -> None:
    with Talk("http://127.0.0.1:9/v1", "responses", awaits) as talk:
        manager = talk.client.responses.stream(response_id="r")
        assert type(manager).__module__.startswith("openai.lib")
        if awaits:
            manager._AsyncResponseStreamManager__api_request.close()


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_recovery_that_did_not_help_is_taken_back(
    dialect: str, awaits: bool, stream: bool
) -> None:
    history = history_of(dialect, 20)
    with (
        FaultServer({"POST *": Answer(400, (b"",))}) as server,
        Talk(server.base_url, dialect, awaits, window=12_000) as talk,
    ):
        for _ in range(2):
            with pytest.raises((openai.BadRequestError, anthropic.BadRequestError)):
                talk.done(talk.part().create(**talk.fields(history, stream=stream)))
        said = "input" if dialect == "responses" else "messages"
        sizes = [len(body[said]) for body in bodies(server)]
    assert sizes[1] < sizes[0]
    assert sizes[2] == sizes[0] == len(history)
