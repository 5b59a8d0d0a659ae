"""A summarizer over HTTP: a real server in both dialects, and answers that no real one gives."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from tests.support import faults
from ullage.core.dialects.usage import Usage
from ullage.core.errors import ConfigurationError, ContextTooLargeError, ProviderError
from ullage.core.summary.question import SummaryRequest
from ullage.embedded import Server
from ullage.guard.summarizer import Summarizer
from ullage.runtime import Runtime

REQUEST = SummaryRequest("You keep records.", "Record this: x", "x", 64, 3)
DIALECTS = ("openai_chat", "anthropic")


@pytest.fixture
def runtime() -> Runtime:
    return Runtime()


def at(base_url: str, runtime: Runtime, **options: Any) -> Summarizer:
    return Summarizer("tiny", base_url=base_url, runtime=runtime, **options)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_real_server_is_asked_in_either_dialect(
    tiny_server: Server, runtime: Runtime, dialect: str
) -> None:
    summarizer = at(tiny_server.base_url, runtime, dialect=dialect)
    assert summarizer.window == 2048
    answer = summarizer(REQUEST)
    assert answer.text
    assert not answer.cut
    assert answer.usage is not None
    assert answer.usage.prompt_tokens > 0
    twin = asyncio.run(at(tiny_server.base_url, runtime, dialect=dialect).acall(REQUEST))
    assert (twin.text, twin.cut) == (answer.text, answer.cut)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_real_answer_that_was_cut_says_so(
    tiny_server: Server, runtime: Runtime, dialect: str
) -> None:
    assert at(tiny_server.base_url, runtime, dialect=dialect, max_tokens=2)(REQUEST).cut


def test_a_request_over_the_window_is_not_sent(tiny_server: Server, runtime: Runtime) -> None:
    long = replace(REQUEST, prompt="pump " * 3000)
    with pytest.raises(ContextTooLargeError, match="smaller piece") as caught:
        at(tiny_server.base_url, runtime)(long)
    assert caught.value.bound == 2048


def body_of(served: faults.FaultServer) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(served.requests[-1].body)
    return body


CHAT = {
    "choices": [{"message": {"content": "Goal:\n- go"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 9, "completion_tokens": 3},
}
MESSAGES = {
    "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "Goal:\n- go"}],
    "stop_reason": "max_tokens",
    "usage": {"input_tokens": 9, "output_tokens": 3},
}


def test_the_answer_is_bounded_by_all_who_have_a_say(runtime: Runtime) -> None:
    with faults.FaultServer({"POST /v1/chat/completions": faults.of_json(CHAT)}) as served:
        base = f"{served.root_url}/v1"
        for window, most, wanted in ((None, None, 64), (None, 9, 9), (40, 64, None)):
            at(base, runtime, window=window, max_tokens=most)(REQUEST)
            sent = body_of(served)["max_tokens"]
            assert sent == wanted or (wanted is None and 1 <= sent < 40)
        body = body_of(served)
        assert body["temperature"] == 0
        assert "tools" not in body
        assert [m["role"] for m in body["messages"]] == ["system", "user"]


RESPONSE = {
    "object": "response",
    "status": "incomplete",
    "incomplete_details": {"reason": "max_output_tokens"},
    "output": [
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "Goal:\n- go"}],
        }
    ],
    "usage": {"input_tokens": 9, "output_tokens": 3},
}
OLLAMA = {
    "message": {"role": "assistant", "content": "Goal:\n- go"},
    "done": True,
    "done_reason": "length",
    "prompt_eval_count": 9,
    "eval_count": 3,
}


@pytest.mark.parametrize(
    ("dialect", "path", "body"),
    [("responses", "/v1/responses", RESPONSE), ("ollama", "/api/chat", OLLAMA)],
)
def test_every_dialect_can_be_asked(
    runtime: Runtime, dialect: str, path: str, body: dict[str, Any]
) -> None:
    with faults.FaultServer({f"POST {path}": faults.of_json(body)}) as served:
        summarizer = at(f"{served.root_url}/v1", runtime, dialect=dialect, window=4096)
        answer = summarizer(REQUEST)
        assert (answer.text, answer.cut, answer.usage) == ("Goal:\n- go", True, Usage(9, output=3))
        sent = body_of(served)
    if dialect == "ollama":
        assert sent["options"]["num_predict"] == REQUEST.max_tokens
        assert [m["role"] for m in sent["messages"]] == ["system", "user"]
    else:
        assert sent["max_output_tokens"] == REQUEST.max_tokens
        assert sent["instructions"] == REQUEST.system


@pytest.mark.parametrize("path", ["", "/v1", "/v1/"])
def test_anthropic_servers_are_found_with_and_without_v1(runtime: Runtime, path: str) -> None:
    with faults.FaultServer({"POST /v1/messages": faults.of_json(MESSAGES)}) as served:
        summarizer = at(
            served.root_url + path, runtime, dialect="claude", window=4096, api_key="k1"
        )
        answer = summarizer(REQUEST)
        assert (answer.text, answer.cut, answer.usage) == ("Goal:\n- go", True, Usage(9, output=3))
        assert body_of(served)["system"] == REQUEST.system
        headers = served.requests[-1].headers
        assert headers["x-api-key"] == "k1"
        assert headers["anthropic-version"] == "2023-06-01"


@pytest.mark.parametrize(
    ("dialect", "body"),
    [
        ("openai_chat", []),
        ("openai_chat", {}),
        ("openai_chat", {"choices": []}),
        ("openai_chat", {"choices": [{"text": "old"}]}),
        ("openai_chat", {"choices": ["x"]}),
        ("anthropic", CHAT),
    ],
)
def test_an_answer_without_a_message_is_the_servers_fault(
    runtime: Runtime, dialect: str, body: Any
) -> None:
    answers = {"POST /v1/*": faults.of_json(body)}
    with (
        faults.FaultServer(answers) as served,
        pytest.raises(ProviderError, match="without a message"),
    ):
        at(f"{served.root_url}/v1", runtime, dialect=dialect, window=4096)(REQUEST)


def test_a_message_without_text_is_an_empty_answer(runtime: Runtime) -> None:
    body = {"choices": [{"message": {"content": None}, "finish_reason": "length"}]}
    with faults.FaultServer({"POST /v1/*": faults.of_json(body)}) as served:
        answer = at(f"{served.root_url}/v1", runtime, window=4096)(REQUEST)
    assert (answer.text, answer.usage, answer.cut) == ("", None, True)


def test_errors_name_the_server_and_its_words_but_never_the_key(runtime: Runtime) -> None:
    refusal = faults.of_json({"error": {"message": "bad key sk-secret-1"}}, 401)
    with faults.FaultServer({"POST /v1/*": refusal}) as served:
        for key in ("sk-secret-1", None):
            with pytest.raises(ProviderError, match="answered 401") as caught:
                at(f"{served.root_url}/v1", runtime, window=4096, api_key=key)(REQUEST)
            assert ("sk-secret-1" in str(caught.value)) is (key is None)


def test_a_server_that_is_not_there_is_an_error_and_no_answer(runtime: Runtime) -> None:
    with faults.closed_port() as port:
        gone = at(f"http://127.0.0.1:{port}/v1", runtime, window=4096)
        with pytest.raises(ProviderError, match="cannot be asked"):
            gone(REQUEST)
        with pytest.raises(ProviderError, match="cannot be asked"):
            asyncio.run(gone.acall(REQUEST))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model": ""}, "needs a model"),
        ({"base_url": ""}, "needs a base_url"),
        ({"base_url": "ftp://x"}, "no http or https URL"),
        ({"dialect": "latin"}, "latin"),
        ({"max_tokens": 0}, "max_tokens is 0"),
        ({"timeout_s": -1}, "timeout_s is -1"),
        ({"parallel": 0}, "parallel is 0"),
        ({"window": 0}, "positive number"),
    ],
)
def test_senseless_settings_are_refused(changes: dict[str, Any], words: str) -> None:
    given = {"model": "m", "base_url": "http://127.0.0.1:1/v1"} | changes
    with pytest.raises(ConfigurationError, match=words):
        Summarizer(**given)


def test_without_a_runtime_the_shared_one_serves_and_no_password_is_shown() -> None:
    summarizer = Summarizer("m", base_url="http://me:pw@127.0.0.1:1/v1", window=99)
    assert repr(summarizer) == "Summarizer('m', base_url='http://127.0.0.1:1/v1')"
    assert (summarizer.window, asyncio.run(summarizer.awindow())) == (99, 99)
    assert summarizer.parallel == 4
