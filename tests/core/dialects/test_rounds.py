"""Several rounds as one answer, frame by frame: what a client sees, under which numbers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from ullage.core.dialects import registry
from ullage.core.dialects.rounds import Rounds, leaves_choice, write_frame

OURS = "ullage_search"
DONE = b"data: [DONE]\n\n"
Event = dict[str, Any]


def rounds(dialect: str) -> Rounds:
    added = registry.find(dialect).added_tools
    assert added is not None
    return added.make_rounds(frozenset({OURS}))


def spaced(event: Event) -> bytes:
    """Write a frame as no part of ours does, so that one that was written anew shows."""
    return b"data: " + json.dumps(event, indent=1).replace("\n", "").encode() + b"\n\n"


def seen(made: Rounds, *events: Event) -> list[Event]:
    """Return the events that a client gets of a round."""
    data = b"".join([made.take(event, spaced(event)) for event in events])
    frames = [f for f in data.split(b"\n\n") if f]
    return [json.loads(frame.split(b"data: ", 1)[1]) for frame in frames]


def test_the_choice_is_the_models_where_nobody_takes_it():
    left = [leaves_choice(c) for c in (None, "auto", {"type": "auto"})]
    taken = [leaves_choice(c) for c in ("none", "required", "any", {"type": "tool"}, {}, 3)]
    assert (left, taken) == ([True] * 3, [False] * 6)


def test_a_frame_is_named_by_its_type():
    assert write_frame({"type": "ping"}) == b'event: ping\ndata: {"type":"ping"}\n\n'
    assert write_frame({"id": "é"}) == b'data: {"id":"\\u00e9"}\n\n'


# --- Chat Completions -----------------------------------------------------------------------------


def chunk(delta: Event, finish: str | None = None, name: str = "x") -> Event:
    return {"id": name, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def call(name: str = "", index: Any = 0, given: str = "") -> Event:
    function = {"arguments": given} | ({"name": name} if name else {})
    return chunk({"tool_calls": [{"index": index, "function": function}]})


ROLE = chunk({"role": "assistant", "content": ""})
USAGE = {"id": "x", "choices": [], "usage": {"prompt_tokens": 1}}


def test_a_chat_round_without_calls_is_untouched():
    made = rounds("openai_chat")
    events = [ROLE, chunk({"content": "so"}), chunk({}, "stop"), USAGE]
    raw = [*map(spaced, events), DONE, b": ping\n\n"]
    taken = [made.take(e, f) for e, f in zip([*events, None, None], raw, strict=True)]
    assert b"".join(taken) == b"".join(raw)
    assert taken[0] == b""
    assert (made.shown, made.turned, made.end()) == (True, False, b"")


def test_what_opens_a_round_waits_and_goes_out_at_its_end():
    made = rounds("openai_chat")
    assert made.take(ROLE, b"role") + made.take(None, b"ping") == b""
    assert made.end() == b"roleping"
    assert not made.shown


def test_an_error_goes_out_behind_what_waited_whatever_the_round_asked_for():
    made = rounds("openai_chat")
    made.take(ROLE, b"role ")
    assert made.take({"error": {"message": "no"}}, b"error") == b"role error"
    assert seen(made, call(OURS)) == []
    assert made.take({"error": {"message": "no"}}, b"error") == b"error"
    assert (made.turned, made.shown) == (True, False)


def test_a_chat_call_of_ours_ends_what_the_client_sees():
    made = rounds("openai_chat")
    asked = [{"index": n, "function": {"name": name}} for n, name in enumerate((OURS, "weather"))]
    with_text = chunk({"content": "a", "tool_calls": asked})
    first = seen(made, ROLE, with_text, call("weather", 1), chunk({}, "tool_calls"), USAGE)
    assert first == [ROLE, chunk({"content": "a"})]
    made.begin()
    events = [ROLE, chunk({"content": "b"}, name="y"), chunk({"content": "c"}, name="y")]
    usage = {**chunk({}, name="y"), "usage": {"prompt_tokens": 1}}
    second = seen(made, *events, usage, chunk({}, "stop", name="y"))
    assert [e["choices"][0]["delta"].get("content") for e in second] == ["\n\nb", "c", None, None]
    assert {e["id"] for e in second[:2]} == {"x"}


def test_a_chat_text_in_parts_is_not_parted_anew():
    made = rounds("openai_chat")
    seen(made, chunk({"content": [{"type": "text", "text": "a"}]}), call(OURS))
    made.begin()
    assert seen(made, chunk({"content": "b"})) == [chunk({"content": "b"})]


def test_chat_calls_of_ours_behind_the_clients_are_left_out_without_a_gap():
    made = rounds("openai_chat")
    both = chunk(
        {"tool_calls": [{"index": 2, "function": {"name": "f"}},
                        {"index": 3, "function": {"name": OURS}}]}
    )  # fmt: skip
    got = seen(
        made, call("weather", 0), call(OURS, 1), call("", 1, "{}"), both, call("", 2, "{}"),
        call("again", 1), chunk({}, "tool_calls"),
    )  # fmt: skip
    calls = [c for e in got for c in e["choices"][0]["delta"].get("tool_calls", ())]
    assert [(c["index"], c["function"].get("name")) for c in calls] == [
        (0, "weather"), (1, "f"), (1, None), (1, "again"),
    ]  # fmt: skip
    assert got[-1] == chunk({}, "tool_calls")
    assert not made.turned


@pytest.mark.parametrize("index", [None, 0])
def test_a_chat_call_in_a_closed_round_is_left_out_and_nothing_was_called(index: Any):
    made = rounds("openai_chat")
    made.begin(closed=True)
    assert seen(made, ROLE, call(OURS, index), chunk({}, "tool_calls")) == [ROLE, chunk({}, "stop")]


def test_a_function_call_of_old_is_the_clients():
    made = rounds("openai_chat")
    old = chunk({"function_call": {"name": "f"}})
    assert seen(made, old, call(OURS), chunk({}, "function_call")) == [
        old, chunk({}, "function_call"),
    ]  # fmt: skip


def completion(*names: str, finish: str = "tool_calls") -> Event:
    calls = [{"id": str(n), "function": {"name": name}} for n, name in enumerate(names)]
    message = {"content": "a"} | ({"tool_calls": calls} if calls else {})
    return {"choices": [{"message": message, "finish_reason": finish}]}


def test_a_whole_completion():
    made = rounds("openai_chat")
    plains: list[Event] = [completion(), completion("weather"), {"choices": []}]
    for plain in plains:
        assert made.take_whole(plain) is plain
        assert not made.turned
    made.take_whole(completion("weather", OURS))
    assert made.turned
    made.begin(closed=True)
    assert made.take_whole(completion("weather", OURS)) == completion("weather")
    assert made.take_whole(completion(OURS)) == completion(finish="stop")
    assert not made.turned


@pytest.mark.parametrize(
    ("request_", "shaped"),
    [
        ({}, False),
        ({"response_format": {"type": "text"}}, False),
        ({"response_format": {"type": "json_object"}}, True),
        ({"grammar": "root ::= x"}, True),
        ({"functions": []}, True),
    ],
)
def test_a_chat_request_that_prescribes_a_form(request_: Event, shaped: bool):
    assert is_shaped("openai_chat", request_) is shaped


def is_shaped(dialect: str, request: Event) -> bool:
    added = registry.find(dialect).added_tools
    assert added is not None
    return added.is_shaped(request)


# --- Messages -------------------------------------------------------------------------------------


START = {"type": "message_start", "message": {"id": "x"}}
STOP = {"type": "message_stop"}
PING = {"type": "ping"}


def block(index: int, kind: str, *more: Event, **fields: Any) -> list[Event]:
    start = {
        "type": "content_block_start",
        "index": index,
        "content_block": {"type": kind, **fields},
    }
    grown = [{"type": "content_block_delta", "index": index, "delta": one} for one in more]
    return [start, *grown, {"type": "content_block_stop", "index": index}]


def said(index: int, text: str = "a") -> list[Event]:
    return block(index, "text", {"type": "text_delta", "text": text}, text="")


def thought(index: int) -> list[Event]:
    return block(index, "thinking", {"type": "thinking_delta", "thinking": "hm"}, thinking="")


def used(index: int, name: str) -> list[Event]:
    return block(index, "tool_use", {"type": "input_json_delta", "partial_json": "{}"}, name=name)


def over(reason: str) -> Event:
    return {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {}}


def indices(events: Sequence[Event]) -> list[int]:
    return [e["index"] for e in events if e["type"] == "content_block_start"]


def test_a_message_without_calls_is_untouched_but_for_early_pings():
    made = rounds("anthropic")
    events = [START, *thought(0), *said(1), PING, *used(2, "weather"), over("tool_use"), STOP]
    assert seen(made, START, PING, *events[1:]) == events
    assert b"".join([made.take(STOP, b"raw")]) == b"raw"


def test_thoughts_alone_are_an_answer():
    made = rounds("anthropic")
    events = [START, *thought(0), over("end_turn"), STOP]
    assert seen(made, *events) == events


def test_thoughts_that_lead_to_a_call_of_ours_go_with_it():
    made = rounds("anthropic")
    first = seen(made, START, *said(0), *thought(1), *used(2, OURS), over("tool_use"), STOP)
    assert first == [START, *said(0)]
    assert made.turned
    made.begin()
    second = seen(made, START, *thought(0), *said(1), *used(2, "weather"), over("tool_use"), STOP)
    assert indices(second) == [1, 2, 3]
    assert second[-2:] == [over("tool_use"), STOP]


def test_a_message_that_says_nothing_before_it_calls_is_not_begun():
    made = rounds("anthropic")
    assert seen(made, START, *block(0, "text", text=""), *thought(1), *used(2, OURS)) == []
    made.begin()
    events = [START, *said(0), over("end_turn"), STOP]
    assert seen(made, *events) == events


def test_calls_of_ours_behind_the_clients_are_left_out_of_a_message():
    made = rounds("anthropic")
    events = [START, *used(0, "weather"), *thought(1), *used(2, OURS), *said(3), over("tool_use")]
    got = seen(made, *events)
    assert indices(got) == [0, 1]
    assert [e["content_block"].get("name") for e in got if "content_block" in e] == [
        "weather",
        None,
    ]
    assert got[-1] == over("tool_use")


def test_a_call_in_a_closed_message_is_left_out_and_the_turn_is_over():
    made = rounds("anthropic")
    made.begin(closed=True)
    assert seen(made, START, *used(0, OURS), over("tool_use")) == [START, over("end_turn")]


def test_a_whole_message():
    made = rounds("anthropic")
    text, think = {"type": "text", "text": "a"}, {"type": "thinking", "thinking": "hm"}
    ours, theirs = ({"type": "tool_use", "name": name} for name in (OURS, "weather"))
    plain = {"content": [think, theirs], "stop_reason": "tool_use"}
    assert made.take_whole(plain) is plain
    mixed = {"content": [text, think, ours, theirs], "stop_reason": "tool_use"}
    assert made.take_whole(mixed) is mixed
    assert made.turned
    made.begin(closed=True)
    assert made.take_whole(mixed) == {"content": [text, theirs], "stop_reason": "tool_use"}
    bare = {"content": [ours], "stop_reason": "tool_use"}
    assert made.take_whole(bare) == {"content": [], "stop_reason": "end_turn"}


def test_a_message_that_prescribes_a_form():
    form: Event = {"type": "json_schema"}
    given: list[Event] = [{"output_format": form}, {"output_config": {"format": form}}]
    assert all(is_shaped("anthropic", request) for request in given)
    assert not is_shaped("anthropic", {"output_config": {"effort": "low"}})


# --- Responses ------------------------------------------------------------------------------------


def item(kind: str, key: str, place: int | None = None, **more: Any) -> list[Event]:
    """Return the events of an item; without a place, as llama.cpp sends them."""
    at = {} if place is None else {"output_index": place}
    whole = {"type": kind, "id": key, **more}
    added = {"type": "response.output_item.added", **at, "item": whole}
    delta = {"type": "response.some.delta", **at, "item_id": key, "delta": "d"}
    return [added, delta, {"type": "response.output_item.done", **at, "item": whole}]


def numbered(events: Sequence[Event]) -> list[Event]:
    return [{**event, "sequence_number": n} for n, event in enumerate(events)]


def created(name: str) -> list[Event]:
    kinds = ("response.created", "response.in_progress")
    return [{"type": kind, "response": {"id": name}} for kind in kinds]


def completed(name: str, *events: Event) -> Event:
    output = [e["item"] for e in events if e["type"] == "response.output_item.done"]
    return {"type": "response.completed", "response": {"id": name, "output": output}}


def function(name: str, place: int | None = None, call: str = "f") -> list[Event]:
    return item("function_call", call, place, name=name)


@pytest.mark.parametrize("place", [0, None], ids=["places", "none"])
def test_a_response_without_calls_is_untouched(place: int | None):
    made = rounds("openai_responses")
    inner = [*item("reasoning", "r", place), *item("message", "m", place and place + 1)]
    inner = inner if place is None else [*item("reasoning", "r", 0), *item("message", "m", 1)]
    events = numbered([*created("x"), *inner, completed("x", *inner)])
    assert seen(made, *events) == events


@pytest.mark.parametrize("places", [(0, 1, 2), (None, None, None)], ids=["places", "none"])
def test_rounds_of_responses_are_one_response(places: tuple[int | None, ...]):
    made = rounds("openai_responses")
    text = item("message", "m", places[0])
    inner = [*text, *item("reasoning", "r", places[1]), *function(OURS, places[2])]
    first = seen(made, *numbered([*created("x"), *inner, completed("x", *inner)]))
    assert [e["type"] for e in first] == [e["type"] for e in [*created("x"), *text]]
    assert made.turned
    made.begin()
    inner = [*item("reasoning", "r2", places[0]), *item("message", "m2", places[1])]
    second = seen(made, *numbered([*created("y"), *inner, completed("y", *inner)]))
    both = [*first, *second]
    assert [e["sequence_number"] for e in both] == [*range(len(both))]
    assert second[-1]["response"]["id"] == "x"
    assert [i["id"] for i in second[-1]["response"]["output"]] == ["m", "r2", "m2"]
    if places[0] is not None:
        added = [e for e in both if e["type"] == "response.output_item.added"]
        assert [e["output_index"] for e in added] == [0, 1, 2]


def test_a_response_that_says_nothing_before_it_calls_is_not_begun():
    made = rounds("openai_responses")
    assert (
        seen(made, *numbered([*created("x"), *item("reasoning", "r", 0), *function(OURS, 1)])) == []
    )
    made.begin()
    inner = item("message", "m", 0)
    events = numbered([*created("y"), *inner, completed("y", *inner)])
    assert seen(made, *events) == events


def test_calls_of_ours_behind_the_clients_are_left_out_of_a_response():
    made = rounds("openai_responses")
    inner = [
        *function("weather", 0, "f0"), *item("reasoning", "r", 1), *function(OURS, 2, "f1"),
        *function("weather", 3, "f2"),
    ]  # fmt: skip
    got = seen(made, *numbered([*created("x"), *inner, completed("x", *inner)]))
    added = [e for e in got if e["type"] == "response.output_item.added"]
    assert [(e["output_index"], e["item"]["id"]) for e in added] == [(0, "f0"), (1, "f2")]
    assert [i["id"] for i in got[-1]["response"]["output"]] == ["f0", "f2"]
    assert not made.turned


def test_a_closed_response_has_no_call_of_ours():
    made = rounds("openai_responses")
    made.begin(closed=True)
    inner = function(OURS, 0)
    got = seen(made, *created("x"), *inner, completed("x", *inner))
    assert got == [*created("x"), completed("x")]


def test_calls_that_stand_in_the_whole_response_alone_count_too():
    made = rounds("openai_responses")
    assert seen(made, *created("x"), completed("x", *function(OURS, 0))) == []
    assert made.turned
    made.begin(closed=True)
    assert seen(made, *created("x"), completed("x", *function(OURS, 0)))[-1] == completed("x")


def test_a_response_without_an_id_or_output_goes_on_as_it_is():
    made = rounds("openai_responses")
    seen(made, *item("message", "m", 0), *function(OURS, 1))
    made.begin()
    bare = {"type": "response.completed", "response": {"usage": {}}}
    (got,) = seen(made, bare)
    assert [i["id"] for i in got["response"]["output"]] == ["m"]
    assert "id" not in got["response"]
    assert seen(rounds("openai_responses"), bare) == [bare]


def test_a_whole_response():
    made = rounds("openai_responses")
    think, text = {"type": "reasoning"}, {"type": "message"}
    ours, theirs = ({"type": "function_call", "name": name} for name in (OURS, "weather"))
    plain = {"output": [think, theirs]}
    assert made.take_whole(plain) is plain
    mixed = {"output": [text, think, ours, theirs]}
    assert made.take_whole(mixed) is mixed
    assert made.turned
    made.begin(closed=True)
    assert made.take_whole(mixed) == {"output": [text, theirs]}


def test_a_response_that_prescribes_a_form():
    assert is_shaped("openai_responses", {"text": {"format": {"type": "json_schema"}}})
    assert not is_shaped("openai_responses", {"text": {"format": {"type": "text"}}})
    assert not is_shaped("openai_responses", {"text": {"verbosity": "low"}})
