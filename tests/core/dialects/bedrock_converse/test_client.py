"""boto3's own client behind a guard, on a server that refuses what the service refuses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

import ullage
from tests.support import clouds


@pytest.fixture
def server() -> Iterator[clouds.Cloud]:
    with clouds.running() as running:
        yield running


def make_client(server: clouds.Cloud) -> Any:
    return boto3.client(
        "bedrock-runtime",
        region_name="us-east-1",
        endpoint_url=server.url,
        aws_access_key_id="k",
        aws_secret_access_key="s",
        config=Config(retries={"max_attempts": 1}, proxies={}),
    )


def make_guard() -> ullage.Guard:
    return ullage.Guard("claude-x", window=clouds.WINDOW, runtime=ullage.Runtime())


def talk(turns: int) -> list[Any]:
    """Return a history with a tool call in every turn."""
    messages: list[Any] = []
    for n in range(turns):
        use = {"toolUseId": f"t{n}", "name": "find", "input": {"n": n}}
        result = {"toolUseId": f"t{n}", "content": [{"text": f"found {n} " * 12}]}
        messages += [
            {"role": "user", "content": [{"text": f"question {n}? " * 4}]},
            {"role": "assistant", "content": [{"toolUse": use}]},
            {"role": "user", "content": [{"toolResult": result}]},
            {"role": "assistant", "content": [{"text": f"answer {n}. " * 6}]},
        ]
    return [*messages, {"role": "user", "content": [{"text": "and now?"}]}]


def test_the_bare_client_is_refused_where_the_guarded_one_is_answered(server: clouds.Cloud) -> None:
    client, history = make_client(server), talk(12)
    with pytest.raises(ClientError, match="too long"):
        client.converse(modelId="m", messages=history)
    made = make_guard().call(client.converse, modelId="m", messages=history)
    assert made["output"]["message"]["content"] == [{"text": clouds.LONG}]
    assert len(server.refused) == 1


def test_a_stream_is_watched_to_its_end(server: clouds.Cloud) -> None:
    guard, client = make_guard(), make_client(server)

    def send(**fields: Any) -> Any:
        return client.converse_stream(modelId="m", **fields)["stream"]

    events = list(guard.stream(send, messages=talk(12)))
    texts = [e["contentBlockDelta"]["delta"]["text"] for e in events if "contentBlockDelta" in e]
    assert texts == [clouds.LONG]


def test_a_growing_history_alternates_and_is_never_refused(server: clouds.Cloud) -> None:
    guard, client = make_guard(), make_client(server)
    for turns in range(1, 16):
        guard.call(client.converse, modelId="m", messages=talk(turns))
    assert server.refused == []


def test_a_refusal_teaches_the_window(server: clouds.Cloud) -> None:
    guard = ullage.Guard("claude-x", runtime=ullage.Runtime(), window=100_000)
    made = guard.call(make_client(server).converse, modelId="m", messages=talk(12))
    assert made["stopReason"] == "end_turn"
    assert len(server.refused) >= 1
