"""The tiny model, read by the real server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.embedded.asking import ask
from tests.support import tinymodel
from tests.support.fixtures import StartServer
from ullage.embedded import Launch, Server

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Tell the weather in a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}


def call(number: int) -> dict[str, Any]:
    arguments = '{"city": "Oslo"}'
    return {
        "id": f"call_{number}",
        "type": "function",
        "function": {"name": "get_weather", "arguments": arguments},
    }


def result(number: int) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": f"call_{number}", "content": "rain, 4 degrees"}


USER = {"role": "user", "content": "What is the weather?"}
HISTORIES: dict[str, list[dict[str, Any]]] = {
    "one question": [USER],
    "a system message": [{"role": "system", "content": "Be brief."}, USER],
    "parallel calls, content null": [
        USER,
        {"role": "assistant", "content": None, "tool_calls": [call(1), call(2)]},
        result(1),
        result(2),
    ],
    "a call without the content key": [
        USER,
        {"role": "assistant", "tool_calls": [call(1)]},
        result(1),
        USER,
    ],
    "a call beside a text": [
        USER,
        {"role": "assistant", "content": "Let me see.", "tool_calls": [call(1)]},
        result(1),
    ],
    "content null without a call": [USER, {"role": "assistant", "content": None}, USER],
    "text parts": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}],
    "any script, and control characters": [{"role": "user", "content": "naïve 日本 🙂 \x00\t"}],
}


def test_the_same_arguments_give_the_same_bytes(tmp_path: Path) -> None:
    one = tinymodel.make(tmp_path / "a" / "one.gguf").read_bytes()
    assert one == tinymodel.make(tmp_path / "two.gguf").read_bytes()
    assert len(one) < 400_000
    assert one != tinymodel.make(tmp_path / "three.gguf", trained_window=4096).read_bytes()


def test_it_says_its_sentence_and_stops(tiny_server: Server) -> None:
    status, answer = ask(f"{tiny_server.base_url}/chat/completions", {"messages": [USER]})
    assert status == 200
    choice = answer["choices"][0]
    assert choice["finish_reason"] == "stop"
    assert choice["message"]["content"] == tinymodel.SENTENCE


def test_another_sentence_and_window_can_be_chosen(
    llama_server: StartServer, tmp_path: Path
) -> None:
    model = tinymodel.make(tmp_path / "other.gguf", trained_window=8192, sentence="Yes, of course.")
    running = llama_server(Launch(window=512), model)
    _, answer = ask(f"{running.base_url}/chat/completions", {"messages": [USER]})
    assert answer["choices"][0]["message"]["content"] == "Yes, of course."
    assert ask(f"{running.base_url}/models")[1]["data"][0]["meta"]["n_ctx_train"] == 8192


@pytest.mark.parametrize("sentence", ["", "one and one and one"])
def test_a_sentence_that_would_never_stop_is_refused(tmp_path: Path, sentence: str) -> None:
    with pytest.raises(ValueError, match="none of them twice"):
        tinymodel.make(tmp_path / "never.gguf", sentence=sentence)
    assert not list(tmp_path.iterdir())


def test_our_merges_are_the_servers_merges(tiny_server: Server) -> None:
    ids = tinymodel.train(tinymodel.SENTENCE).ids(tinymodel.SENTENCE)
    question = {"content": tinymodel.SENTENCE}
    assert ask(f"{tiny_server.root_url}/tokenize", question)[1] == {"tokens": ids}


@pytest.mark.parametrize("tools", [None, [WEATHER]], ids=["without tools", "with tools"])
@pytest.mark.parametrize("messages", HISTORIES.values(), ids=HISTORIES.keys())
def test_the_server_counts_a_history_as_it_is_billed(
    tiny_server: Server, messages: list[dict[str, Any]], tools: list[Any] | None
) -> None:
    request = {"messages": messages, **({"tools": tools} if tools else {})}
    url = f"{tiny_server.base_url}/chat/completions"
    status, answer = ask(url, request)
    assert status == 200, answer
    counted = ask(f"{url}/input_tokens", request)[1]["input_tokens"]
    assert counted == answer["usage"]["prompt_tokens"]


def test_tools_calls_and_results_cost_tokens(tiny_server: Server) -> None:
    url = f"{tiny_server.base_url}/chat/completions/input_tokens"

    def count(**request: Any) -> int:
        return int(ask(url, request)[1]["input_tokens"])

    asked = {"role": "assistant", "content": None, "tool_calls": [call(1)]}
    bare = count(messages=[USER, USER])
    called = count(messages=[USER, asked, USER])
    assert bare < count(messages=[USER, USER], tools=[WEATHER])
    assert bare < called < count(messages=[USER, asked, result(1), USER])
