"""The policy `client`: the proxy compacts nothing, and tells clients in time, in their words.

The real SDKs against a server that counts by itself (tests.support.compacting).
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import Any

import anthropic
import openai
import pytest

from tests.proxy.serving import proxied
from tests.support.compacting import compacting
from ullage.config.serving import ModelRule
from ullage.core.compaction.policy import Policy

WINDOW = 4_000
PAGE = "wind and water were fair today, all hands well. " * 30


def compact_as_clients_do(history: list[Any]) -> list[Any]:
    """Return what a client makes of a history when it is told that it is too long."""
    return [history[0], {"role": "assistant", "content": "I read some pages."}, history[-1]]


@pytest.mark.parametrize("bounded", [True, False], ids=["window known", "window unknown"])
@pytest.mark.parametrize("sdk", ["anthropic", "openai"])
def test_a_client_that_compacts_by_itself_is_told_in_its_own_words(sdk: str, bounded: bool):
    rule = ModelRule(policy=Policy.client(), window=WINDOW if bounded else None)
    told: list[Any] = []
    with compacting(WINDOW) as server, proxied(server.url, rules=(rule,)) as proxy:
        server.last = frozenset(range(100))
        with closing(make_client(sdk, proxy.url)) as client:
            history: list[Any] = [{"role": "user", "content": "Read the log."}]
            for turn in range(40):
                history += [
                    {"role": "assistant", "content": "Next, please."},
                    {"role": "user", "content": f"{turn}: {PAGE}"},
                ]
                try:
                    send(sdk, client, history)
                except (anthropic.BadRequestError, openai.BadRequestError) as error:
                    told.append(error)
                    history = compact_as_clients_do(history)
                    send(sdk, client, history)
    assert len(server.sent) == 40
    assert "[ullage:" not in str(server.sent)
    assert len(told) >= 2
    assert all(is_too_long(sdk, error) for error in told)
    assert (server.refused == []) is bounded


def make_client(sdk: str, url: str) -> Any:
    if sdk == "openai":
        return openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0)
    return anthropic.Anthropic(base_url=url, api_key="k", max_retries=0)


def send(sdk: str, client: Any, history: list[Any]) -> None:
    if sdk == "openai":
        client.responses.create(model="gpt-4o", input=history)
    else:
        client.messages.create(model="claude-opus-5", messages=history, max_tokens=64)


def is_too_long(sdk: str, error: Any) -> bool:
    """Tell whether an error says in its provider's way that the prompt is too long."""
    if sdk == "openai":
        return bool(error.code == "context_length_exceeded")
    return "prompt is too long: " in error.message and " maximum" in error.message


def test_an_effective_bound_tells_them_earlier():
    policy = replace(Policy.client(), effective=0.5)
    with compacting(WINDOW) as server:
        rule = ModelRule(policy=policy, window=WINDOW)
        with proxied(server.url, rules=(rule,)) as proxy:
            body = {"model": "claude-opus-5", "max_tokens": 64}
            asked = [{"role": "user", "content": "wind and water. " * 600}]
            refused = proxy.post("/v1/messages", {**body, "messages": asked})
            asked = [{"role": "user", "content": "wind and water. " * 60}]
            taken = proxy.post("/v1/messages", {**body, "messages": asked})
    assert (refused.status_code, taken.status_code) == (400, 200)
    assert "> 2000 maximum" in refused.json()["error"]["message"]
    assert len(server.sent) == 1
