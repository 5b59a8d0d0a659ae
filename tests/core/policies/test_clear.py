"""clear: what is cleared, in which order, how much, and what never is."""

from __future__ import annotations

import json

from hypothesis import given

from tests.core.policies.situations import (
    CODEC,
    joined_step,
    said,
    situation,
    situations,
    tool_step,
    total_after,
    words,
)
from ullage.core.edits import Clear, Script, apply
from ullage.core.policies.clear import WORTH, plan
from ullage.core.policies.situation import Situation
from ullage.core.wire.anthropic import Anthropic
from ullage.core.wire.openai_responses import OpenAIResponses


def cleared(found: Situation) -> list[int]:
    edits = plan(found)
    assert all(isinstance(edit, Clear) for edit in edits)
    return [edit.message for edit in edits if isinstance(edit, Clear)]


RUN = [
    said("user", "task"),
    *tool_step("c1", words(300)),
    *tool_step("c2", words(300)),
    *tool_step("c3", words(300)),
    said("user", "and now?"),
]


@given(situations())
def test_every_clear_frees_what_makes_it_worth_it(found: Situation):
    edits = plan(found)
    assert total_after(found, edits) <= found.total - WORTH * len(edits)


@given(situations())
def test_pins_and_the_protected_tail_are_never_cleared(found: Situation):
    border = found.units[found.border()].start
    assert not found.pins & set(cleared(found))
    assert all(message < border for message in cleared(found))


@given(situations())
def test_clearing_never_breaks_a_pair_or_drops_a_message(found: Situation):
    edited = apply(found.transcript, Script.of(plan(found)), CODEC).transcript
    before, after = found.transcript.messages, edited.messages
    assert [m.results for m in after] == [m.results for m in before]
    assert [[(c.id, c.name) for c in m.calls] for m in after] == [
        [(c.id, c.name) for c in m.calls] for m in before
    ]


@given(situations())
def test_clearing_is_in_order_and_stops_as_soon_as_the_target_is_met(found: Situation):
    messages = cleared(found)
    assert messages == sorted(messages)
    if messages:
        without_last = [
            e for e in plan(found) if isinstance(e, Clear) and e.message != messages[-1]
        ]
        assert total_after(found, without_last) > found.target


def test_the_oldest_result_goes_first_and_only_as_many_as_are_needed():
    whole = situation(RUN, 0).total
    assert cleared(situation(RUN, whole)) == []
    assert cleared(situation(RUN, whole - 1)) == [2]
    assert cleared(situation(RUN, whole - 400)) == [2, 4]
    assert cleared(situation(RUN, 0)) == [2, 4, 6]


def test_the_placeholder_names_the_tool_and_the_size_and_no_reference():
    (edit,) = plan(situation([*tool_step("c1", words(300), tool="grep"), said("user", "x")], 0))
    assert edit == Clear(1, 0, -1, "[ullage: result of grep cleared, 300 tokens]")


def test_an_unnamed_tool_is_called_a_tool():
    (edit,) = plan(situation([*tool_step("c1", words(300), tool=""), said("user", "x")], 0))
    assert isinstance(edit, Clear)
    assert edit.text.startswith("[ullage: result of a tool cleared")


def test_oversized_arguments_are_cleared_to_valid_json():
    step = tool_step("c1", "ok", arguments=json.dumps({"text": words(300)}))
    (edit,) = plan(situation([*step, said("user", "x")], 0))
    assert isinstance(edit, Clear)
    assert (edit.message, edit.part, edit.call) == (0, -1, 0)
    assert json.loads(edit.text)["ullage_cleared"].startswith("arguments, ")


def test_a_cleared_result_is_not_cleared_again():
    found = situation(RUN, 0)
    once = apply(found.transcript, Script.of(plan(found)), CODEC).transcript
    assert plan(situation(list(once.raws), 0)) == []


def test_words_such_as_error_decide_nothing():
    for text in ("error: failed", "12 passed, 0 failed"):
        run = [*tool_step("c1", words(100, text)), *tool_step("c2", words(900)), said("user", "x")]
        whole = situation(run, 0).total
        assert cleared(situation(run, whole - 1)) == [1]


def test_each_result_that_shares_a_message_is_cleared_by_its_place_and_its_tools_name():
    history = [said("user", "t"), *joined_step(words(300), "ok", words(300)), said("user", "and?")]
    edits = plan(situation(history, 50, codec=Anthropic()))
    found = [(e.message, e.part, e.text.split()[3]) for e in edits if isinstance(e, Clear)]
    assert found == [(2, 0, "tool0"), (2, 2, "tool2")]


def test_a_result_is_named_after_its_own_call_where_calls_stand_apart():
    calls = [
        {"type": "function_call", "call_id": f"c{i}", "name": f"tool{i}", "arguments": "{}"}
        for i in range(2)
    ]
    outputs = [
        {"type": "function_call_output", "call_id": f"c{i}", "output": words(300)} for i in range(2)
    ]
    history = [said("user", "t"), *calls, *outputs, said("user", "and?")]
    edits = plan(situation(history, 50, codec=OpenAIResponses()))
    found = [(e.message, e.text.split()[3]) for e in edits if isinstance(e, Clear)]
    assert found == [(3, "tool0"), (4, "tool1")]
