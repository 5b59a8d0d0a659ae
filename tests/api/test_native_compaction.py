"""Compaction by the provider, through every way of a request.

The real Anthropic and OpenAI SDKs, against a server that compacts by itself
(tests.support.compacting).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import anthropic
import openai
import pytest

from tests.proxy.serving import proxied
from tests.support.compacting import Compacting, compacting
from ullage import Guard, wrap
from ullage.config.serving import ModelRule
from ullage.core.compaction.policy import Policy, Rung
from ullage.runtime import Runtime

TURNS = 40
WINDOW = 4000
THRESHOLD = 2000
PAGE = "wind and water were fair today, all hands well. " * 12
TASK = "The codeword is marlin. Read the log."

Create = Callable[..., Any]

ASKING = Policy(name="asking", rungs=(Rung(0.8, 0.6, ("native", "clear", "trim_oldest")),))

POLICIES = {
    "test_the_strategy_native_has_the_provider_compact": ASKING,
    "test_a_provider_that_compacts_nothing_leaves_it_to_ours": ASKING,
}
"""The policy of a test, by its name; None is the default."""


@pytest.fixture
def server() -> Iterator[Compacting]:
    with compacting(WINDOW) as running:
        yield running


@pytest.fixture(params=["anthropic", "openai"])
def sdk(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(params=["guarded", "wrapped", "relayed"])
def create(request: pytest.FixtureRequest, sdk: str, server: Compacting) -> Iterator[Create]:
    """Return the call that makes a request, guarded in one of three ways."""
    policy: Any = request.module.POLICIES.get(request.node.name.partition("[")[0])
    with ExitStack() as stack:
        url = server.url
        if request.param == "relayed":
            rules = (ModelRule(window=WINDOW, policy=policy),)
            url = stack.enter_context(proxied(url, rules=rules)).url
        bare = stack.enter_context(closing(make_client(sdk, url)))
        client = bare
        if request.param == "wrapped":
            client = wrap(bare, runtime=Runtime(), window=WINDOW, policy=policy)
        method = find_method(client)
        if request.param != "guarded":
            yield method
            return
        base = f"{url}/v1" if sdk == "openai" else url
        model = "gpt-5.4" if sdk == "openai" else "claude-opus-4-8"
        guard = Guard(
            model, base_url=base, api_key="k", runtime=Runtime(), window=WINDOW, policy=policy
        )
        yield lambda **given: guard.call(method, **given)


def make_client(sdk: str, url: str) -> Any:
    if sdk == "openai":
        return openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0)
    return anthropic.Anthropic(base_url=url, api_key="k", max_retries=0)


def find_method(client: Any) -> Create:
    found: Create = (
        client.responses.create if hasattr(client, "responses") else client.beta.messages.create
    )
    return found


def ask_for_compaction(sdk: str) -> dict[str, Any]:
    """Return the fields by which a request asks the provider to compact."""
    if sdk == "openai":
        return {"context_management": [{"type": "compaction", "compact_threshold": THRESHOLD}]}
    trigger = {"type": "input_tokens", "value": THRESHOLD}
    return {
        "betas": ["compact-2026-01-12"],
        "context_management": {"edits": [{"type": "compact_20260112", "trigger": trigger}]},
    }


def fields(sdk: str, history: list[Any]) -> dict[str, Any]:
    if sdk == "openai":
        return {"model": "gpt-5.4", "input": history, "instructions": "Be brief."}
    return {"model": "claude-opus-4-8", "messages": history, "system": "Be brief.",
            "max_tokens": 64}  # fmt: skip


def play(sdk: str, create: Create, history: list[Any], more: Callable[[int], Any]) -> list[Any]:
    """Let a model call a tool in every turn; return the history."""
    for turn in range(TURNS):
        answer = create(**fields(sdk, history), **more(turn))
        if sdk == "openai":
            items = [item.model_dump(exclude_none=True) for item in answer.output]
            called = items[-1]["call_id"]
            history += items
            history.append(
                {"type": "function_call_output", "call_id": called, "output": f"{turn}: {PAGE}"}
            )
        else:
            blocks = [block.model_dump(exclude_none=True) for block in answer.content]
            history.append({"role": "assistant", "content": blocks})
            result = {"type": "tool_result", "tool_use_id": blocks[-1]["id"],
                      "content": f"{turn}: {PAGE}"}  # fmt: skip
            history.append({"role": "user", "content": [result]})
    return history


def list_messages(body: Any) -> list[Any]:
    found: list[Any] = body["input"] if "input" in body else body["messages"]
    return found


@pytest.mark.slow
def test_a_provider_that_compacts_in_time_is_left_alone(
    sdk: str, create: Create, server: Compacting
) -> None:
    history = [{"role": "user", "content": TASK}]
    play(sdk, create, history, lambda _: ask_for_compaction(sdk))
    assert server.refused == []
    assert len(server.sent) == TURNS
    assert len(server.made) >= 3
    assert list_messages(server.sent[-1]) == history[: len(list_messages(server.sent[-1]))]
    assert "[ullage:" not in str(server.sent)


@pytest.mark.slow
def test_behind_the_last_compaction_of_the_provider_ours_act(
    sdk: str, create: Create, server: Compacting
) -> None:
    history = [{"role": "user", "content": TASK}]
    asked = ask_for_compaction(sdk)
    play(sdk, create, history, lambda turn: asked if turn < TURNS // 3 else {})
    assert server.refused == []
    assert len(server.sent) == TURNS
    newest = server.made[-1]["encrypted_content"]
    assert newest in str(server.sent[-1])
    assert len(list_messages(server.sent[-1])) < len(history) - TURNS // 3
    assert not [made for made in server.made[:-1] if made["encrypted_content"] in
                str(server.sent[-1])]  # fmt: skip
    assert max(server.read) < WINDOW


@pytest.mark.slow
def test_the_strategy_native_has_the_provider_compact(
    sdk: str, create: Create, server: Compacting
) -> None:
    history = [{"role": "user", "content": TASK}]
    play(sdk, create, history, lambda _: {})
    assert server.refused == []
    assert len(server.sent) == TURNS
    assert len(server.standalone) >= 2
    last = list_messages(server.sent[-1])
    newest = server.made[-1]["encrypted_content"]
    assert newest in str(last[0])
    assert {"role": "user", "content": TASK} in last
    assert "[ullage: summary" not in str(server.sent)
    assert max(server.read) < WINDOW


@pytest.mark.slow
def test_a_provider_that_compacts_nothing_leaves_it_to_ours(
    sdk: str, create: Create, server: Compacting
) -> None:
    server.compacts = False
    history = [{"role": "user", "content": TASK}]
    play(sdk, create, history, lambda _: {})
    assert len(server.sent) == TURNS
    assert server.made == []
    assert "[ullage: " in str(server.sent[-1])
    assert max(server.read) < WINDOW
