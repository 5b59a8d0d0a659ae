"""A real llama.cpp server, streamed to on the three wire formats that it offers."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import pytest

import ullage
from tests.providers.serving import Caller
from tests.support.fixtures import StartServer
from ullage.core.dialects.reply import Delta
from ullage.embedded import Launch, Server
from ullage.runtime import Runtime

SCHEMA: Final = {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}
LOOK: Final = {"name": "look", "description": "Look it up.", "parameters": SCHEMA}
DIALECTS: Final = ("openai_chat", "openai_responses", "anthropic")


def fields(dialect: str, text: str = "hi", *, tools: bool = False) -> dict[str, Any]:
    """Return a request of 12 tokens at most, with a round of tools in its history if asked."""
    said: list[dict[str, Any]] = [{"role": "user", "content": text}]
    if dialect == "openai_chat":
        call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
        asked = {"role": "assistant", "content": None, "tool_calls": [call]}
        round_ = [asked, {"role": "tool", "tool_call_id": "c1", "content": "found"}]
        more = {"tools": [{"type": "function", "function": LOOK}]} if tools else {}
        return {"messages": [*said, *(round_ if tools else [])], "max_tokens": 12, **more}
    if dialect == "anthropic":
        use = {"type": "tool_use", "id": "c1", "name": "look", "input": {}}
        result = {"type": "tool_result", "tool_use_id": "c1", "content": "found"}
        round_ = [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
        more = {"tools": [{"name": "look", "input_schema": SCHEMA}]} if tools else {}
        messages = [*said, *(round_ if tools else [])]
        return {"messages": messages, "system": "Be brief.", "max_tokens": 12, **more}
    round_ = [
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "found"},
    ]
    more = {"tools": [{"type": "function", **LOOK}]} if tools else {}
    return {"input": [*said, *(round_ if tools else [])], "max_output_tokens": 12, **more}


@pytest.mark.parametrize("tools", [False, True])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_real_server_answers_in_pieces(dialect: str, tools: bool, tiny_server: Server) -> None:
    caller = Caller(tiny_server.base_url, dialect=dialect, options={"temperature": 0})
    made = asyncio.run(caller.send(fields(dialect, tools=tools)))
    assert made.text
    assert made.text == "".join(delta.text for delta in caller.heard)
    assert len(caller.heard) > 5
    assert made.usage is not None
    assert made.usage.prompt_tokens > 0
    assert made.usage.output == 12
    # on the Responses API this server calls an answer complete that it cut short
    assert made.stop == ("end" if dialect == "openai_responses" else "length")


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_real_overflow_is_read_and_not_tried_again(dialect: str, tiny_server: Server) -> None:
    caller = Caller(tiny_server.base_url, dialect=dialect)
    failed = asyncio.run(caller.fails(fields(dialect, "much too long " * 2000)))
    assert (failed.kind.kind, failed.kind.limit, failed.kind.certainty) == (
        "input",
        2048,
        "certain",
    )
    assert (failed.status, failed.attempts, failed.begun, caller.waits) == (400, 1, False, [])


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_real_server_wants_its_key(dialect: str, llama_server: StartServer) -> None:
    server = llama_server(Launch(api_key="sentinel-key"))
    wrong = Caller(server.base_url, dialect=dialect, api_key="wrong-key")
    failed = asyncio.run(wrong.fails(fields(dialect)))
    assert failed.status == 401
    assert "wrong-key" not in f"{failed} {failed.body} {failed.headers}"
    right = Caller(server.base_url, dialect=dialect, api_key="sentinel-key")
    assert asyncio.run(right.send(fields(dialect))).text


def test_a_cancelled_call_frees_the_only_slot_of_a_real_server(tiny_server: Server) -> None:
    async def test() -> None:
        caller = Caller(tiny_server.base_url, options={"ignore_eos": True})
        endless = {**fields("openai_chat"), "max_tokens": 1500}

        def stop(delta: Delta) -> None:
            task.cancel()

        task = asyncio.ensure_future(caller.client.send(endless, stop))
        async with asyncio.timeout(60):
            with pytest.raises(asyncio.CancelledError):
                await task
            assert (await caller.send(fields("openai_chat"))).text

    asyncio.run(test())


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_guard_prepares_what_is_sent_and_learns_from_what_came_back(
    dialect: str, tiny_server: Server
) -> None:
    runtime = Runtime()
    guard = ullage.Guard("tiny", base_url=tiny_server.base_url, dialect=dialect, runtime=runtime)

    async def test() -> None:
        said = [{"role": "user", "content": "hi"}]
        view = await guard.aprepare(said, max_tokens=8)
        made = await Caller(tiny_server.base_url, dialect=dialect).send(view.kwargs)
        assert made.usage is not None
        assert view.observe(made.report).input_tokens == made.usage.prompt_tokens

    asyncio.run(test())
