"""Room in the window, on real llama.cpp servers: what is cut, what is clamped, what is said.

One server has a template without a place for tools, so that it counts far less than is sent.
"""

from __future__ import annotations

import re
from typing import Any, Final

import httpx2
import pytest

import ullage
from tests.proxy.serving import CHAT, PATHS, Proxy, proxied
from tests.support import tinymodel
from tests.support.fixtures import StartServer
from ullage.embedded import Launch, Server
from ullage.runtime import Runtime

WINDOW: Final = 4096
BARE: Final = tinymodel.CHAT_TEMPLATE.split("{%- endif -%}\n", 1)[1]
"""The template of the tiny model, without its tools."""

TOOLS: Final = [
    {
        "name": f"tool_{n}",
        "description": "Read a file of the cellar and say what is in it. " * 12,
        "schema": {"type": "object", "properties": {"path": {"type": "string"}}},
    }
    for n in range(40)
]
ASKED: Final = 60


@pytest.fixture(scope="module")
def toolless(llama_server: StartServer) -> Server:
    """Return a server of 4,096 tokens whose template leaves tools out."""
    return llama_server(Launch(window=WINDOW, chat_template=BARE))


def request(dialect: str, history: list[Any], **more: Any) -> dict[str, Any]:
    """Return a request with all the tools."""
    if dialect == "anthropic":
        tools: list[Any] = [
            {"name": t["name"], "description": t["description"], "input_schema": t["schema"]}
            for t in TOOLS
        ]
    else:
        tools = [
            {
                "type": "function",
                "function": {
                    "name": t["name"], "description": t["description"], "parameters": t["schema"]
                },
            }
            for t in TOOLS
        ]  # fmt: skip
    return {"model": "tiny", "messages": history, "max_tokens": ASKED, "tools": tools, **more}


def said(dialect: str, answer: Any) -> tuple[str, str]:
    """Return the text of an answer, and why it ended."""
    if dialect == "anthropic":
        return answer["content"][0]["text"], answer["stop_reason"]
    choice = answer["choices"][0]
    return choice["message"]["content"], choice["finish_reason"]


def sizes(told: str) -> tuple[int, int]:
    """Return the sizes before and after that a header tells of."""
    before, after = map(int, re.findall(r"(?:before|after)=(\d+)", told))
    return before, after


def told_before() -> list[dict[str, str]]:
    """Return a history that takes some two thirds of the window."""
    told = []
    for turn in range(10):
        told.append({"role": "user", "content": f"Turn {turn}. " + "what is there? " * 60})
        told.append({"role": "assistant", "content": tinymodel.SENTENCE})
    return told


@pytest.mark.slow
@pytest.mark.parametrize("words", [1, 5, 60])
@pytest.mark.parametrize(("dialect", "end"), [("openai_chat", "stop"), ("anthropic", "end_turn")])
def test_tools_that_the_server_leaves_out_cost_no_answer(
    toolless: Server, dialect: str, end: str, words: int
) -> None:
    history = told_before()
    made = set()
    with proxied(toolless.root_url, rules=()) as proxy:
        for turn in range(24):
            history.append({"role": "user", "content": f"Now {turn}. " + "what is there? " * words})
            answer = proxy.post(PATHS[dialect], request(dialect, history))
            assert answer.status_code == 200, answer.text
            assert said(dialect, answer.json()) == (tinymodel.SENTENCE, end)
            assert "x-ullage-output" not in answer.headers
            if "x-ullage-compaction" in answer.headers:
                told = answer.headers["x-ullage-compaction"]
                made.add(told)
                before, after = sizes(told)
                assert after < before <= WINDOW
            history.append({"role": "assistant", "content": tinymodel.SENTENCE})
    assert 1 <= len(made) <= 8


@pytest.fixture(scope="module")
def server(llama_server: StartServer) -> Server:
    """Return a server of 4,096 tokens."""
    return llama_server(Launch(window=WINDOW))


def talk(proxy: Proxy, turns: int, history: list[Any], words: int) -> list[httpx2.Response]:
    """Hold a conversation of so many turns; return the answers, all of them whole."""
    answers = []
    for turn in range(turns):
        history.append({"role": "user", "content": f"Turn {turn}. " + "what is there? " * words})
        body = {"model": "tiny", "messages": history, "max_tokens": 600}
        answers.append(proxy.post(CHAT, body))
        assert answers[-1].status_code == 200, answers[-1].text
        assert said("openai_chat", answers[-1].json()) == (tinymodel.SENTENCE, "stop")
        history.append({"role": "assistant", "content": tinymodel.SENTENCE})
    return answers


def made(answers: list[httpx2.Response]) -> list[str]:
    """Return the compactions that the answers tell of, each once."""
    told = [answer.headers.get("x-ullage-compaction", "") for answer in answers]
    return [one for one in dict.fromkeys(told) if one]


@pytest.mark.parametrize(("share", "short"), [(0.62, False), (0.7, True)])
def test_a_fixed_part_near_the_window_is_not_compacted_in_every_turn(
    server: Server, share: float, *, short: bool
) -> None:
    text = "Read the rules of the cellar. "
    system = text * round(WINDOW * share / tokens(server, text))
    with proxied(server.root_url, rules=()) as proxy:
        answers = talk(proxy, 20, [{"role": "system", "content": system}], words=12)
    found = made(answers)
    assert 1 <= len(found) <= 7
    for told in found:
        before, after = sizes(told)
        assert after < before
    cramped = [a.headers["x-ullage-window"] for a in answers if "x-ullage-window" in a.headers]
    assert bool(cramped) == short
    if not short:
        return
    fixed, window, needed = map(int, re.findall(r"\d+", cramped[0]))
    assert window == WINDOW
    assert share * 0.9 * WINDOW < fixed < WINDOW
    assert needed * 0.6 >= fixed


def tokens(server: Server, text: str) -> float:
    """Return what a text takes on the server when it is said again and again."""
    with httpx2.Client(trust_env=False) as client:
        body = {"content": text * 100}
        found = client.post(f"{server.root_url}/tokenize", json=body).json()["tokens"]
    return len(found) / 100


@pytest.mark.parametrize(("tries", "share"), [(6, 0.3), (4, 0.8)])
def test_turns_that_failed_do_not_pile_up_as_the_current_request(
    server: Server, tries: int, share: float
) -> None:
    text = "Tell me of the cellar. "
    one = text * round(WINDOW * share / tokens(server, text))
    history = [{"role": "user", "content": f"Try {n}. {one}"} for n in range(tries)]
    with proxied(server.root_url, rules=()) as proxy:
        answer = proxy.post(CHAT, {"model": "tiny", "messages": history, "max_tokens": 60})
    assert answer.status_code == 200, answer.text
    assert said("openai_chat", answer.json()) == (tinymodel.SENTENCE, "stop")
    assert "x-ullage-output" not in answer.headers
    before, after = sizes(answer.headers["x-ullage-compaction"])
    assert before > WINDOW > after


def test_a_window_below_the_fixed_part_is_said_with_what_would_do(server: Server) -> None:
    text = "Read the rules of the cellar. "
    system = text * round(WINDOW * 1.1 / tokens(server, text))
    history = [{"role": "system", "content": system}, {"role": "user", "content": "And now?"}]
    with proxied(server.root_url, rules=()) as proxy:
        body = {"model": "tiny", "messages": history, "max_tokens": 60}
        answer = proxy.post(CHAT, body)
    assert answer.status_code == 400
    assert "exceeds the available context size" in answer.text
    fixed, window, needed = map(int, re.findall(r"\d+", answer.headers["x-ullage-window"]))
    assert fixed > window == WINDOW
    assert needed > fixed


def test_a_library_call_is_not_lowered_by_tools_that_the_server_leaves_out(
    toolless: Server,
) -> None:
    guard = ullage.Guard("tiny", base_url=toolless.base_url, runtime=Runtime())
    history = told_before()
    found = 0
    with httpx2.Client(trust_env=False) as client:
        for turn in range(24):
            history.append({"role": "user", "content": f"Now {turn}. " + "what is there? " * 5})
            body = request("openai_chat", history)
            view = guard.prepare(history, tools=body["tools"], max_tokens=ASKED)
            assert view.kwargs["max_tokens"] == ASKED
            compaction = view.compaction
            if compaction is not None:
                found += 1
                assert compaction.after.tokens < compaction.before.tokens <= WINDOW
            url = f"{toolless.base_url}/chat/completions"
            sent = client.post(url, json={**body, **view.kwargs})
            assert said("openai_chat", sent.json()) == (tinymodel.SENTENCE, "stop")
            view.observe(sent.json())
            history.append({"role": "assistant", "content": tinymodel.SENTENCE})
    assert 1 <= found <= 8
