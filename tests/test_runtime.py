"""What guards share: meters and what was learned, counts that servers give, one default."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from openai.types.chat import ChatCompletionMessage

import ullage
from ullage.embedded import Server
from ullage.runtime import MOST_MESSAGES, Lesson, Messages, Runtime, default
from ullage.testing.faults import Answer, FaultServer, closed_port, hanging, html, of_json
from ullage.transport import Timeouts, Transport
from ullage.windows import Question

SHORT = Timeouts(connect_s=0.5, read_s=0.2)
PROPS = {"default_generation_settings": {"n_ctx": 2048}, "total_slots": 1}
COUNT = "POST /v1/chat/completions/input_tokens"
HELLO = [{"role": "user", "content": "hello"}]


@pytest.fixture
def runtime() -> Runtime:
    return Runtime(transport=Transport(SHORT))


def sync(runtime: Runtime, question: Question, messages: list[Any], tools: Any) -> int | None:
    return runtime.server_count(question, messages, tools)


def awaited(runtime: Runtime, question: Question, messages: list[Any], tools: Any) -> int | None:
    return asyncio.run(runtime.aserver_count(question, messages, tools))


@pytest.fixture(params=[sync, awaited])
def server_count(request: pytest.FixtureRequest) -> Callable[..., int | None]:
    counting: Callable[..., int | None] = request.param
    return counting


# --- meters ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("question", "basis"),
    [
        (Question("gpt-4o"), "exact"),
        (Question("gpt-4o", override=1000), "exact"),
        (Question("gpt-4o", "https://api.openai.com/v1"), "exact"),
        (Question("unheard-of"), "estimate"),
        (Question(None), "estimate"),
        (Question("gpt-4o", "http://127.0.0.1:1/v1"), "estimate"),
        (Question("gpt-4o", "http://127.0.0.1:1/v1", override=1000), "estimate"),
    ],
)
def test_a_vocabulary_counts_as_exact_only_where_a_name_means_the_model(
    runtime, question, basis
) -> None:
    assert runtime.meter(question).basis == basis


def test_what_is_learned_calibrates_its_endpoint_model_and_key_only(runtime) -> None:
    question = Question("m", "http://127.0.0.1:1/v1", "sk-1")
    runtime.learn(question, 1.25)
    meter = runtime.meter(question)
    assert meter.basis == "calibrated"
    assert meter.scale.low < meter.scale.best == 1.25 < meter.scale.high
    for other in (
        Question("n", question.base_url, "sk-1"),
        Question("m", "http://127.0.0.1:2/v1", "sk-1"),
        Question("m", question.base_url, "sk-2"),
    ):
        assert runtime.meter(other).basis == "estimate"


def test_an_exact_vocabulary_is_not_bent_by_what_was_reported(runtime) -> None:
    runtime.learn(Question("gpt-4o"), 2.0)
    assert runtime.meter(Question("gpt-4o")).basis == "exact"


def test_many_readings_narrow_the_band_and_follow_a_change_slowly() -> None:
    lesson = Lesson(1.0, 1)
    wide = lesson.scale()
    for _ in range(30):
        lesson = lesson.and_then(1.0)
    narrow = lesson.scale()
    assert narrow.high - narrow.low < wide.high - wide.low
    moved = lesson.and_then(2.0)
    assert 1.0 < moved.ratio < 1.2
    for _ in range(60):
        moved = moved.and_then(2.0)
    assert moved.ratio == pytest.approx(2.0, abs=0.01)


def test_threads_that_learn_at_once_lose_nothing(runtime) -> None:
    question = Question("m", "http://127.0.0.1:1/v1")
    barrier = threading.Barrier(8)

    def learn(_: int) -> None:
        barrier.wait()
        for _ in range(100):
            runtime.learn(question, 1.5)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(learn, range(8)))
    assert runtime._lessons[question.scope, "m"] == Lesson(1.5, 800)


# --- messages read before -------------------------------------------------------------------------


def test_messages_read_before_are_kept_up_to_a_number() -> None:
    kept = Messages()
    for n in range(MOST_MESSAGES):
        kept[n] = n
    assert len(kept) == MOST_MESSAGES
    kept["one more"] = 1
    assert dict(kept) == {"one more": 1}


# --- the server's own count -----------------------------------------------------------------------


def test_a_real_server_counts_a_request_with_tools_and_sdk_objects(
    runtime, server_count, tiny_server: Server
) -> None:
    question = Question("tiny", tiny_server.base_url)
    runtime.windows.window(question)
    plain = server_count(runtime, question, HELLO, None)
    answer = ChatCompletionMessage(role="assistant", content="hello to you")
    longer = server_count(runtime, question, [*HELLO, answer, *HELLO], None)
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
    with_tool = server_count(runtime, question, HELLO, [tool])
    assert 0 < plain < longer
    assert plain < with_tool


def test_an_sdk_object_is_counted_without_what_it_does_not_say(runtime, server_count) -> None:
    with FaultServer({"/props": of_json(PROPS), COUNT: of_json({"input_tokens": 7})}) as server:
        question = Question("m", server.base_url)
        runtime.windows.window(question)
        answer = ChatCompletionMessage(role="assistant", content="hello to you")
        assert server_count(runtime, question, [*HELLO, answer], None) == 7
        body = json.loads(server.requests[-1].body)
    said = {"role": "assistant", "content": "hello to you"}
    assert body == {"model": "m", "messages": [*HELLO, said]}


def test_a_server_that_was_not_recognised_is_not_asked_to_count(runtime, server_count) -> None:
    with FaultServer({"/props": html(), COUNT: of_json({"input_tokens": 7})}) as server:
        question = Question("m", server.base_url)
        assert server_count(runtime, question, HELLO, None) is None
        runtime.windows.window(question)
        assert server_count(runtime, question, HELLO, None) is None
        assert COUNT not in [f"{r.method} {r.path}" for r in server.requests]
    assert server_count(runtime, Question("gpt-4o"), HELLO, None) is None


@pytest.mark.parametrize(
    "answer",
    [
        *[of_json({"input_tokens": n}) for n in (0, -7, True, "7", 7.0, None)],
        of_json({}),
        of_json([7]),
        of_json({"error": {"message": "File Not Found"}}, 404),
        html(500),
        hanging(),
        Answer(200, (b"",)),
    ],
)
def test_a_count_that_is_none_is_none(runtime, server_count, answer) -> None:
    with FaultServer({"/props": of_json(PROPS), COUNT: answer}) as server:
        question = Question("m", server.base_url)
        runtime.windows.window(question)
        assert server_count(runtime, question, HELLO, None) is None


def test_a_server_that_is_gone_gives_no_count(runtime, server_count) -> None:
    with FaultServer({"/props": of_json(PROPS)}) as server:
        question = Question("m", server.base_url)
        runtime.windows.window(question)
    assert server_count(runtime, question, HELLO, None) is None


def test_a_message_that_json_cannot_carry_gives_no_count(runtime, server_count) -> None:
    odd: list[Any] = [{"role": "user", "content": [{"type": "x", ("a", "b"): 1}]}]
    with FaultServer({"/props": of_json(PROPS), COUNT: of_json({"input_tokens": 7})}) as server:
        question = Question("m", server.base_url)
        runtime.windows.window(question)
        assert server_count(runtime, question, odd, None) is None


# --- the default ----------------------------------------------------------------------------------


def test_there_is_one_default_runtime_for_all_threads() -> None:
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: default(), range(32)))
    assert all(runtime is found[0] for runtime in found)


def test_the_default_runtime_is_made_anew_after_a_fork() -> None:
    code = """
import os, ullage.runtime as r
mine = r.default()
child = os.fork()
if child == 0:
    os._exit(0 if r.default() is not mine and r.default() is r.default() else 1)
_, status = os.waitpid(child, 0)
assert r.default() is mine
raise SystemExit(os.waitstatus_to_exitcode(status))
"""
    src = str(Path(ullage.__file__).parent.parent)
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": src}, timeout=60, check=False
    )
    assert done.returncode == 0


def test_a_dead_server_costs_one_try(runtime) -> None:
    with closed_port() as port:
        question = Question("m", f"http://127.0.0.1:{port}/v1")
        assert not runtime.windows.window(question).known
        assert runtime.server_count(question, HELLO, None) is None
