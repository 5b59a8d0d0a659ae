"""Ollama's own API in the proxy: options, lines, single prompts, and refusals in every dialect."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ullage
from ullage.core.dialects.lines import Lines
from ullage.core.dialects.ollama_chat import options
from ullage.core.dialects.overflow import classify
from ullage.core.dialects.registry import DIALECTS, find
from ullage.core.dialects.sse import Garbled
from ullage.core.messages.transcript import DialectName
from ullage.proxy import answers
from ullage.proxy.relay import LineRelay as Relayed

LAST = {
    "model": "qwen3",
    "message": {"role": "assistant", "content": ""},
    "done": True,
    "done_reason": "stop",
    "total_duration": 9,
    "prompt_eval_count": 2050,
    "eval_count": 7,
}


def line(event: Any) -> bytes:
    return json.dumps(event, ensure_ascii=False).encode() + b"\n"


def said(text: str, **more: Any) -> bytes:
    return line({"message": {"role": "assistant", "content": text, **more}, "done": False})


def test_the_operators_window_is_the_same_whatever_a_request_asks_for():
    asked: list[dict[str, Any]] = [
        {},
        {"options": None},
        {"options": {"num_ctx": 2048}},
        {"options": {"num_ctx": 9e9}},
    ]
    assert [options.write_options(f, 8192) for f in asked] == [{"num_ctx": 8192}] * 4
    assert [options.find_window(f, 8192) for f in asked] == [8192] * 4


def test_options_keep_what_else_they_hold_and_their_order():
    given_ = {"options": {"temperature": 0, "num_ctx": 2048, "seed": 1}}
    made = options.write_options(given_, num_ctx=8192, num_predict=64)
    assert json.dumps(made) == ('{"temperature": 0, "num_ctx": 8192, "seed": 1, "num_predict": 64}')
    assert given_["options"]["num_ctx"] == 2048


@pytest.mark.parametrize("fields", [{}, {"options": {"num_ctx": 8192}}, {"options": [1]}])
def test_options_stay_where_nothing_is_wanted(fields: Any):
    assert options.write_options(fields) is None


def test_options_stay_where_they_say_what_is_wanted():
    assert options.write_options({"options": {"num_ctx": 8192, "seed": 1}}, num_ctx=8192) is None


@pytest.mark.parametrize(
    ("value", "tokens"),
    [
        (64, 64),
        (64.9, 64),
        (0, None),
        (-1, None),
        (-2, None),
        (True, None),
        ("64", None),
        (None, None),
        (float("nan"), None),
        (float("inf"), None),
        (2**41, None),
    ],
)
def test_window_and_limit_of_a_request_are_numbers_of_tokens_or_unknown(value: Any, tokens: Any):
    assert options.find_window({"options": {"num_ctx": value}}) == tokens
    assert options.find_limit({"options": {"num_predict": value}}) == tokens


@pytest.mark.parametrize("fields", [{}, {"options": None}, {"options": "x"}])
def test_a_request_without_options_leaves_window_and_limit_to_the_server(fields: Any):
    assert (options.find_window(fields), options.find_limit(fields)) == (None, None)


def test_a_single_prompt_is_counted_with_all_that_goes_before_the_model():
    fields = {
        "system": "be brief",
        "template": "{{ .Prompt }}",
        "prompt": "def f(",
        "suffix": "return x",
        "images": ["aGk="],
        "context": [1, 2, 3],
    }
    messages, context = options.read_single(fields)
    assert messages == (
        {"role": "system", "content": "be brief\n{{ .Prompt }}"},
        {"role": "user", "content": "def f(\nreturn x", "images": ["aGk="]},
    )
    assert context == 3
    assert ullage.count(list(messages), model="gpt-4o", dialect="ollama_chat").tokens > 10


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"model": "qwen3", "keep_alive": 0},
        {"prompt": "", "system": "be brief", "context": [1]},
        {"prompt": 7, "suffix": [1], "images": "aGk="},
        {"prompt": None, "images": [7], "context": "x"},
    ],
)
def test_a_request_without_a_prompt_loads_the_model_and_there_is_nothing_to_check(fields: Any):
    assert options.read_single(fields) == ((), 0)


def test_a_prompt_alone_is_one_message():
    said_ = ({"role": "user", "content": "hi"},)
    assert options.read_single({"prompt": "hi", "context": {"a": 1}}) == (said_, 0)


# --- what is answered -----------------------------------------------------------------------------


def run(*chunks: bytes) -> tuple[Relayed, list[bytes]]:
    relayed, cutter, out = Relayed("ollama_chat"), Lines(), list[bytes]()
    for chunk in chunks:
        out += cutter.feed(chunk)
        relayed.feed(chunk)
    relayed.rest()
    return relayed, [*out, left] if (left := cutter.end()) else out


STREAM = b"".join([said(""), said("a\u2028b\r\x0b"), b"\n", said("\\n"), line(LAST)])


@given(cuts=st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_lines_are_the_upstreams_own_bytes_however_they_are_cut(cuts: list[int]):
    places = [0, *sorted(cuts), len(STREAM)]
    frames, lines = run(*(STREAM[a:b] for a, b in pairwise(places)))
    assert b"".join(lines) == STREAM
    assert all(text.endswith(b"\n") and text.count(b"\n") == 1 for text in lines)
    assert (frames.begun, frames.ended, frames.failed) == (True, True, None)


@given(st.binary(max_size=200), st.integers(0, 200))
def test_any_bytes_pass_as_they_are(data: bytes, cut: int):
    assert b"".join(run(data[:cut], data[cut:])[1]) == data


def test_the_last_line_tells_what_a_view_learns_from():
    frames, _ = run(said("a"), line(LAST))
    assert frames.report == {
        "model": "qwen3",
        "done_reason": "stop",
        "prompt_eval_count": 2050,
        "eval_count": 7,
    }
    guard = ullage.Guard("qwen3", window=4096, dialect="ollama_chat", runtime=ullage.Runtime())
    view = guard.prepare([{"role": "user", "content": "hi"}])
    assert view.observe(frames.report).input_tokens == 2050


def test_an_answer_that_is_no_stream_is_one_line_without_its_end():
    body = json.dumps({**LAST, "message": {"content": "done"}}, indent=None).encode()
    frames, lines = run(body[:20], body[20:])
    assert lines == [body]
    assert frames.ended
    assert frames.report is not None


def test_nothing_has_begun_before_there_is_content():
    frames = Relayed("ollama_chat")
    frames.feed(said(""))
    frames.feed(b"[1]\nnot json\n\xff\n")
    frames.feed(line({"message": "odd", "done": False}))
    assert not frames.begun


@pytest.mark.parametrize(
    "event",
    [
        {"message": {"content": "a"}},
        {"message": {"content": "", "thinking": "hm"}},
        {"message": {"content": "", "tool_calls": [{"function": {"name": "f"}}]}},
        {"response": "a", "done": False},
        {"response": "", "thinking": "hm"},
    ],
)
def test_text_thinking_and_calls_are_content(event: Any):
    frames, _ = run(line(event))
    assert (frames.begun, frames.ended) == (True, False)


def test_words_that_look_like_the_end_are_words():
    frames, _ = run(said("a"), said('{"done":true} {"error": "x"}'), said('"error"'))
    assert (frames.ended, frames.failed) == (False, None)


@pytest.mark.parametrize("before", [b"", said("a")])
def test_an_error_is_a_line_of_its_own_before_and_behind_content(before: bytes):
    frames, _ = run(before, line({"error": "an error was encountered while running the model"}))
    assert frames.failed == {"error": "an error was encountered while running the model"}
    assert not frames.ended


def test_a_stream_that_is_cut_off_has_not_ended():
    frames, lines = run(said("a"), line(LAST)[:-9])
    assert (frames.ended, frames.report) == (False, None)
    assert lines[-1] == line(LAST)[:-9]


def test_a_line_over_the_bound_is_garbled_however_it_arrives():
    with pytest.raises(Garbled, match="longer than 10 bytes"):
        Lines(10).feed(b"x" * 11)
    with pytest.raises(Garbled, match="longer than 10 bytes"):
        Lines(10).feed(b"x" * 11 + b"\n")
    frames = Lines(10)
    with pytest.raises(Garbled, match="longer than 10 bytes"):
        [frames.feed(b"x") for _ in range(11)]
    assert Lines(10).feed(b"0123456789\n" * 3) == [b"0123456789\n"] * 3


break_off = find("ollama_chat").errors.break_off


def test_a_client_learns_in_a_line_of_its_own_that_the_stream_broke_off():
    whole = break_off("the upstream ended early", b"")
    assert json.loads(whole) == {"error": "the upstream ended early"}
    assert whole.endswith(b"\n")
    assert break_off("x", said("a")) == break_off("x", b"")
    assert break_off("x", b'{"mess') == b"\n" + break_off("x", b"")


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", DIALECTS)
@given(bound=st.integers(1, 10**9), more=st.integers(1, 10**9))
def test_a_refusal_is_read_back_as_what_it_says(dialect: DialectName, bound: int, more: int):
    refused = answers.refuse_too_large(dialect, bound + more, bound)
    status, body = refused.status, refused.body
    found = classify(status, body)
    assert (found.kind, found.certainty) == ("input", "certain")
    assert (found.input_tokens, found.limit) == (bound + more, bound)


def test_refusals_have_the_shapes_that_clients_know():
    shapes = {d: json.loads(answers.refuse_too_large(d, 9000, 4096).body) for d in DIALECTS}
    assert shapes["openai_chat"]["error"]["code"] == "context_length_exceeded"
    assert shapes["openai_chat"]["error"]["param"] == "messages"
    assert shapes["openai_responses"]["error"]["param"] == "input"
    assert shapes["anthropic"]["type"] == "error"
    assert shapes["anthropic"]["error"]["type"] == "invalid_request_error"
    assert list(shapes["ollama_chat"]) == ["error"]
    assert isinstance(shapes["ollama_chat"]["error"], str)
