"""What all assemblies share: they take anything, and their calls have ids of their own."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.core.dialects.registry import make_reader
from ullage.core.dialects.reply import Delta, Reply, as_json, assign_ids
from ullage.core.messages.transcript import Call, DialectName

DIALECTS: list[DialectName] = ["openai_chat", "openai_responses", "anthropic"]
WORDS = st.sampled_from([
    "type", "choices", "delta", "message", "content", "tool_calls", "index", "id", "function",
    "name", "arguments", "finish_reason", "usage", "error", "item", "item_id", "output_index",
    "response", "output", "status", "content_block", "text", "thinking", "object", "reasoning",
    "input", "partial_json", "signature", "stop_reason", "role", "call_id", "prompt_tokens",
    "reasoning_details", "refusal", "function_call", "incomplete_details",
])  # fmt: skip
KINDS = st.sampled_from([
    "message", "tool_use", "text", "thinking", "function_call", "reasoning", "refusal", "error",
    "content_block_start", "content_block_delta", "text_delta", "thinking_delta", "message_stop",
    "message_delta", "message_start", "input_json_delta", "response.output_item.added",
    "response.output_item.done", "response.output_text.delta", "response.completed", "response",
    "response.function_call_arguments.delta", "output_text", "stop", "tool_calls", "assistant",
    "response.reasoning_summary_text.delta", "redacted_thinking",
])  # fmt: skip
LEAVES = st.none() | st.booleans() | st.integers(-1, 3) | st.floats() | KINDS | st.text(max_size=5)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=6),
    max_leaves=30,
)
EVENTS = st.lists(st.dictionaries(WORDS, VALUES, max_size=6), max_size=6)


@pytest.mark.parametrize("dialect", DIALECTS)
@given(events=EVENTS)
def test_no_event_is_too_odd_to_be_taken(dialect: DialectName, events: list) -> None:
    into = make_reader(dialect, "salt")
    shown = [delta for event in events for delta in into.take(event)]
    made = into.reply()
    ids = [call.id for call in made.calls]
    assert all(ids)
    assert len(set(ids)) == len(ids)
    assert all(delta.text for delta in shown)
    assert not shown or into.begun
    assert not made.calls or into.called
    assert made.text == into.text
    json.dumps(made.report)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_nothing_at_all_is_an_empty_answer_that_has_not_ended(dialect: DialectName) -> None:
    into = make_reader(dialect)
    assert (into.begun, into.ended, into.called, into.failed, into.text) == (
        False, False, False, None, "",
    )  # fmt: skip
    assert into.reply().usage is None
    assert into.reply().stop == "end"


@given(st.lists(st.tuples(st.sampled_from(["", "a", "b", "a~2"]), st.just("f"), st.text())))
def test_ids_are_kept_where_they_tell_calls_apart_and_made_elsewhere(asked: list) -> None:
    made = assign_ids(asked, "salt")
    assert len({call.id for call in made}) == len(asked)
    first = {given: place for place, (given, _, _) in reversed(list(enumerate(asked)))}
    for given_id, place in first.items():
        assert not given_id or made[place].id == given_id
    assert assign_ids(asked, "salt") == made


def test_made_ids_suit_every_provider_and_differ_by_salt() -> None:
    (one,), (other,) = assign_ids([("", "f", "")], "1"), assign_ids([("", "f", "")], "2")
    assert one.id != other.id
    assert len(one.id) == 9
    assert one.id.isalnum()
    assert one.id.isascii()


def test_a_made_id_never_takes_a_given_one() -> None:
    taken = assign_ids([("", "f", "{}")], "salt")[0].id
    made = assign_ids([(taken, "f", "{}"), (taken, "f", "{}"), ("", "f", "{}")], "salt")
    assert made[0].id == taken
    assert len({call.id for call in made}) == 3
    late = assign_ids([("", "f", "{}"), (taken, "g", "{}")], "salt")
    assert late[0].id != late[1].id


def test_a_made_id_that_is_taken_is_made_anew() -> None:
    second = assign_ids([("x", "f", ""), ("", "f", "")], "salt")[1].id
    made = assign_ids([(second, "f", ""), ("", "f", "")], "salt")
    assert made[1].id not in ("", second)


@pytest.mark.parametrize(
    ("value", "text"),
    [('{"a": 1}', '{"a": 1}'), (None, ""), ({"ä": [1]}, '{"ä": [1]}'), ({1, 2}, "")],
)
def test_arguments_become_text(value: object, text: str) -> None:
    assert as_json(value) == text


def test_missing_arguments_are_an_empty_object() -> None:
    assert assign_ids([("a", "f", " ")], "") == (Call("a", "f", "{}"),)


def test_values_compare_by_content() -> None:
    assert Reply("hi") == Reply("hi", report={})
    assert Delta("text_delta", "a") == ("text_delta", "a")
