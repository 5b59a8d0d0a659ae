"""Thinking that is bound to what stands before it, through every way of a request.

The real Anthropic SDK, against a server that signs as the service does (tests.support.preserved).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import pairwise
from typing import Any

import anthropic
import pytest

from tests.proxy.serving import proxied
from tests.support.preserved import NEWER, OLDER, Preserving, preserving
from ullage import Guard, wrap
from ullage.config.serving import ModelRule
from ullage.runtime import Runtime

TURNS = 40
WINDOW = 2400
PAGE = "wind and water were fair today, all hands well. " * 8
TOOLS = [{"name": "look", "description": "Read a page.", "input_schema": {"type": "object"}}]

LEFT_OUT = "[ullage: reasoning left out]"

Send = Callable[..., Any]


@pytest.fixture
def server() -> Iterator[Preserving]:
    with preserving(WINDOW) as running:
        yield running


def models(turn: int) -> str:
    """Return the model of a turn: old, new in the middle, then old again."""
    return NEWER if TURNS // 3 <= turn < 2 * TURNS // 3 else OLDER


def play(send: Send, model: Callable[[int], str], tools: Callable[[int], Any]) -> list[Any]:
    """Let a model call a tool in every turn, with a question every tenth; return the history."""
    history: list[Any] = [{"role": "user", "content": "The codeword is marlin. Read the log."}]
    for turn in range(TURNS):
        answer = send(history, model(turn), tools(turn))
        blocks = [block.model_dump(exclude_none=True) for block in answer.content]
        history.append({"role": "assistant", "content": blocks})
        used = blocks[-1]["id"]
        result = {"type": "tool_result", "tool_use_id": used, "content": f"{turn}: {PAGE}"}
        history.append({"role": "user", "content": [result]})
        if turn % 10 == 9:
            history.append({"role": "assistant", "content": "I have read these."})
            history.append({"role": "user", "content": f"Now the next ten, from {turn + 1}."})
    return history


def same(_: int) -> Any:
    return TOOLS


def fields(history: list[Any], model: str, tools: Any) -> dict[str, Any]:
    return {"model": model, "messages": history, "tools": tools, "system": "Be brief.",
            "max_tokens": 64}  # fmt: skip


@pytest.fixture
def wrapped(server: Preserving) -> Iterator[Send]:
    with closing(anthropic.Anthropic(base_url=server.url, api_key="k", max_retries=0)) as bare:
        client = wrap(bare, runtime=Runtime(), window=WINDOW)
        yield lambda *given: client.messages.create(**fields(*given))


@pytest.fixture
def guarded(server: Preserving) -> Iterator[Send]:
    runtime = Runtime()
    with closing(anthropic.Anthropic(base_url=server.url, api_key="k", max_retries=0)) as bare:

        def send(history: list[Any], model: str, tools: Any) -> Any:
            guard = Guard(model, runtime=runtime, window=WINDOW, dialect="anthropic")
            given = fields(history, model, tools)
            return guard.call(bare.messages.create, given.pop("messages"), **given)

        yield send


@pytest.fixture
def relayed(server: Preserving) -> Iterator[Send]:
    with (
        proxied(server.url, rules=(ModelRule(window=WINDOW),)) as proxy,
        closing(anthropic.Anthropic(base_url=proxy.url, api_key="k", max_retries=0)) as client,
    ):
        yield lambda *given: client.messages.create(**fields(*given))


WAYS = ("guarded", "wrapped", "relayed")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("model", [lambda _: NEWER, models], ids=["new", "old-new-old"])
def test_forty_tool_turns_with_compactions_meet_no_refusal(
    way: str, model: Callable[[int], str], server: Preserving, request: pytest.FixtureRequest
) -> None:
    play(request.getfixturevalue(way), model, same)
    assert server.refused == []
    assert len(server.sent) == TURNS
    assert count_compactions(server) >= 3
    assert any(holds_thinking(body) for body in server.sent[-3:])


@pytest.mark.parametrize("way", WAYS)
def test_a_family_that_nobody_knows_teaches_its_law_by_one_refusal(
    way: str, request: pytest.FixtureRequest, server: Preserving
) -> None:
    server.bound = frozenset({"tern-9"})
    play(request.getfixturevalue(way), lambda _: "tern-9", same)
    assert len(server.sent) == TURNS
    assert len(server.refused) == 1


@pytest.mark.parametrize("way", WAYS)
def test_changed_tools_leave_out_the_thinking_so_far(
    way: str, request: pytest.FixtureRequest, server: Preserving
) -> None:
    other = [*TOOLS, {"name": "find", "description": "Find.", "input_schema": {"type": "object"}}]
    play(request.getfixturevalue(way), lambda _: NEWER, lambda turn: other if turn > 3 else TOOLS)
    assert server.refused == []
    assert not holds_thinking(server.sent[4])
    assert holds_thinking(server.sent[5])


def test_a_message_of_nothing_but_thinking_does_not_become_empty(
    guarded: Send, server: Preserving
) -> None:
    first = guarded([{"role": "user", "content": "Think."}], NEWER, TOOLS)
    thought = first.content[0].model_dump(exclude_none=True)
    history = [
        {"role": "user", "content": "Think."},
        {"role": "assistant", "content": [thought]},
        {"role": "user", "content": "And on."},
    ]
    guarded(history, NEWER, None)
    assert server.sent[-1]["messages"][1]["content"] == [{"type": "text", "text": LEFT_OUT}]


def holds_thinking(body: Any) -> bool:
    """Tell whether a request that was answered holds thinking."""
    blocks = (b for m in body["messages"] if isinstance(m["content"], list) for b in m["content"])
    return any(block["type"] == "thinking" for block in blocks)


def count_compactions(server: Preserving) -> int:
    """Return how often a request did not begin with all of the one before it."""
    sent = [body["messages"] for body in server.sent]
    return sum(after[: len(before)] != before for before, after in pairwise(sent))
