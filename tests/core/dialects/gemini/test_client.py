"""Google's own client behind a guard, on a server that refuses what the service refuses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from google import genai
from google.genai import errors, types

import ullage
from tests.support import clouds


@pytest.fixture
def server() -> Iterator[clouds.Cloud]:
    with clouds.running() as running:
        yield running


def make_client(server: clouds.Cloud) -> genai.Client:
    options = types.HttpOptions(base_url=server.url)
    return genai.Client(api_key="k", http_options=options)


def make_guard() -> ullage.Guard:
    return ullage.Guard("gemini-x", window=clouds.WINDOW, runtime=ullage.Runtime())


def talk(turns: int, place: int = 0) -> list[Any]:
    """Return a history with a tool call in every turn: dicts and the SDK's objects in turns."""
    contents: list[Any] = []
    for n in range(place, place + turns):
        contents.append({"role": "user", "parts": [{"text": f"question {n}? " * 4}]})
        call = types.FunctionCall(name="find", args={"n": n})
        part = types.Part(function_call=call, thought_signature=b"signed")
        contents.append(types.Content(role="model", parts=[part]))
        response = {"name": "find", "response": {"output": f"found {n} " * 12}}
        contents.append({"role": "user", "parts": [{"function_response": response}]})
        contents.append({"role": "model", "parts": [{"text": f"answer {n}. " * 6}]})
    return [*contents, {"role": "user", "parts": [{"text": "and now?"}]}]


def test_the_bare_client_is_refused_where_the_guarded_one_is_answered(server: clouds.Cloud) -> None:
    client, history = make_client(server), talk(12)
    with pytest.raises(errors.ClientError) as refused:
        client.models.generate_content(model="gemini-x", contents=history)
    assert ullage.classify_error(400, str(refused.value)).limit == clouds.WINDOW
    made = make_guard().call(client.models.generate_content, contents=history)
    assert made.text == clouds.LONG
    assert len(server.refused) == 1
    sent = server.answered[-1]["contents"]
    signed = [p for c in sent for p in c["parts"] if "functionCall" in p]
    assert all("thoughtSignature" in part for part in signed)


def test_a_stream_is_watched_to_its_end(server: clouds.Cloud) -> None:
    guard, client = make_guard(), make_client(server)
    stream = guard.stream(client.models.generate_content_stream, contents=talk(12))
    assert "".join(chunk.text or "" for chunk in stream) == clouds.LONG


def test_a_growing_history_is_never_refused(server: clouds.Cloud) -> None:
    guard, client = make_guard(), make_client(server)
    for turns in range(1, 16):
        guard.call(client.models.generate_content, contents=talk(turns))
    assert server.refused == []


def test_an_unknown_window_is_learned_from_the_refusal(server: clouds.Cloud) -> None:
    guard = ullage.Guard("gemini-x", runtime=ullage.Runtime(), window=100_000)
    client = make_client(server)
    made = guard.call(client.models.generate_content, contents=talk(12))
    assert made.text == clouds.LONG
    assert len(server.refused) >= 1
