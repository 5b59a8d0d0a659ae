"""excerpt: what alone is too big keeps its head and its tail."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from tests.core.compaction.situations import (
    CODEC,
    joined_step,
    said,
    situation,
    situations,
    tool_step,
    total_after,
    words,
)
from ullage.core.compaction.edits import Clear, Edit, Script, apply
from ullage.core.compaction.situation import Situation
from ullage.core.compaction.strategies.excerpt import FLOOR, plan
from ullage.core.dialects.anthropic.codec import Anthropic


def planned(found: Situation) -> tuple[Edit, ...]:
    return plan(found).edits()


def clears(found: Situation) -> dict[int, str]:
    edits = planned(found)
    assert all(isinstance(edit, Clear) for edit in edits)
    return {edit.message: edit.text for edit in edits if isinstance(edit, Clear)}


@given(situations())
def test_only_the_task_and_results_of_the_newest_unit_are_shortened(found: Situation):
    newest = found.units[-1]
    results = {
        i for i in range(newest.start, newest.stop) if found.transcript.messages[i].results
    } - found.pins
    assert clears(found).keys() <= results | {found.transcript.task()}


@given(situations())
def test_the_current_request_is_never_shortened(found: Situation):
    assert found.transcript.request() not in clears(found)


@given(situations())
def test_an_excerpt_never_grows_anything(found: Situation):
    edits = planned(found)
    assert total_after(found, edits) <= found.total
    assert not edits or total_after(found, edits) < found.total


@given(situations())
def test_a_target_that_is_met_shortens_nothing(found: Situation):
    met = situation(list(found.transcript.raws), found.total)
    assert planned(met) == ()


@pytest.mark.parametrize("target", [200, 400, 900])
def test_a_huge_newest_result_is_cut_to_what_the_target_leaves(target: int):
    history = [said("user", "task"), *tool_step("c1", "HEAD " + words(2000) + " TAIL")]
    found = situation(history, target)
    (text,) = clears(found).values()
    assert text.startswith("HEAD")
    assert text.endswith("TAIL")
    assert target * 0.8 < total_after(found, planned(found)) <= target


def test_a_result_keeps_its_floor_whatever_the_target_is():
    found = situation([said("user", "task"), *tool_step("c1", words(2000))], 1)
    (text,) = clears(found).values()
    assert FLOOR // 2 < found.count(text) <= FLOOR


def test_parallel_results_share_the_room_and_small_ones_stay_whole():
    step: list[dict[str, Any]] = [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": i, "function": {"name": "ls", "arguments": "{}"}} for i in ("a", "b", "c")
            ],
        },
        {"role": "tool", "tool_call_id": "b", "content": words(900)},
        {"role": "tool", "tool_call_id": "c", "content": words(900)},
        {"role": "tool", "tool_call_id": "a", "content": "ok"},
    ]
    found = situation([said("user", "task"), *step], 600)
    texts = clears(found)
    assert sorted(texts) == [2, 3]
    assert abs(found.count(texts[2]) - found.count(texts[3])) <= 2
    assert 500 < total_after(found, planned(found)) <= 600


def test_a_task_over_half_of_the_target_keeps_head_and_tail():
    history = [
        said("user", "FIRST " + words(1000) + " LAST"),
        said("assistant", "working"),
        said("user", "go on"),
    ]
    found = situation(history, 400)
    text = clears(found)[0]
    assert text.startswith("FIRST")
    assert text.endswith("LAST")
    assert found.count(text) <= 200


def test_a_task_that_is_the_current_request_stays_whole():
    found = situation([said("user", words(1000)), *tool_step("c1", "ok")], 100)
    assert planned(found) == ()


def test_a_task_without_text_is_left_alone():
    image = {"type": "image_url", "image_url": {"url": "u"}}
    history = [{"role": "user", "content": [image]}, said("user", "go")]
    assert planned(situation(history, 50)) == ()


def test_of_a_task_in_parts_the_longest_text_is_shortened():
    parts = [
        {"type": "text", "text": "short"},
        {"type": "text", "text": words(1000)},
        {"type": "image_url", "image_url": {"url": "u"}},
    ]
    found = situation([{"role": "user", "content": parts}, said("user", "go")], 400)
    edits = planned(found)
    assert [(e.message, e.part) for e in edits if isinstance(e, Clear)] == [(0, 1)]
    (made, _) = apply(found.transcript, Script.of(edits), CODEC).transcript.raws
    assert made["content"][0] is parts[0]
    assert made["content"][2] is parts[2]


def test_pinned_results_are_left_alone():
    history = [said("user", "task"), *tool_step("c1", words(2000))]
    assert planned(situation(history, 100, pins=frozenset({2}))) == ()


def test_where_the_mark_would_not_be_smaller_nothing_is_shortened():
    # the message is over half of the target by its image; its text is below the mark's own size
    image = {"type": "image_url", "image_url": {"url": "u"}}
    parts = [{"type": "text", "text": words(FLOOR)}, image]
    history = [{"role": "user", "content": parts}, said("user", "go")]
    assert planned(situation(history, 50)) == ()


def test_an_empty_transcript_under_a_target_that_tools_alone_exceed_has_nothing_to_shorten():
    assert planned(situation([], -1)) == ()


def test_of_several_results_in_a_message_each_too_big_one_is_shortened():
    history = [said("user", "task"), *joined_step(words(900), "ok", words(800))]
    found = situation(history, 400, codec=Anthropic())
    edits = planned(found)
    assert [(e.message, e.part) for e in edits if isinstance(e, Clear)] == [(2, 0), (2, 2)]
    (made,) = apply(found.transcript, Script.of(edits), Anthropic()).transcript.messages[2:]
    assert (made.results, made.parts[1].text) == (("c0", "c1", "c2"), "ok")


def test_the_words_beside_results_are_not_shortened_with_them():
    history = [said("user", "task"), *joined_step(words(200), beside=words(900))]
    edits = planned(situation(history, 100, codec=Anthropic()))
    assert [(e.message, e.part) for e in edits if isinstance(e, Clear)] == [(2, 0)]
    assert planned(situation(history, 100, codec=Anthropic(), pins=frozenset({2}))) == ()
