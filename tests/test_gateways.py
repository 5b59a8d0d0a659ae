"""Gateways that report usage falsely, and filters that quote: by library, `wrap` and proxy.

The real OpenAI SDK over 40 turns of honest growth. Nothing false is learned, the gauge goes on by
our own count, and compaction comes in time; a window that nobody told is learned by one refusal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import openai
import pytest

from tests.proxy.serving import proxied
from tests.support.gateways import MODES, Gateway, running
from ullage import Guard, wrap
from ullage.config.serving import ModelRule
from ullage.runtime import Runtime

WINDOW = 4_000
TURNS = 40
LINE = "wind and water were fair today, all hands well. " * 12

Send = Callable[[list[Any]], Any]


@pytest.fixture(params=MODES)
def gateway(request: pytest.FixtureRequest) -> Iterator[Gateway]:
    with running(WINDOW, request.param) as server:
        yield server


@pytest.fixture(params=["guarded", "guarded unknown", "wrapped", "relayed"])
def way(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def window(way: str) -> int | None:
    return None if way.endswith("unknown") else WINDOW


@pytest.fixture
def send(way: str, gateway: Gateway, window: int | None) -> Iterator[Send]:
    runtime = Runtime()
    with ExitStack() as stack:
        url = gateway.url
        if way == "relayed":
            rules = (ModelRule(window=window),)
            url = stack.enter_context(proxied(url.removesuffix("/v1"), rules=rules)).url + "/v1"
        bare = stack.enter_context(closing(openai.OpenAI(base_url=url, api_key="k", max_retries=0)))
        client = bare
        if way == "wrapped":
            client = wrap(bare, runtime=runtime, window=window)
        guard = Guard("tern-9", base_url=gateway.url, runtime=runtime, window=window)

        def create(history: list[Any]) -> Any:
            method: Any = client.chat.completions.create
            if way.startswith("guarded"):
                return guard.call(method, history)
            return method(model="tern-9", messages=history)

        yield create


def test_forty_turns_are_answered_whatever_is_reported(
    send: Send, gateway: Gateway, window: int | None
) -> None:
    history: list[Any] = [{"role": "system", "content": "Keep the log. The codeword is marlin."}]
    filtered = 0
    for turn in range(TURNS):
        history.append({"role": "user", "content": f"{turn}: {LINE}"})
        try:
            made = send(history)
        except openai.BadRequestError as error:
            if error.code != "content_filter":
                raise
            filtered += 1
            made = send(history)
        history.append(made.choices[0].message.model_dump(exclude_none=True))
    assert len(gateway.sent) == TURNS
    assert filtered == gateway.filtered
    assert len(gateway.refused) <= (0 if window else 1)
    assert max(gateway.sent[TURNS // 2 :]) > WINDOW * 0.35


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "filter"])
def test_small_turns_hide_no_false_report(mode: str) -> None:
    """What came is less than any slack: a report that rests on a false one would be false, too."""
    window = 1_500
    with (
        running(window, mode) as server,
        closing(openai.OpenAI(base_url=server.url, api_key="k", max_retries=0)) as client,
    ):
        guard = Guard("tern-9", base_url=server.url, runtime=Runtime(), window=window)
        history: list[Any] = [{"role": "user", "content": "Keep the log."}]
        for turn in range(80):
            made = guard.call(client.chat.completions.create, history)
            history.append(made.choices[0].message.model_dump(exclude_none=True))
            history.append({"role": "user", "content": f"{turn}: wind and water were fair."})
    assert server.refused == []
    assert len(server.sent) == 80
    assert max(server.sent[40:]) > window * 0.4
