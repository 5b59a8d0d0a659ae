"""The same bytes through the official SDKs: they and we must read the same answer."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, Final

import anthropic
import openai
import pytest

from tests.providers.serving import Caller, events
from tests.support.faults import Answer, FaultServer
from ullage.core.dialects.reply import Reply

STREAMS: Final = Path(__file__).parent / "streams"
"""Answers that llama.cpp b11669 and b11549 streamed, as their bytes."""

ASKED: Final[list[Any]] = [{"role": "user", "content": "hi"}]


def recorded(name: str) -> bytes:
    return (STREAMS / f"{name}.sse").read_bytes()


def chat(*choices: dict[str, Any], usage: dict[str, Any] | None = None) -> bytes:
    """Return a stream of Chat Completions with everything that OpenAI's has."""
    common = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    chunks: list[Any] = [{**common, "choices": [{"index": 0, **choice}]} for choice in choices]
    if usage is not None:
        chunks.append({**common, "choices": [], "usage": usage})
    return events(*chunks, "[DONE]")


def delta(finish: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"delta": fields, "finish_reason": finish}


def fragment(index: int, arguments: str, **more: Any) -> dict[str, Any]:
    name = more.pop("name", None)
    function = {"arguments": arguments, **({"name": name} if name else {})}
    return {"index": index, "function": function, **more}


PARALLEL = chat(
    delta(role="assistant", content="Let me "),
    delta(content="look."),
    delta(tool_calls=[fragment(0, "", id="call_a", type="function", name="look")]),
    delta(tool_calls=[fragment(0, '{"q": "a')]),
    delta(tool_calls=[fragment(1, "", id="call_b", type="function", name="list")]),
    delta(tool_calls=[fragment(0, '\\n\u2028"}'), fragment(1, "{}")]),
    delta("tool_calls"),
    usage={
        "prompt_tokens": 30,
        "completion_tokens": 12,
        "total_tokens": 42,
        "prompt_tokens_details": {"cached_tokens": 10},
        "completion_tokens_details": {"reasoning_tokens": 4},
    },
)
WHOLE = recorded("chat").replace(b'"length"', b'"stop"')
"""The SDK's helper raises for an answer that was cut short."""

REFUSAL = chat(delta(role="assistant", refusal="I can't "), delta(refusal="do it"), delta("stop"))


@pytest.mark.parametrize(
    "stream",
    [WHOLE, recorded("chat_call"), PARALLEL, REFUSAL],
    ids=["recorded", "recorded call", "parallel calls", "refusal"],
)
def test_chat_completions_read_as_the_openai_sdk_reads_them(stream: bytes) -> None:
    with served(stream) as server, openai.OpenAI(base_url=server.base_url, api_key="k") as client:
        ours = answer(server, "openai_chat", {"messages": ASKED})
        with client.chat.completions.stream(model="m", messages=ASKED) as theirs:
            whole = theirs.get_final_completion()
    (choice,) = whole.choices
    assert ours.text == (choice.message.content or choice.message.refusal or "")
    assert told(ours) == [
        (call.id, call.function.name, call.function.arguments)
        for call in choice.message.tool_calls or ()
    ]
    assert ours.report["choices"] == [{"finish_reason": choice.finish_reason}]
    if whole.usage is not None:
        assert ours.usage is not None
        assert ours.usage.prompt_tokens == whole.usage.prompt_tokens
        assert ours.usage.output + ours.usage.reasoning == whole.usage.completion_tokens


def response(*output: Any, **more: Any) -> dict[str, Any]:
    return {
        "id": "resp_1", "object": "response", "created_at": 1, "model": "m", "output": [*output],
        "parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "status": "in_progress",
        **more,
    }  # fmt: skip


def responses() -> bytes:
    """Return a stream of the Responses API with everything that OpenAI's has."""
    part = {"type": "output_text", "text": "Let me look.", "annotations": []}
    said = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed"}
    thought = {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "gAAAA"}
    call = {
        "id": "fc_1", "type": "function_call", "call_id": "call_1", "name": "look",
        "arguments": '{"q": "ż"}', "status": "completed",
    }  # fmt: skip
    usage = {
        "input_tokens": 30,
        "input_tokens_details": {"cached_tokens": 10, "cache_write_tokens": 0},
        "output_tokens": 12,
        "output_tokens_details": {"reasoning_tokens": 4},
        "total_tokens": 42,
    }
    begun = {**call, "arguments": ""}
    items = [thought, {**said, "content": [part]}, call]
    at = {"output_index": 1, "item_id": "msg_1", "content_index": 0}
    made: list[dict[str, Any]] = [
        {"type": "response.created", "response": response()},
        {"type": "response.output_item.added", "output_index": 0, "item": thought},
        {"type": "response.output_item.done", "output_index": 0, "item": thought},
        {"type": "response.output_item.added", "output_index": 1, "item": {**said, "content": []}},
        {"type": "response.content_part.added", **at, "part": {**part, "text": ""}},
        {"type": "response.output_text.delta", **at, "delta": "Let me ", "logprobs": []},
        {"type": "response.output_text.delta", **at, "delta": "look.", "logprobs": []},
        {"type": "response.output_text.done", **at, "text": "Let me look.", "logprobs": []},
        {"type": "response.content_part.done", **at, "part": part},
        {"type": "response.output_item.done", "output_index": 1, "item": items[1]},
        {"type": "response.output_item.added", "output_index": 2, "item": begun},
    ]
    grows = "response.function_call_arguments.delta"
    made += [
        {"type": grows, "output_index": 2, "item_id": "fc_1", "delta": piece}
        for piece in ('{"q":', ' "ż"}')
    ]
    made += [
        {
            "type": "response.function_call_arguments.done", "output_index": 2, "item_id": "fc_1",
            "name": "look", "arguments": call["arguments"],
        },
        {"type": "response.output_item.done", "output_index": 2, "item": call},
        {
            "type": "response.completed",
            "response": response(*items, usage=usage, status="completed"),
        },
    ]  # fmt: skip
    return events(*({**event, "sequence_number": n} for n, event in enumerate(made)))


def test_responses_read_as_the_openai_sdk_reads_them() -> None:
    with (
        served(responses()) as server,
        openai.OpenAI(base_url=server.base_url, api_key="k") as client,
    ):
        ours = answer(server, "openai_responses", {"input": ASKED})
        with client.responses.stream(model="m", input=ASKED) as theirs:
            whole = theirs.get_final_response()
    calls = [item for item in whole.output if item.type == "function_call"]
    thoughts = [item for item in whole.output if item.type == "reasoning"]
    assert ours.text == whole.output_text == "Let me look."
    assert told(ours) == [(call.call_id, call.name, call.arguments) for call in calls]
    assert list(ours.thoughts) == [item.model_dump(exclude_unset=True) for item in thoughts]
    assert ours.usage is not None
    assert whole.usage is not None
    assert ours.usage.prompt_tokens == whole.usage.input_tokens
    assert ours.usage.reasoning == whole.usage.output_tokens_details.reasoning_tokens


def messages() -> bytes:
    """Return a stream of the Messages API with thinking, text and two calls."""
    start: dict[str, Any] = {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [],
        "stop_reason": None, "stop_sequence": None,
        "usage": {"input_tokens": 20, "cache_read_input_tokens": 9, "output_tokens": 1},
    }  # fmt: skip
    blocks: list[tuple[dict[str, Any], list[dict[str, Any]]]] = [
        (
            {"type": "thinking", "thinking": "", "signature": ""},
            [
                {"type": "thinking_delta", "thinking": "Hm"},
                {"type": "thinking_delta", "thinking": "m."},
                {"type": "signature_delta", "signature": "EqQB"},
            ],
        ),
        ({"type": "redacted_thinking", "data": "Emw"}, []),
        (
            {"type": "text", "text": ""},
            [{"type": "text_delta", "text": "Let "}, {"type": "text_delta", "text": "me."}],
        ),
        (
            {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}},
            [
                {"type": "input_json_delta", "partial_json": ""},
                {"type": "input_json_delta", "partial_json": '{"q": "ż'},
                {"type": "input_json_delta", "partial_json": '"}'},
            ],
        ),
        ({"type": "tool_use", "id": "toolu_2", "name": "list", "input": {}}, []),
    ]
    made: list[dict[str, Any]] = [{"type": "message_start", "message": start}, {"type": "ping"}]
    for index, (block, deltas) in enumerate(blocks):
        made.append({"type": "content_block_start", "index": index, "content_block": block})
        made += [{"type": "content_block_delta", "index": index, "delta": d} for d in deltas]
        made.append({"type": "content_block_stop", "index": index})
    made.append({
        "type": "message_delta", "delta": {"stop_reason": "tool_use", "stop_sequence": None},
        "usage": {"output_tokens": 31},
    })  # fmt: skip
    return events(*made, {"type": "message_stop"})


@pytest.mark.parametrize("stream", [recorded("messages"), messages()], ids=["recorded", "calls"])
def test_messages_read_as_the_anthropic_sdk_reads_them(stream: bytes) -> None:
    with (
        served(stream) as server,
        anthropic.Anthropic(base_url=server.root_url, api_key="k") as client,
    ):
        ours = answer(server, "anthropic", {"messages": ASKED, "max_tokens": 99})
        with client.messages.stream(model="m", max_tokens=99, messages=ASKED) as theirs:
            whole = theirs.get_final_message()
    content = [block.model_dump(exclude_none=True) for block in whole.content]
    kinds = ("thinking", "redacted_thinking")
    assert ours.text == "".join(block.text for block in whole.content if block.type == "text")
    assert [(i, n, json.loads(a)) for i, n, a in told(ours)] == [
        (b["id"], b["name"], b["input"]) for b in content if b["type"] == "tool_use"
    ]
    assert list(ours.thoughts) == [block for block in content if block["type"] in kinds]
    assert ours.report["stop_reason"] == whole.stop_reason
    assert ours.usage is not None
    assert ours.usage.input == whole.usage.input_tokens
    assert ours.usage.cache_read == (whole.usage.cache_read_input_tokens or 0)
    assert ours.usage.output == whole.usage.output_tokens


def test_responses_that_llamacpp_recorded_are_read() -> None:
    """The SDK's own stream refuses these events: they have no `sequence_number`."""
    with served(recorded("responses")) as server:
        made = answer(server, "openai_responses", {"input": ASKED})
    assert made.text == "1. Red: The most obvious colour"
    assert made.usage is not None
    assert (made.usage.prompt_tokens, made.usage.output, made.stop) == (34, 8, "end")


def served(stream: bytes) -> FaultServer:
    """Return a server that answers every request with a stream, in pieces that cut its lines."""
    size = 97
    blocks = tuple(stream[at : at + size] for at in range(0, len(stream), size))
    return FaultServer({"POST /v1/*": Answer(200, blocks, "text/event-stream")})


def answer(server: FaultServer, dialect: str, fields: dict[str, Any]) -> Reply:
    return asyncio.run(Caller(server.base_url, dialect=dialect).send(fields))


def told(reply: Reply) -> list[tuple[str, str, str]]:
    return [(call.id, call.name, call.arguments) for call in reply.calls]
