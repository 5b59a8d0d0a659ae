"""Answers of Anthropic's Messages API, as it documents them."""

from __future__ import annotations

from typing import Any

import pytest

from ullage.core.dialects.anthropic.stream import MessagesAnswer
from ullage.core.dialects.registry import make_reader
from ullage.core.dialects.reply import Assembly, Delta
from ullage.core.dialects.usage import Usage
from ullage.core.messages.transcript import Call

START = {
    "type": "message_start",
    "message": {"id": "msg_1", "content": [], "usage": {"input_tokens": 7, "output_tokens": 1}},
}
STOP = {"type": "message_stop"}


def begins(index: int | None, **block: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def grows(index: int | None, kind: str, **delta: Any) -> dict[str, Any]:
    return {
        "type": "content_block_delta", "index": index, "delta": {"type": f"{kind}_delta", **delta},
    }  # fmt: skip


def ends(reason: str, **usage: int) -> dict[str, Any]:
    return {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage}


def heard(*events: dict[str, Any]) -> tuple[Assembly, list[Delta]]:
    into = make_reader("anthropic", "salt")
    return into, [delta for event in events for delta in into.take(event)]


def test_text_arrives_in_pieces_and_usage_at_both_ends() -> None:
    into, deltas = heard(
        START, {"type": "ping"}, begins(0, type="text", text=""), grows(0, "text", text="Hel"),
        grows(0, "text", text="lo"), {"type": "content_block_stop", "index": 0},
        ends("end_turn", output_tokens=5, cache_read_input_tokens=3), STOP,
    )  # fmt: skip
    made = into.reply()
    assert into.ended
    assert (made.text, made.stop) == ("Hello", "end")
    assert made.usage == Usage(7, 3, 0, 5)
    assert made.report["stop_reason"] == "end_turn"
    assert deltas == [Delta("text_delta", "Hel"), Delta("text_delta", "lo")]


def test_an_opening_is_no_content() -> None:
    opening = (START, {"type": "ping"}, begins(0, type="text", text=""))
    into, _ = heard(*opening)
    assert not into.begun
    into, _ = heard(*opening, grows(0, "text", text="x"))
    assert (into.begun, into.ended) == (True, False)


def test_thinking_is_kept_with_its_signature_to_be_sent_back() -> None:
    into, deltas = heard(
        START, begins(0, type="thinking", thinking="", signature=""),
        grows(0, "thinking", thinking="Hm"), grows(0, "thinking", thinking="m."),
        grows(0, "signature", signature="EqQB"), begins(1, type="redacted_thinking", data="xyz"),
        begins(2, type="text", text=""), grows(2, "text", text="Yes"), ends("end_turn"), STOP,
    )  # fmt: skip
    assert into.reply().thoughts == (
        {"type": "thinking", "thinking": "Hmm.", "signature": "EqQB"},
        {"type": "redacted_thinking", "data": "xyz"},
    )
    assert into.text == "Yes"
    assert [delta.kind for delta in deltas] == ["reasoning_delta"] * 2 + ["text_delta"]


def test_a_call_arrives_as_fragments_of_json() -> None:
    into, deltas = heard(
        START, begins(0, type="tool_use", id="toolu_1", name="look", input={}),
        grows(0, "input_json", partial_json=""), grows(0, "input_json", partial_json='{"q": '),
        grows(0, "input_json", partial_json="1}"),
        begins(1, type="tool_use", id="toolu_2", name="look", input={}),
        ends("tool_use"), STOP,
    )  # fmt: skip
    made = into.reply()
    assert made.calls == (Call("toolu_1", "look", '{"q": 1}'), Call("toolu_2", "look", "{}"))
    assert (made.stop, deltas, into.called) == ("calls", [], True)


@pytest.mark.parametrize(
    ("given", "unlike"), [(["", ""], True), (["a", "a"], True), ([None, 7], True)]
)
def test_ids_that_tell_no_call_apart_are_made(given: list[Any], unlike: bool) -> None:
    into, _ = heard(*(begins(i, type="tool_use", id=g, name="f") for i, g in enumerate(given)))
    first, second = into.reply().calls
    assert (first.id != second.id) is unlike
    assert first.id
    assert second.id


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("end_turn", "end"), ("stop_sequence", "end"), ("tool_use", "end"),
        ("max_tokens", "length"), ("model_context_window_exceeded", "length"),
        ("refusal", "filter"), ("pause_turn", "other"), ("new", "other"),
    ],
)  # fmt: skip
def test_the_reason_to_stop_is_read(reason: str, stop: str) -> None:
    into, _ = heard(START, begins(0, type="text", text="x"), ends(reason), STOP)
    assert into.reply().stop == stop


def test_deltas_without_an_index_belong_to_the_last_block() -> None:
    into, _ = heard(
        START, begins(None, type="text", text="a"), grows(None, "text", text="b"),
        begins(None, type="text", text="c"), grows(None, "text", text="d"),
    )  # fmt: skip
    assert into.text == "abcd"


def test_deltas_that_fit_no_block_are_passed_over() -> None:
    into, deltas = heard(
        grows(0, "text", text="too early"), START, begins(0, type="thinking", thinking=""),
        grows(0, "text", text="odd"), grows(0, "citations", citation={}), {"type": "new_event"},
    )  # fmt: skip
    assert deltas == []
    assert into.text == ""


def test_what_the_server_edited_is_reported() -> None:
    edits = {"applied_edits": [{"type": "clear_tool_uses_20250919"}]}
    into, _ = heard(START, {**ends("end_turn"), "context_management": edits}, STOP)
    assert into.reply().report["context_management"] == edits


def test_a_whole_message_is_taken_like_its_events() -> None:
    content = [
        {"type": "thinking", "thinking": "Hm", "signature": "s"},
        {"type": "text", "text": "Hi"},
        {"type": "tool_use", "id": "a", "name": "f", "input": {"q": 1}},
    ]
    usage = {"input_tokens": 3, "output_tokens": 2}
    into, deltas = heard(
        {"type": "message", "content": content, "stop_reason": "tool_use", "usage": usage}
    )
    made = into.reply()
    assert into.ended
    assert (made.text, made.calls, made.stop) == ("Hi", (Call("a", "f", '{"q": 1}'),), "calls")
    assert made.thoughts == (content[0],)
    assert made.usage == Usage(3, output=2)
    assert deltas == [Delta("reasoning_delta", "Hm"), Delta("text_delta", "Hi")]


@pytest.mark.parametrize(
    "event", [{"type": "error", "error": {"type": "overloaded_error"}}, {"error": {"code": 400}}]
)
def test_an_error_within_the_stream_is_kept(event: dict[str, Any]) -> None:
    into = MessagesAnswer()
    into.take(event)
    assert into.failed is event
