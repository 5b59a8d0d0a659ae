"""What a person answers to a tool of their client is their word; what tools return is not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ullage
from tests.core.compaction.situations import CODEC, said, tool_step
from ullage.core.compaction.words import WordStore
from ullage.core.dialects.anthropic.codec import Anthropic
from ullage.core.facts.answers import LEAVES, asks_person, list_answers, read_answer
from ullage.core.facts.extract import collect
from ullage.core.facts.salience import find_author
from ullage.core.facts.segments import cut_message

RULE = "Never send an invoice without the VAT id."


@pytest.mark.parametrize(
    ("tool", "asks"),
    [
        *[(name, True) for name in ("AskUserQuestion", "ask_user", "request_user_input")],
        *[(name, True) for name in ("question", "askQuestions", "human", "ask_followup_question")],
        *[(name, False) for name in ("get_user", "query_users", "questions", "mcp__x__ask_user")],
        *[(name, False) for name in ("read", "", "ask", "ask_user_database", "human_resources")],
    ],
)
def test_a_tool_that_asks_is_known_by_its_name(tool: str, asks: bool) -> None:
    assert asks_person(tool) is asks


def test_an_answer_is_a_persons_word_and_its_rules_are_rules() -> None:
    history = [said("user", "Go."), *tool_step("1", RULE, tool="AskUserQuestion")]
    messages = CODEC.read(history).messages
    assert collect(messages).constraints == (RULE,)
    assert find_author(messages[2]) == "user"
    assert [s.origin for s in cut_message(messages[2])] == ["typed"]


def test_what_another_tool_returned_stays_data() -> None:
    for tool in ("read", "mcp__x__ask_user"):
        messages = CODEC.read([said("user", "Go."), *tool_step("1", RULE, tool=tool)]).messages
        assert collect(messages).constraints == ()
        assert find_author(messages[2]) == "tool"


def test_of_results_side_by_side_only_the_answer_is_a_persons() -> None:
    uses: list[dict[str, Any]] = [
        {"type": "tool_use", "id": name, "name": name, "input": {}} for name in ("read", "question")
    ]
    results = [
        {"type": "tool_result", "tool_use_id": name, "content": f"Never run {name}."}
        for name in ("read", "question")
    ]
    history = [
        {"role": "user", "content": "Go."},
        {"role": "assistant", "content": uses},
        {"role": "user", "content": results},
    ]
    messages = Anthropic().read(history).messages
    assert collect(messages).constraints == ("Never run question.",)
    assert list_answers(messages[2]) == {1}
    assert {s.text: s.origin for s in cut_message(messages[2])} == {
        "Never run read.": "quoted",
        "Never run question.": "typed",
    }


def test_a_result_stays_an_answer_where_its_call_is_not_looked_at() -> None:
    messages = CODEC.read([said("user", "Go."), *tool_step("7", RULE, tool="ask_user")]).messages
    assert collect(messages).constraints == (RULE,)
    assert collect(messages[2:]).constraints == (RULE,)
    assert collect(messages).constraints == (RULE,)


def test_equal_messages_of_another_tool_are_no_answers_any_more() -> None:
    for tool, wanted in (("ask_user", (RULE,)), ("read", ()), ("ask_user", (RULE,))):
        messages = CODEC.read([said("user", "Go."), *tool_step("8", RULE, tool=tool)]).messages
        assert collect(messages).constraints == wanted


def test_answers_are_noted_from_any_place_on() -> None:
    for begun in range(7):
        names = (f"first {begun}", f"second {begun}")
        steps = [step for name in names for step in tool_step(name, RULE, tool="ask_user")]
        messages = CODEC.read([said("user", "Go."), *steps]).messages
        WordStore(messages[:begun])
        store = WordStore(messages)
        assert [n for n, author in enumerate(store.authors) if author == "user"] == [0, 2, 4]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Postgres", "Postgres"),
        ('{"a": {"b": ["Postgres", 7, "90 days"]}, "c": null}', "Postgres\n90 days"),
        ('["x"', '["x"'),
        ("[]", ""),
        (json.dumps([str(n) for n in range(LEAVES + 9)]), "\n".join(map(str, range(LEAVES)))),
    ],
)
def test_the_texts_of_an_answer_are_read(text: str, words: str) -> None:
    assert read_answer(text) == words


@given(
    st.recursive(
        st.none() | st.booleans() | st.text(),
        lambda of: st.lists(of) | st.dictionaries(st.text(), of),
    )
)
def test_any_answer_can_be_read(value: Any) -> None:
    read_answer(json.dumps(value))


def test_an_answer_outlives_the_messages_and_is_never_cleared() -> None:
    answer = RULE + " It goes by post, to Ingrid alone, with a letter." * 9
    history = [said("user", "Build it."), *tool_step("9", answer, tool="AskUserQuestion")]
    for number in range(30):
        history += tool_step(f"r{number}", "value = 1\n" * 200, tool="read")
    history.append(said("user", "Go on."))
    made = [ullage.compact(history, model="gpt-4o", target_tokens=size) for size in (400, 4_000)]
    small, large = (json.dumps(one.messages) for one in made)
    assert RULE in small
    assert RULE in large
    assert "result of read cleared" in large
    assert "result of AskUserQuestion cleared" not in large
