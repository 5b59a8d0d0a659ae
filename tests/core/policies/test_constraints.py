"""Sentences that state a rule outlive the message around them, newest first, within a budget."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.policies.situations import (
    CODEC,
    said,
    situation,
    situations,
    total_after,
    words,
)
from ullage.core.edits import Clear
from ullage.core.policies.constraints import KEPT_MARK, STATES_RULE, find, plan, rules_in
from ullage.core.policies.situation import Situation
from ullage.core.transcript import SUMMARY_MARK
from ullage.testing.counting import WordCounter

COUNT = WordCounter().count


def rules(raw: dict[str, Any]) -> str:
    return rules_in(CODEC.read([raw]).messages[0])


def found(budget: int, *texts: str) -> set[int]:
    return set(find(CODEC.read([said("user", text) for text in texts]), COUNT, budget))


@pytest.mark.parametrize(
    "rule",
    [
        "Remember the port is 8080.",
        "From now on answer in Polish.",
        "NEVER push to main!",
        "You must not touch main.py.",
        "We mustn't be late.",
        "Please don't use tabs.",
        "Keep in mind that it is slow.",
        "This is important.",
    ],
)
def test_a_sentence_that_states_a_rule_is_kept_and_its_neighbours_are_not(rule: str):
    text = f"Here is the plan. {rule} What do you think?\nAnd another thing."
    assert rules(said("user", text)) == rule


@pytest.mark.parametrize("text", ["Whenever you like.", "mustard", "remembering", "", "neverland"])
def test_a_word_that_only_contains_one_states_no_rule(text: str):
    assert rules(said("user", text)) == ""


def test_several_rules_of_one_message_are_joined():
    assert rules(said("user", "Never a.\nb\nAlways c.")) == "Never a. Always c."


@pytest.mark.parametrize(
    "raw",
    [
        said("assistant", "I must go."),
        said("system", "Never lie."),
        {"role": "tool", "tool_call_id": "c1", "content": "always"},
        {"role": "user", "content": None},
        {"role": "user", "content": [{"type": "text", "text": "never"}, "always"]},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "never"}}]},
        said("user", SUMMARY_MARK + "4 earlier messages] never"),
    ],
)
def test_only_one_plain_text_of_a_person_lays_down_rules(raw: dict):
    assert rules(raw) == ""


def test_the_newest_rules_are_found_first_as_far_as_the_budget_goes():
    texts = ["Never do a.", words(50), "Never do b.", "Never do c."]
    each = COUNT("Never do a.")
    assert found(0, *texts) == set()
    assert found(each - 1, *texts) == set()
    assert found(each, *texts) == {3}
    assert found(2 * each, *texts) == {2, 3}
    assert found(1000, *texts) == {0, 2, 3}


def test_a_rule_that_does_not_fit_lets_an_older_smaller_one_in():
    assert found(10, "Never do a.", "Always " + words(20) + ".") == {0}


@given(situations(), st.integers(0, 100))
def test_what_is_found_states_rules_and_keeps_to_the_budget(case: Situation, budget: int):
    kept = find(case.transcript, COUNT, budget)
    texts = [rules_in(case.transcript.messages[i]) for i in kept]
    assert all(STATES_RULE.search(text) for text in texts)
    assert sum(map(COUNT, texts)) <= budget


@given(situations())
def test_old_messages_are_cut_to_their_rules_and_nothing_grows(case: Situation):
    kept = sorted(find(case.transcript, COUNT, 200))
    edits = plan(case, kept)
    border = case.units[case.border()].start
    for edit in edits:
        assert isinstance(edit, Clear)
        assert edit.message < border
        assert edit.text == KEPT_MARK + rules_in(case.transcript.messages[edit.message])
    assert total_after(case, edits) <= case.total


def test_a_message_is_cut_only_where_half_of_it_goes():
    history = [
        said("user", words(100) + ". Never do a."),
        said("user", "Never do b."),
        said("user", "x"),
    ]
    edits = plan(situation(history, 0), [0, 1])
    assert edits == [Clear(0, 0, -1, KEPT_MARK + "Never do a.")]


def test_a_rule_in_the_protected_tail_stays_as_it_was_said():
    history = [said("user", words(100) + ". Never do a."), said("user", "x")]
    assert plan(situation(history, 0, tail=10_000), [0]) == []


def test_without_messages_there_is_nothing_to_keep():
    assert plan(situation([], 0), []) == []
