"""Framing against a real llama.cpp server: 200 conversations with tools, in three dialects.

The server's own count is what it bills, to the token. Offline, with the model's vocabulary at hand
and its template unknown, the band holds what it bills in at least 99 of 100 conversations.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Sequence
from typing import Any

import pytest

import ullage
from tests.conversations import conversation
from tests.support import tinymodel
from tests.support.fixtures import StartServer
from ullage.core.dialects.framing import UNKNOWN_TEMPLATE
from ullage.core.tokens.counting import EXACT, Meter, measure
from ullage.embedded import Launch, Server

CONVERSATIONS, FEW = 200, 40
ENOUGH = 0.99


class Tiny:
    """The vocabulary of the tiny test model."""

    key = "tiny"

    def __init__(self) -> None:
        self._vocabulary = tinymodel.train(tinymodel.SENTENCE)
        self._known: dict[str, int] = {}

    def count(self, text: str) -> int:
        return sum(map(self._word, tinymodel.WORD.findall(text)))

    def _word(self, word: str) -> int:
        if word not in self._known:
            self._known[word] = len(self._vocabulary.ids(word))
        return self._known[word]

    def count_many(self, texts: Sequence[str]) -> list[int]:
        return list(map(self.count, texts))


def ask(server: Server, path: str, body: dict[str, Any]) -> dict[str, Any]:
    request = urllib.request.Request(
        server.base_url + path, json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


@pytest.fixture(scope="module")
def server(llama_server: StartServer) -> Server:
    return llama_server(Launch(window=16_384))


def find_billed(server: Server, conversations: int) -> list[int]:
    """Return what the server bills for each of so many conversations, in prompt tokens."""
    found = []
    for seed in range(conversations):
        messages, tools = conversation(seed)
        body = {"messages": messages, "tools": tools, "max_tokens": 1}
        found.append(ask(server, "/chat/completions", body)["usage"]["prompt_tokens"])
    return found


@pytest.fixture(scope="module")
def billed(server) -> list[int]:
    return find_billed(server, CONVERSATIONS)


@pytest.mark.slow
def test_the_servers_count_is_what_it_bills(server, billed) -> None:
    runtime = ullage.Runtime()
    for seed, tokens in enumerate(billed):
        messages, tools = conversation(seed)
        found = ullage.count(messages, tools=tools, base_url=server.base_url, runtime=runtime)
        assert (found.low, found.tokens, found.high, found.basis) == (
            *(tokens, tokens, tokens),
            "server",
        )


@pytest.mark.slow
def test_the_band_of_an_unknown_template_holds_what_is_billed(billed) -> None:
    assert count_inside(billed) >= ENOUGH * CONVERSATIONS


def test_the_band_of_an_unknown_template_holds_what_is_billed_for_a_few(server) -> None:
    assert count_inside(find_billed(server, FEW)) == FEW


def count_inside(billed: Sequence[int]) -> int:
    """Return for how many conversations the band of an unknown template holds what is billed."""
    meter = Meter(Tiny(), UNKNOWN_TEMPLATE, EXACT, "estimate")
    codec = ullage.Runtime().codec_for("openai_chat")
    inside = 0
    for seed, tokens in enumerate(billed):
        messages, tools = conversation(seed)
        found = measure(codec.read(messages), meter, tools=tools).count()
        inside += found.low <= tokens <= found.high
    return inside


@pytest.mark.slow
def test_reports_of_a_conversation_narrow_its_band_and_the_band_holds(server) -> None:
    """An unknown vocabulary, 2.4 times as many tokens as the stand-in's, is learned on the way."""
    runtime = ullage.Runtime()
    guard = ullage.Guard("m", base_url=server.base_url, window=16_384, runtime=runtime)
    inside = asked = 0
    for seed in range(20):
        messages, tools = conversation(seed)
        for end in [i for i, m in enumerate(messages) if m["role"] == "user"]:
            view = guard.prepare(messages[: end + 1], tools=tools, max_tokens=1)
            answer = ask(server, "/chat/completions", dict(view.kwargs))
            asked += 1
            count = view.prepared.count
            inside += count.low <= answer["usage"]["prompt_tokens"] <= count.high
            view.observe(answer)
    assert asked > 40
    assert inside >= 0.9 * asked
