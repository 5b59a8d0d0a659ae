"""Answers of Chat Completions, as OpenAI documents them and as servers send them."""

from __future__ import annotations

from typing import Any

import pytest

from ullage.core.dialects.openai_chat.stream import ChatAnswer
from ullage.core.dialects.registry import make_reader
from ullage.core.dialects.reply import Delta, Reply
from ullage.core.dialects.usage import Usage
from ullage.core.messages.transcript import Call


def chunk(delta: Any = None, finish: str | None = None, **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta or {}, "finish_reason": finish}
    return {"object": "chat.completion.chunk", "choices": [choice], **more}


def fragment(
    index: int | None = None, call_id: Any = None, name: Any = None, arguments: Any = None
) -> dict[str, Any]:
    fields = {"index": index, "id": call_id, "function": {"name": name, "arguments": arguments}}
    return {key: value for key, value in fields.items() if value is not None}


def asked(*fragments: dict[str, Any]) -> tuple[Call, ...]:
    """Return the calls of an answer that sends these fragments, a chunk each."""
    into = make_reader("openai_chat", "salt")
    for piece in fragments:
        assert into.take(chunk({"tool_calls": [piece]})) == []
    assert into.called
    return into.reply().calls


def heard(*events: dict[str, Any]) -> tuple[Reply, list[Delta]]:
    into = make_reader("openai_chat")
    deltas = [delta for event in events for delta in into.take(event)]
    assert into.ended
    return into.reply(), deltas


def begun(*events: dict[str, Any]) -> bool:
    """Tell whether content has arrived in an answer that has not ended."""
    into = ChatAnswer()
    for event in events:
        into.take(event)
    assert not into.ended
    return into.begun


def test_text_arrives_in_pieces_and_usage_behind_the_end() -> None:
    usage = {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11}
    made, deltas = heard(
        chunk({"role": "assistant", "content": None}),
        chunk({"content": "Hel"}),
        chunk({"content": "lo"}),
        chunk({}, "stop"),
        {"choices": [], "usage": usage},
    )
    assert made.text == "Hello"
    assert made.stop == "end"
    assert made.usage == Usage(9, output=2)
    assert made.report == {"usage": usage, "choices": [{"finish_reason": "stop"}]}
    assert deltas == [Delta("text_delta", "Hel"), Delta("text_delta", "lo")]


def test_a_role_alone_is_no_content() -> None:
    role, text = chunk({"role": "assistant", "content": ""}), chunk({"content": "x"})
    assert not begun(role)
    assert begun(role, text)


def test_timings_stand_in_where_usage_is_missing() -> None:
    timings = {"cache_n": 5, "prompt_n": 2, "predicted_n": 3}
    made, _ = heard(chunk({"content": "x"}, "stop", timings=timings))
    assert made.usage == Usage(2, 5, 0, 3)
    made, _ = heard(
        chunk({"content": "x"}, "stop"),
        {"choices": [], "timings": timings, "usage": {"prompt_tokens": 8, "completion_tokens": 4}},
    )
    assert made.usage == Usage(8, output=4)


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_reasoning_comes_back_under_the_name_it_came_by(name: str) -> None:
    thought = (chunk({name: "Hm"}), chunk({name: "m."}))
    made, deltas = heard(*thought, chunk({"content": "Yes"}, "stop"))
    assert made.thoughts == ({name: "Hmm."},)
    assert made.text == "Yes"
    assert deltas[0] == Delta("reasoning_delta", "Hm")


def test_reasoning_sent_under_both_names_is_taken_once() -> None:
    made, deltas = heard(chunk({"reasoning_content": "Hm", "reasoning": "Hm"}), chunk({}, "stop"))
    assert made.thoughts == ({"reasoning_content": "Hm"},)
    assert len(deltas) == 1


def test_blocks_of_reasoning_are_put_together_and_keep_their_signature() -> None:
    def detail(**fields: Any) -> dict[str, Any]:
        return chunk({"reasoning_details": [{"type": "reasoning.text", "index": 0, **fields}]})

    made, _ = heard(
        detail(text="Let me", format="anthropic"),
        detail(text=" see", signature=None),
        detail(signature="sig"),
        chunk({"reasoning_details": [{"type": "reasoning.encrypted", "index": 1, "data": "x"}]}),
        chunk({"content": "Yes"}, "stop"),
    )
    text = {"type": "reasoning.text", "index": 0, "text": "Let me see", "format": "anthropic"}
    encrypted = {"type": "reasoning.encrypted", "index": 1, "data": "x"}
    assert made.thoughts == ({"reasoning_details": [{**text, "signature": "sig"}, encrypted]},)


def test_a_call_arrives_in_fragments() -> None:
    calls = asked(
        fragment(0, "c1", "look", ""),
        fragment(0, None, None, '{"q": '),
        fragment(0, None, None, "1}"),
    )
    assert calls == (Call("c1", "look", '{"q": 1}'),)


def test_fragments_of_parallel_calls_may_alternate() -> None:
    calls = asked(
        fragment(0, "a", "f", ""), fragment(1, "b", "g", ""),
        fragment(0, None, None, "[0]"), fragment(1, None, None, "[1]"),
    )  # fmt: skip
    assert calls == (Call("a", "f", "[0]"), Call("b", "g", "[1]"))


@pytest.mark.parametrize(
    ("fragments", "expected"),
    [
        pytest.param(
            [fragment(0, "a", "f", "{}"), fragment(0, "b", "g", "{}")], ["f{}", "g{}"],
            id="whole calls under one index, with ids",
        ),
        pytest.param(
            [fragment(0, None, "f", "{}"), fragment(0, None, "g", '{"a":1}')], ["f{}", 'g{"a":1}'],
            id="whole calls under one index, without ids",
        ),
        pytest.param(
            [fragment(None, None, "f", "{}"), fragment(None, None, "f", "{}")], ["f{}", "f{}"],
            id="whole calls without index and id",
        ),
        pytest.param(
            [fragment(None, "a", "f", '{"x"'), fragment(None, None, None, ":1}")], ['f{"x":1}'],
            id="fragments without index",
        ),
        pytest.param(
            [fragment(None, "a", "f", "{"), fragment(None, "b", "g", "{"),
             fragment(None, "a", None, "}"), fragment(None, "b", "g", "}")], ["f{}", "g{}"],
            id="fragments told apart by id",
        ),
        pytest.param(
            [fragment(0, "a", "f", '{"x":'), fragment(0, "a", "f", "1}")], ['f{"x":1}'],
            id="name and id repeated",
        ),
        pytest.param(
            [fragment(0, "a", "f", "{}"), fragment(0, None, "f", "")], ["f{}"],
            id="name repeated at the end",
        ),
        pytest.param(
            [fragment(0, "a", "f", ""), fragment(0, "z", None, "{}")], ["f{}"],
            id="another id with every fragment",
        ),
        pytest.param(
            [fragment(None, "a", "f", '{"x"'), fragment(None, "a", "f", ":1}"),
             fragment(None, "a", "g", "{}")], ['f{"x":1}', "g{}"],
            id="two calls under one id",
        ),
        pytest.param(
            [fragment(0, "a", "lo", ""), fragment(0, None, "ok", "{}")], ["look{}"],
            id="name in fragments",
        ),
        pytest.param([fragment(0, "a", "f", {"x": 1})], ['f{"x": 1}'], id="arguments as object"),
        pytest.param([fragment(0, "a", "f")], ["f{}"], id="no arguments"),
        pytest.param([fragment(None, None, None, "{}")], ["{}"], id="no name"),
        pytest.param(
            [fragment(0, None, "f", "{"), fragment(0, None, "f", "}")], ["f{}"],
            id="name repeated within arguments",
        ),
    ],
)  # fmt: skip
def test_calls_are_told_apart_as_servers_send_them(fragments: list, expected: list[str]) -> None:
    calls = asked(*fragments)
    assert [call.name + call.arguments for call in calls] == expected
    assert len({call.id for call in calls}) == len(calls)


def test_a_function_call_of_the_old_form_is_a_call() -> None:
    into = ChatAnswer()
    into.take(chunk({"function_call": {"name": "look", "arguments": '{"q"'}}))
    into.take(chunk({"function_call": {"arguments": ":1}"}}, "function_call"))
    (call,) = into.reply().calls
    assert (call.name, call.arguments) == ("look", '{"q":1}')
    assert into.reply().stop == "calls"


@pytest.mark.parametrize(
    ("finish", "calls", "stop"),
    [
        ("stop", False, "end"), ("stop", True, "calls"), ("tool_calls", True, "calls"),
        ("tool_calls", False, "end"), ("length", False, "length"), ("length", True, "length"),
        ("content_filter", False, "filter"), ("eos", False, "other"),
    ],
)  # fmt: skip
def test_the_reason_to_stop_is_read_beside_the_calls(finish: str, calls: bool, stop: str) -> None:
    delta = {"tool_calls": [fragment(0, "a", "f", "{}")]} if calls else {"content": "x"}
    made, _ = heard(chunk(delta), chunk({}, finish))
    assert made.stop == stop


def test_a_refusal_is_text_that_was_withheld() -> None:
    made, deltas = heard(chunk({"refusal": "I can't"}), chunk({}, "stop"))
    assert (made.text, made.stop) == ("I can't", "filter")
    assert deltas == [Delta("text_delta", "I can't")]


def test_content_in_parts_is_text() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}]
    made, _ = heard(chunk({"content": parts}, "stop"))
    assert made.text == "ab"


def test_other_choices_are_passed_over() -> None:
    made, _ = heard(
        {"choices": [{"index": 1, "delta": {"content": "no"}, "finish_reason": "length"}]},
        chunk({"content": "yes"}, "stop"),
    )
    assert (made.text, made.stop) == ("yes", "end")


def test_a_whole_completion_is_taken_like_its_chunks() -> None:
    message = {"role": "assistant", "content": "Hi", "tool_calls": [fragment(None, "a", "f", "{}")]}
    made, deltas = heard({
        "object": "chat.completion",
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 1},
    })  # fmt: skip
    assert (made.text, made.calls, made.stop) == ("Hi", (Call("a", "f", "{}"),), "calls")
    assert made.usage == Usage(3, output=1)
    assert deltas == [Delta("text_delta", "Hi")]


@pytest.mark.parametrize("index", [None, 0])
def test_calls_of_a_whole_completion_stand_by_themselves(index: int | None) -> None:
    into = make_reader("openai_chat", "salt")
    calls = [fragment(index, "a", "f", '{"x":'), fragment(index, "a", "f", "1}")]
    into.take({"choices": [{"index": 0, "message": {"tool_calls": calls}}]})
    first, second = into.reply().calls
    assert first == Call("a", "f", '{"x":')
    assert (second.name, second.arguments) == ("f", "1}")
    assert second.id not in ("", "a")


@pytest.mark.parametrize(
    "event",
    [
        {"error": {"message": "overloaded", "code": 503}},
        {"error": "no"},
        {"object": "error", "message": "too long", "code": 400},
        {"choices": [], "error": {"message": "x"}},
        {"choices": [{"index": 0, "delta": {"content": ""}}], "error": {"code": 502}},
    ],
)
def test_an_error_within_the_stream_is_kept(event: dict[str, Any]) -> None:
    into = ChatAnswer()
    into.take(chunk({"content": "so far"}))
    into.take(event)
    assert into.failed is event
    assert into.text == "so far"
    assert not into.ended


def test_calls_of_one_name_under_one_id_are_two_and_a_repeated_one_is_one():
    def asked(arguments: str) -> dict[str, Any]:
        return {"id": "a", "function": {"name": "f", "arguments": arguments}}

    reader = ChatAnswer()
    for arguments in ('{"x": 1}', '{"x": 2}', '{"x": 2}'):
        reader.take({"choices": [{"delta": {"tool_calls": [asked(arguments)]}}]})
    last = {"delta": {}, "message": {"tool_calls": [asked('{"x": 2}')]}}
    reader.take({"choices": [last]})
    assert [(c.name, c.arguments) for c in reader.reply().calls] == [
        ("f", '{"x": 1}'),
        ("f", '{"x": 2}'),
    ]
