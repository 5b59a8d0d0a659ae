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
from tests.support.faults import Answer, FaultServer, closed_port, hanging, html, of_json
from ullage.config.settings import Settings
from ullage.core.dialects.anthropic.codec import Anthropic
from ullage.core.dialects.ollama_chat.codec import OllamaChat
from ullage.core.dialects.openai_chat.codec import OpenAIChat
from ullage.core.dialects.openai_responses.codec import OpenAIResponses
from ullage.core.dialects.registry import DIALECTS, find
from ullage.core.messages.media import image_rule
from ullage.core.messages.transcript import Message, Part, Transcript
from ullage.core.tokens.calibration import ReportedSize
from ullage.embedded import Server
from ullage.lessons import MOST
from ullage.runtime import (
    BESIDE,
    MOST_METERS,
    Measurable,
    Messages,
    Runtime,
    default,
    plain,
    system_text,
    weight,
)
from ullage.transport import Timeouts, Transport
from ullage.windows import Question

SHORT = Timeouts(connect_s=5.0, read_s=1.0)

CODECS: tuple[Callable[[Messages], Any], ...] = (
    OpenAIChat,
    Anthropic,
    OpenAIResponses,
    OllamaChat,
)
PROPS = {"default_generation_settings": {"n_ctx": 2048}, "total_slots": 1}
COUNT = "POST /v1/chat/completions/input_tokens"
HELLO = [{"role": "user", "content": "hello"}]


@pytest.fixture
def runtime() -> Runtime:
    return Runtime(transport=Transport(SHORT))


def sync(runtime: Runtime, question: Question, messages: list[Any], tools: Any) -> int | None:
    return runtime.server_count(question, "openai_chat", Measurable(messages, tools))


def awaited(runtime: Runtime, question: Question, messages: list[Any], tools: Any) -> int | None:
    body = Measurable(messages, tools)
    return asyncio.run(runtime.aserver_count(question, "openai_chat", body))


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
    runtime.learn(question, ReportedSize(1250, 990, 10))
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
    runtime.learn(Question("gpt-4o"), ReportedSize(2000, 990, 10))
    assert runtime.meter(Question("gpt-4o")).basis == "exact"


def test_what_stands_outside_the_messages_is_learned_apart(runtime) -> None:
    question = Question("m", "http://127.0.0.1:1/v1")
    for content in range(1000, 13_000, 1000):
        runtime.learn(question, ReportedSize(700 + content, content, 3, (1700, 1000)))
    body = Measurable([{"role": "user", "content": "word " * 2000}])
    measured = runtime.measure(question, OpenAIChat().read(body.messages), body)
    assert measured.fixed.best == 3
    count, content = measured.count(), measured.total.best
    assert count.low <= content + 700 <= count.high
    assert count.tokens == pytest.approx(content + 700, rel=0.02)
    other = Measurable(body.messages, tools=[{"name": "ls"}])
    assert runtime.measure(question, OpenAIChat().read(body.messages), other).extra == 0


def test_a_first_report_that_no_vocabulary_explains_calibrates_nothing_yet(runtime) -> None:
    question = Question("m", "http://127.0.0.1:1/v1")
    runtime.learn(question, ReportedSize(3000, 90, 10))
    assert runtime.meter(question).basis == "estimate"
    runtime.learn(question, ReportedSize(3600, 590, 10, (3000, 90)))
    assert runtime.meter(question).basis == "calibrated"


def test_a_dialect_has_its_own_framing_and_a_model_its_own_images(runtime) -> None:
    for dialect in DIALECTS:
        framing = find(dialect).framing
        meter = runtime.meter(Question("gpt-4o"), dialect)
        assert (meter.framing.message, meter.framing.slack) == (framing.message, framing.slack)
        assert meter.framing.image == image_rule("gpt-4o")
    assert runtime.meter(Question("gpt-4o")) is runtime.meter(Question("gpt-4o"))


def test_no_more_than_a_number_of_meters_is_kept(runtime) -> None:
    for n in range(MOST_METERS + 2):
        runtime.meter(Question(f"m{n}"))
    assert len(runtime._meters) <= MOST_METERS


def test_threads_that_learn_at_once_lose_nothing(runtime) -> None:
    question = Question("m", "http://127.0.0.1:1/v1")
    barrier = threading.Barrier(8)

    def learn(_: int) -> None:
        barrier.wait()
        for _ in range(100):
            runtime.learn(question, ReportedSize(1500, 990, 10))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(learn, range(8)))
    lesson = runtime.lessons.find(question.key).calibration
    assert (lesson.ratio, lesson.seen) == (1.5, 800)


def test_lessons_are_kept_of_so_many_models_and_a_new_word_on_one_drops_none() -> None:
    runtime = Runtime()
    at = "http://127.0.0.1:9/v1"
    for n in range(MOST):
        runtime.learn(Question(f"m{n}", at), ReportedSize(1500, 1000, 0))
    runtime.learn(Question("m0", at), ReportedSize(3000, 1000, 0))
    assert runtime.meter(Question("m1", at)).basis == "calibrated"
    runtime.learn(Question("another", at), ReportedSize(1500, 1000, 0))
    assert runtime.meter(Question("m0", at)).basis == "calibrated"
    assert runtime.meter(Question("m1", at)).basis == "estimate"  # heard of longest ago


# --- messages read before -------------------------------------------------------------------------


def of(text: str) -> Message:
    return Message("user", (Part("text", text),))


def test_a_message_weighs_its_text_and_what_is_made_of_it() -> None:
    assert weight(of("a" * 500)) == BESIDE + 500


def test_beyond_the_weight_all_are_forgotten_but_the_newest() -> None:
    kept = Messages(3 * BESIDE)
    for name in "abc":
        kept[name] = of("")
    assert list(kept) == ["a", "b", "c"]
    kept["d"] = of("")
    assert list(kept) == ["d"]


def test_a_message_kept_twice_weighs_once() -> None:
    kept = Messages(2 * BESIDE)
    kept["a"] = of("")
    for _ in range(5):
        kept["b"] = of("")
    assert list(kept) == ["a", "b"]


def test_one_message_above_all_weight_is_kept_until_the_next() -> None:
    kept = Messages(BESIDE)
    kept["a"] = of("a" * 5000)
    kept["b"] = of("b")
    assert list(kept) == ["b"]


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.__name__)
def test_codecs_read_right_whatever_was_forgotten(codec: Callable[[Messages], Any]) -> None:
    memo = Messages(4 * BESIDE)
    tight, fresh = codec(memo), codec(Messages())
    history = [
        {"role": "user" if n % 2 == 0 else "assistant", "content": f"number {n}"} for n in range(20)
    ]
    for stop in range(1, 21):
        again: Transcript = tight.read(history[:stop])
        assert [m.text for m in again.messages] == [f"number {n}" for n in range(stop)]
        assert len(memo) <= 4
    once, anew = tight.read(history), fresh.read(history)
    assert [m.digest for m in once.messages] == [m.digest for m in anew.messages]


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


@pytest.mark.parametrize("counting", [sync, awaited])
def test_a_prompt_that_comes_again_is_not_asked_about_twice(runtime, counting) -> None:
    with FaultServer({"/props": of_json(PROPS), COUNT: of_json({"input_tokens": 7})}) as server:
        question = Question("m", server.base_url)
        runtime.windows.window(question)
        for _ in range(3):
            assert counting(runtime, question, HELLO, None) == 7
        assert counting(runtime, question, [*HELLO, *HELLO], None) == 7
        asked = [r for r in server.requests if r.path.endswith("input_tokens")]
    assert len(asked) == 2


def test_a_count_that_failed_is_asked_for_again(runtime, server_count) -> None:
    answers = (html(500), of_json({"input_tokens": 7}))
    with FaultServer({"/props": of_json(PROPS), COUNT: answers}) as server:
        question = Question("m", server.base_url)
        runtime.windows.window(question)
        assert server_count(runtime, question, HELLO, None) is None
        assert server_count(runtime, question, HELLO, None) == 7


def test_offline_no_provider_is_asked_to_count() -> None:
    runtime = Runtime(settings=Settings(offline=True))
    question = Question("claude-sonnet-4", "https://api.anthropic.com", "sk-1")
    assert runtime.server_count(question, "anthropic", Measurable(HELLO)) is None


# --- requests as they come ------------------------------------------------------------------------


@pytest.mark.parametrize("named", ["openai_chat", "openai_responses", "anthropic"])
def test_a_named_dialect_is_read_as_such_and_its_reader_is_kept(runtime, named) -> None:
    read = runtime.read(Measurable(HELLO, dialect=named))
    assert read.rules.dialect == named
    assert runtime.codec_for(named) is runtime.codec_for(named)


def test_a_dialect_that_nobody_speaks_is_refused(runtime) -> None:
    with pytest.raises(ullage.ConfigurationError, match="'klingon' is unknown"):
        runtime.read(Measurable(HELLO, dialect="klingon"))


def test_the_dialect_shows_in_the_messages(runtime) -> None:
    block = {"type": "tool_use", "id": "t", "name": "ls", "input": {}}
    spoken = [*HELLO, {"role": "assistant", "content": [block]}]
    assert runtime.read(Measurable(spoken)).rules.dialect == "anthropic"
    assert runtime.read(Measurable([{"type": "reasoning"}])).rules.dialect == "openai_responses"
    assert runtime.read(Measurable(HELLO)).rules.dialect == "openai_chat"


class Block:
    """An object of an SDK."""

    def model_dump(self, **options: Any) -> dict[str, Any]:
        return {"type": "text", "text": "hello"}


@pytest.mark.parametrize(
    ("system", "text"),
    [
        (None, None),
        ("be brief", "be brief"),
        ([{"type": "text", "text": "a"}, Block()], "a\nhello"),
        (["a"], "a"),
        ([{"type": "x"}], ""),
        ([], ""),
    ],
)
def test_a_system_prompt_is_text_or_blocks_with_text(system, text) -> None:
    assert system_text(system) == text


def test_objects_of_an_sdk_become_plain_also_inside_a_message() -> None:
    dumped = Block().model_dump()
    assert plain(None) is None
    assert plain("text") == "text"
    assert plain([Block(), 7]) == [dumped, 7]
    message = {"role": "assistant", "content": [Block(), "x"], "tool_calls": [Block()], "x": None}
    expected = {"role": "assistant", "content": [dumped, "x"], "tool_calls": [dumped], "x": None}
    assert plain([message]) == [expected]


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
        assert sync(runtime, question, HELLO, None) is None
