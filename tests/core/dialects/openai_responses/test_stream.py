"""Answers of the Responses API, as OpenAI documents them and as llama.cpp sends them."""

from __future__ import annotations

from typing import Any

import pytest

from ullage.core.dialects.openai_responses.stream import Responses
from ullage.core.dialects.registry import make_reader
from ullage.core.dialects.reply import Assembly, Delta
from ullage.core.dialects.usage import Usage
from ullage.core.messages.transcript import Call

USAGE = {"input_tokens": 9, "output_tokens": 3, "input_tokens_details": {"cached_tokens": 4}}


def event(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}", **fields}


def ended(*output: Any, status: str = "completed", **more: Any) -> dict[str, Any]:
    response = {"object": "response", "status": status, "output": list(output), "usage": USAGE}
    return event(status, response={**response, **more})


def message(text: str, name: str = "msg_1") -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": []}
    return {"type": "message", "id": name, "role": "assistant", "content": [part]}


def call(name: str | None = "fc_1", arguments: str = '{"q":1}', **more: Any) -> dict[str, Any]:
    fields = {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": arguments}
    return {**fields, **({"id": name} if name else {}), **more}


def heard(*events: dict[str, Any]) -> tuple[Assembly, list[Delta]]:
    into = make_reader("openai_responses", "salt")
    return into, [delta for one in events for delta in into.take(one)]


def test_text_arrives_in_pieces_and_usage_with_the_end() -> None:
    into, deltas = heard(
        event("created", response={}), event("in_progress", response={}),
        event("output_item.added", output_index=0, item={**message(""), "content": []}),
        event("content_part.added", output_index=0, item_id="msg_1", part={"type": "output_text"}),
        event("output_text.delta", output_index=0, item_id="msg_1", delta="Hel"),
        event("output_text.delta", output_index=0, item_id="msg_1", delta="lo"),
        event("output_text.done", output_index=0, item_id="msg_1", text="Hello"),
        event("output_item.done", output_index=0, item=message("Hello")),
        ended(message("Hello")),
    )  # fmt: skip
    made = into.reply()
    assert into.ended
    assert (made.text, made.stop, made.calls) == ("Hello", "end", ())
    assert made.usage == Usage(5, 4, 0, 3)
    assert made.report["usage"] == USAGE
    assert deltas == [Delta("text_delta", "Hel"), Delta("text_delta", "lo")]


def test_an_opening_is_no_content() -> None:
    item = {**message(""), "content": []}
    opening = (event("created", response={}), event("output_item.added", item=item))
    into, _ = heard(*opening)
    assert not into.begun
    into, _ = heard(*opening, event("output_text.delta", item_id="msg_1", delta="x"))
    assert (into.begun, into.ended) == (True, False)


def test_reasoning_items_are_kept_whole_to_be_sent_back() -> None:
    item = {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [],
        "encrypted_content": "x",
    }
    into, deltas = heard(
        event("output_item.added", output_index=0, item={"type": "reasoning", "id": "rs_1"}),
        event("reasoning_summary_text.delta", output_index=0, item_id="rs_1", delta="H"),
        event("reasoning_text.delta", output_index=0, item_id="rs_1", delta="m"),
        event("output_item.done", output_index=0, item=item),
        event("output_item.done", output_index=1, item=message("Yes")),
        ended(item, message("Yes")),
    )
    assert into.reply().thoughts == (item,)
    assert into.text == "Yes"
    assert [delta.text for delta in deltas] == ["H", "m", "Yes"]


def test_calls_arrive_in_fragments_and_the_whole_item_is_believed() -> None:
    into, deltas = heard(
        event("output_item.added", output_index=0, item=call(arguments="")),
        event("function_call_arguments.delta", output_index=0, item_id="fc_1", delta='{"q"'),
        event("function_call_arguments.delta", output_index=0, item_id="fc_1", delta=":1}"),
        event("output_item.done", output_index=0, item=call()),
        ended(call()),
    )
    made = into.reply()
    assert (made.calls, made.stop) == ((Call("call_1", "look", '{"q":1}'),), "calls")
    assert (deltas, into.called) == ([], True)


@pytest.mark.parametrize("place", [{"output_index": 0}, {}])
@pytest.mark.parametrize("done", [True, False])
def test_calls_are_the_same_without_ids_of_items_or_places(place: dict, done: bool) -> None:
    """llama.cpp sends no `output_index` and no `id`, and its `item_id` is the call id."""
    item = call(None)
    events = [
        event("output_item.added", item=call(None, ""), **place),
        event("function_call_arguments.delta", item_id="call_1", delta='{"q":1}', **place),
    ]
    if done:
        events += [event("output_item.done", item=item, **place), ended(item)]
    else:
        events.append(ended())
    into, _ = heard(*events)
    assert into.reply().calls == (Call("call_1", "look", '{"q":1}'),)


def test_calls_without_any_id_are_two_calls() -> None:
    bare = {"type": "function_call", "name": "f", "arguments": "{}"}
    events = [event("output_item.added", item=bare), event("output_item.done", item=bare)]
    into, _ = heard(*events, *events, ended(bare, bare))
    first, second = into.reply().calls
    assert first.id != second.id


def test_ids_that_change_with_every_event_do_no_harm() -> None:
    into, _ = heard(
        event("output_item.added", output_index=0, item=message("", "x1")),
        event("output_text.delta", output_index=0, item_id="x2", delta="Hel"),
        event("output_text.delta", output_index=0, item_id="x3", delta="lo"),
        event("output_item.done", output_index=0, item=message("Hello", "x4")),
        event("output_item.done", output_index=1, item=call("x5")),
        ended(message("Hello", "x6"), call("x7")),
    )
    assert into.text == "Hello"
    assert len(into.reply().calls) == 1


def test_two_calls_under_one_place_stay_two() -> None:
    items = [call("fc_1"), call("fc_2", call_id="call_2")]
    into, _ = heard(*(event("output_item.done", output_index=0, item=item) for item in items))
    assert [made.id for made in into.reply().calls] == ["call_1", "call_2"]


def test_an_item_told_twice_is_one() -> None:
    done = event("output_item.done", output_index=0, item=message("Hi"))
    into, deltas = heard(done, done, ended(message("Hi")))
    assert into.text == "Hi"
    assert deltas == [Delta("text_delta", "Hi")]


def test_items_that_only_the_end_tells_are_taken() -> None:
    into, deltas = heard(
        event("output_text.delta", output_index=0, item_id="msg_1", delta="Hi"),
        event("output_item.done", output_index=0, item=message("Hi")),
        ended(message("Hi"), call()),
    )
    assert into.text == "Hi"
    assert len(into.reply().calls) == 1
    assert len(deltas) == 1


def test_pieces_of_an_item_that_never_came_whole_are_put_together() -> None:
    into, _ = heard(
        event("output_text.delta", delta="a"), event("output_text.delta", delta="b"),
        event("output_text.delta", delta=""), ended(),
    )  # fmt: skip
    assert into.text == "ab"


def test_a_cut_answer_and_a_withheld_one_say_so() -> None:
    stops = {"max_output_tokens": "length", "content_filter": "filter", "new": "other"}
    for reason, stop in stops.items():
        cut = ended(message("x"), status="incomplete", incomplete_details={"reason": reason})
        assert heard(cut)[0].reply().stop == stop
    assert heard(event("completed", response={"status": "cancelled"}))[0].reply().stop == "other"


def test_a_refusal_is_text_that_was_withheld() -> None:
    item = {"type": "message", "content": [{"type": "refusal", "refusal": "I can't"}]}
    into, _ = heard(
        event("refusal.delta", output_index=0, delta="I can't"),
        event("output_item.done", output_index=0, item=item), ended(item),
    )  # fmt: skip
    assert (into.text, into.reply().stop) == ("I can't", "filter")
    into, _ = heard(event("refusal.delta", delta="No"), event("refusal.done"), ended())
    assert (into.text, into.reply().stop) == ("No", "filter")


def test_timings_beside_the_response_stand_in_for_usage() -> None:
    timings = {"cache_n": 5, "prompt_n": 2, "predicted_n": 3}
    done = {**ended(message("x"), usage=None), "timings": timings}
    assert heard(done)[0].reply().usage == Usage(2, 5, 0, 3)


def test_a_whole_response_is_taken_like_its_events() -> None:
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": []}
    into, deltas = heard(ended(reasoning, message("Hi"), call())["response"])
    made = into.reply()
    assert into.ended
    assert (made.text, made.stop, made.thoughts) == ("Hi", "calls", (reasoning,))
    assert made.calls == (Call("call_1", "look", '{"q":1}'),)
    assert made.usage == Usage(5, 4, 0, 3)
    assert deltas == [Delta("text_delta", "Hi")]


@pytest.mark.parametrize(
    "failure",
    [
        {"type": "error", "code": "context_length_exceeded", "message": "too long"},
        event("failed", response={"status": "failed", "error": {"code": "server_error"}}),
        {"error": {"code": 400, "message": "no"}},
    ],
)
def test_an_error_within_the_stream_is_kept(failure: dict[str, Any]) -> None:
    into = Responses()
    into.take(failure)
    assert into.failed is failure
    assert not into.ended


def test_a_whole_response_that_failed_is_an_error() -> None:
    whole = {"object": "response", "status": "failed", "error": {"code": "server_error"}}
    into, _ = heard(whole)
    assert into.failed == whole
    assert not into.ended
    into, _ = heard({**whole, "error": None})
    assert into.failed is not None
    assert not into.ended
