"""LiteLLM itself, wrapped; skipped where it is not installed.

    PYTHONPATH=$PWD/src:$PWD python -m pytest tests/integrations/test_litellm.py

in an environment that has litellm and pytest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

import ullage
from tests.support import mistral
from ullage import events

litellm = pytest.importorskip("litellm")

pytestmark = pytest.mark.filterwarnings("ignore")  # pydantic's and aiohttp's, of the package

WINDOW = 500


@pytest.fixture
def server() -> Iterator[mistral.Mistral]:
    with mistral.running() as running:
        yield running


@pytest.fixture(params=["module", "Router"])
def client(request: pytest.FixtureRequest, server: mistral.Mistral) -> Any:
    if request.param == "module":
        return litellm
    where = {"model": "openai/m", "api_base": f"{server.url}/v1", "api_key": "k"}
    listed = [{"model_name": "mine", "litellm_params": where}]
    return litellm.Router(model_list=listed, num_retries=0)


def ask(client: Any, server: Any, history: list[Any], awaits: bool, stream: bool) -> str:
    """Return the text of an answer, through the module or a Router."""
    own = {"api_base": f"{server.url}/v1", "api_key": "k", "max_retries": 0}
    asked: dict[str, Any] = {"model": "mine"}
    if not isinstance(client, litellm.Router):
        asked = {"model": "openai/m", **own}
    if not awaits:
        made = client.completion(messages=history, stream=stream, **asked)
        if not stream:
            return str(made.choices[0].message.content)
        return "".join(chunk.choices[0].delta.content or "" for chunk in made)

    async def read() -> str:
        made = await client.acompletion(messages=history, stream=stream, **asked)
        if not stream:
            return str(made.choices[0].message.content)
        return "".join([chunk.choices[0].delta.content or "" async for chunk in made])

    return asyncio.run(read())


def turn(n: int) -> list[Any]:
    function = {"name": "find", "arguments": f'{{"n": {n}}}'}
    calls = [{"id": f"call{n:05}", "type": "function", "function": function}]
    text = "wind and water were fair today, all hands well. " * 3
    return [
        {"role": "user", "content": f"question {n}?"},
        {"role": "assistant", "content": "", "tool_calls": calls},
        {"role": "tool", "tool_call_id": f"call{n:05}", "content": f"{n}: {text}"},
        litellm.Message(role="assistant", content=f"answer {n}."),
    ]


def wrapped(client: Any, **options: Any) -> tuple[Any, list[Any]]:
    told: list[Any] = []
    made = ullage.wrap(client, on_event=told.append, runtime=ullage.Runtime(), **options)
    return made, told


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("awaits", [False, True])
def test_thirty_turns_past_the_window_are_never_refused(
    client: Any, server: mistral.Mistral, awaits: bool, stream: bool
) -> None:
    guarded, told = wrapped(client, window=WINDOW)
    assert isinstance(guarded, type(client))
    history: list[Any] = []
    for n in range(30):
        history += turn(n)
        asked = [*history, {"role": "user", "content": "and now?"}]
        assert ask(guarded, server, asked, awaits, stream) == mistral.ANSWER
    assert server.refused == []
    assert any(isinstance(event, events.Compacted) for event in told)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("awaits", [False, True])
def test_an_overflow_that_the_server_reports_is_recovered_from(
    client: Any, server: mistral.Mistral, awaits: bool, stream: bool
) -> None:
    guarded, told = wrapped(client, window=10**6)
    history = [message for n in range(12) for message in turn(n)]
    history.append({"role": "user", "content": "and now?"})
    with pytest.raises(Exception, match="too large for model") as failed:
        ask(client, server, history, awaits, stream)
    assert ullage.classify_exception(failed.value).kind == "input"
    assert ask(guarded, server, history, awaits, stream) == mistral.ANSWER
    (made,) = [event for event in told if isinstance(event, events.Compacted)]
    assert made.checkpoint.trigger == "overflow_recovery"


def test_a_group_of_one_model_is_asked_for_at_its_own_server(server: mistral.Mistral) -> None:
    where = {"model": "openai/m", "api_base": f"{server.url}/v1", "api_key": "k"}
    listed = [{"model_name": "mine", "litellm_params": where}]
    guarded, _ = wrapped(litellm.Router(model_list=listed, num_retries=0), window=WINDOW)
    assert ask(guarded, server, [{"role": "user", "content": "hi"}], False, False)
    keys = guarded._ullage_shared.guards
    assert ("m", f"{server.url}/v1", "k") in [key[:3] for key in keys]
