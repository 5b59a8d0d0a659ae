"""The fake upstream: its shapes please the SDKs, its window holds, and its faults are faults."""

from __future__ import annotations

import http.client
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import anthropic
import openai
import pytest

from bench.proxy import answers
from bench.proxy.contenders import environment
from bench.proxy.faking import FAULTS, Settings
from bench.proxy.processes import HOST, Program
from tests.support.waiting import eventually
from ullage.core.dialects import overflow

TEXT = answers.WORD * 20
ASK: list[Any] = [{"role": "user", "content": "Say a word, many times."}]
LONG: list[Any] = [{"role": "user", "content": "word " * 2_000}]


class Fake(NamedTuple):
    """The program under way."""

    program: Program
    port: int

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def ask(self, path: str, body: Any = None) -> tuple[int, bytes]:
        link = http.client.HTTPConnection(HOST, self.port, timeout=20)
        try:
            link.request("GET" if body is None else "POST", path, body and json.dumps(body))
            answer = link.getresponse()
            return answer.status, answer.read()
        finally:
            link.close()

    def set(self, **settings: Any) -> None:
        status, body = self.ask("/fake", settings)
        assert status == 200, body

    def counts(self) -> dict[str, int]:
        found: dict[str, int] = json.loads(self.ask("/fake")[1])
        return found


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fake]:
    folder = tmp_path_factory.mktemp("fake")
    command = [sys.executable, "-m", "bench.proxy.upstream", "--longest", "120"]
    with Program(command, folder / "errors.txt", None, environment(folder)) as program:
        yield Fake(program, json.loads(program.line())["port"])


@pytest.fixture
def fake(running: Fake) -> Fake:
    running.set(**{name: getattr(Settings(), name) for name in Settings.__slots__})
    return running


@pytest.fixture
def chat(fake: Fake) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{fake.url}/v1", api_key="k", max_retries=0, timeout=20) as client:
        yield client


@pytest.fixture
def claude(fake: Fake) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=fake.url, api_key="k", max_retries=0, timeout=20) as client:
        yield client


def streamed(chat: openai.OpenAI) -> list[Any]:
    options: Any = {"include_usage": True}
    return list(
        chat.chat.completions.create(model="m", messages=ASK, stream=True, stream_options=options)
    )


def test_the_openai_sdk_takes_its_answers(chat: openai.OpenAI):
    answer = chat.chat.completions.create(model="m", messages=ASK)
    assert answer.choices[0].message.content == TEXT
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == answers.counted({"messages": ASK})
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 20
    assert [model.id for model in chat.models.list()] == ["bench"]


def test_the_openai_sdk_takes_its_streams(chat: openai.OpenAI):
    *chunks, last = streamed(chat)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == TEXT
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert last.usage.completion_tokens == 20


def test_the_usage_of_a_stream_is_told_when_asked_for(fake: Fake, chat: openai.OpenAI):
    def usages() -> list[Any]:
        stream = chat.chat.completions.create(model="m", messages=ASK, stream=True)
        return [chunk.usage for chunk in stream if chunk.usage]

    assert usages() == []
    fake.set(usage="always")
    assert len(usages()) == 1


def test_the_anthropic_sdk_takes_its_answers(claude: anthropic.Anthropic):
    answer = claude.messages.create(model="m", messages=ASK, max_tokens=100)
    assert answer.content[0].type == "text"
    assert answer.content[0].text == TEXT
    assert answer.usage.input_tokens == answers.counted({"messages": ASK})


def test_the_anthropic_sdk_takes_its_streams(claude: anthropic.Anthropic):
    with claude.messages.stream(model="m", messages=ASK, max_tokens=100) as stream:
        assert "".join(stream.text_stream) == TEXT
        final = stream.get_final_message()
    assert (final.stop_reason, final.usage.output_tokens) == ("end_turn", 20)


def test_ollama_s_frames_are_lines_of_which_the_last_has_the_counts(fake: Fake):
    _, body = fake.ask("/api/chat", {"model": "m", "messages": ASK})
    *lines, last = map(json.loads, body.splitlines())
    assert "".join(line["message"]["content"] for line in lines) == TEXT
    assert (last["done"], last["eval_count"]) == (True, 20)
    _, body = fake.ask("/api/chat", {"model": "m", "messages": ASK, "stream": False})
    assert json.loads(body)["message"]["content"] == TEXT


def test_what_is_over_the_window_is_refused_in_llama_cpp_s_words(fake: Fake, chat: openai.OpenAI):
    fake.set(window=1_000)
    with pytest.raises(openai.BadRequestError) as caught:
        chat.chat.completions.create(model="m", messages=LONG)
    found = overflow.classify(caught.value.status_code, {"error": caught.value.body})
    assert (found.limit, found.input_tokens) == (1_000, answers.counted({"messages": LONG}))
    assert chat.chat.completions.create(model="m", messages=ASK).choices
    assert fake.counts()["refused"] == 1


def test_an_answer_ends_at_the_window(fake: Fake, chat: openai.OpenAI):
    count = answers.counted({"messages": ASK})
    fake.set(window=count + 3)
    answer = chat.chat.completions.create(model="m", messages=ASK)
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 3


def test_a_silent_server_cuts_the_oldest_messages(fake: Fake, chat: openai.OpenAI):
    fake.set(window=1_000, silent=True)
    many = [{"role": "system", "content": "x" * 400}] + [
        {"role": "user", "content": "y" * 800} for _ in range(10)
    ]
    for messages, left in ((many, 104 + 4 * 204), (LONG, 500)):
        asked: Any = messages
        answer = chat.chat.completions.create(model="m", messages=asked)
        assert answer.usage is not None
        assert answer.usage.prompt_tokens == left
    assert fake.counts()["cut"] == 2


@pytest.mark.parametrize(
    ("fault", "raised"), [("429", openai.RateLimitError), ("500", openai.InternalServerError)]
)
def test_an_error_befalls_one_request(fake, chat, fault, raised):
    fake.set(faults=["", fault])
    streamed(chat)
    with pytest.raises(raised):
        streamed(chat)
    assert streamed(chat)


@pytest.mark.parametrize(
    ("fault", "raised"),
    [("garbage", Exception), ("cut", openai.APIError), ("restart", openai.APIError)],
)
def test_a_broken_stream_is_broken(fake, chat, fault, raised):
    fake.set(faults=[fault])
    with pytest.raises(raised):
        streamed(chat)
    assert streamed(chat)


def test_a_stream_may_end_without_its_last_event(fake: Fake):
    fake.set(faults=["ends"])
    body = {"messages": ASK, "stream": True}
    assert b"[DONE]" not in fake.ask("/v1/chat/completions", body)[1]
    assert b"[DONE]" in fake.ask("/v1/chat/completions", body)[1]


@pytest.mark.parametrize(("fault", "seen"), [("hang", b"data: "), ("mute", b"")])
def test_a_client_that_leaves_a_hanging_server_is_counted(fake, fault, seen):
    counts = fake.counts()
    fake.set(faults=[fault])
    link = http.client.HTTPConnection(HOST, fake.port, timeout=20)
    link.request("POST", "/v1/chat/completions", json.dumps({"messages": ASK, "stream": True}))
    if seen:
        assert link.getresponse().read(len(seen)) == seen
    eventually(lambda: fake.counts()["requests"] == counts["requests"] + 1)
    link.close()
    eventually(lambda: fake.counts()["left"] == counts["left"] + 1)


def test_a_restart_brings_the_smaller_window(fake: Fake, chat: openai.OpenAI):
    fake.set(window=100_000, smaller=1_000, faults=["", "restart"])
    assert chat.chat.completions.create(model="m", messages=LONG).choices
    with pytest.raises(openai.APIConnectionError):
        chat.chat.completions.create(model="m", messages=LONG)
    with pytest.raises(openai.BadRequestError, match=r"\(1000 tokens\)"):
        chat.chat.completions.create(model="m", messages=LONG)


@pytest.mark.parametrize("fault", ["cut", "garbage"])
def test_a_whole_answer_may_be_broken_too(fake, chat, fault):
    fake.set(faults=[fault])
    with pytest.raises((openai.APIError, json.JSONDecodeError)):
        chat.chat.completions.create(model="m", messages=ASK)


def test_the_window_is_told_on_the_paths_that_are_asked_for(fake: Fake):
    fake.set(window=4_096)
    assert [fake.ask(path)[0] for path in ("/props", "/api/ps", "/api/show")] == [404] * 3
    fake.set(tells=["props", "ollama"])
    props, listed, show = (json.loads(fake.ask(p)[1]) for p in ("/props", "/api/ps", "/api/show"))
    assert props["default_generation_settings"]["n_ctx"] == 4_096
    assert listed["models"][0]["context_length"] == 4_096
    assert show["model_info"]["qwen2.context_length"] == 131_072


def test_the_last_body_is_given_back(fake: Fake, chat: openai.OpenAI):
    chat.chat.completions.create(model="m", messages=ASK)
    assert json.loads(fake.ask("/fake/last")[1]) == {"messages": ASK, "model": "m"}


def test_a_body_that_is_no_json_is_refused(fake: Fake):
    link = http.client.HTTPConnection(HOST, fake.port, timeout=20)
    link.request("POST", "/v1/messages", b"{")
    answer = link.getresponse()
    assert (answer.status, json.loads(answer.read())["type"]) == (400, "error")
    link.close()


def test_settings_are_checked():
    with pytest.raises(ValueError, match="no setting windw: chunks, faults, "):
        Settings().but({"windw": 3})
    with pytest.raises(ValueError, match=f"no fault 418: {', '.join(FAULTS)}"):
        Settings().but({"faults": ["418"]})


def test_it_ends_with_its_input(tmp_path: Path):
    command = [sys.executable, "-m", "bench.proxy.upstream"]
    with Program(command, tmp_path / "errors.txt", None, environment(tmp_path)) as program:
        assert json.loads(program.line())["port"]
        program.told(b"", 20)
        assert program.ended
    assert (tmp_path / "errors.txt").read_text() == ""


def test_it_ends_when_its_time_is_over(tmp_path: Path):
    command = [sys.executable, "-m", "bench.proxy.upstream", "--longest", "0.1"]
    with Program(command, tmp_path / "errors.txt", None, environment(tmp_path)) as program:
        program.line()
        assert program.line() == b""
    assert "ends after 0.1 s" in (tmp_path / "errors.txt").read_text()
