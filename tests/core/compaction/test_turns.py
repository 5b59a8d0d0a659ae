"""Messages put together for chat templates whose roles alternate."""

from __future__ import annotations

from typing import Any

import pytest

from ullage.core.compaction.turns import ANSWER_TEXT, END_TEXT, alternate, takes_turns
from ullage.core.dialects.anthropic.codec import Anthropic
from ullage.core.dialects.openai_chat.codec import OpenAIChat
from ullage.core.messages.transcript import SUMMARY_MARK

CODEC = OpenAIChat()


def user(text: Any) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: Any, *calls: str) -> dict[str, Any]:
    asked = [
        {"id": c, "type": "function", "function": {"name": "f", "arguments": "{}"}} for c in calls
    ]
    return {"role": "assistant", "content": text, **({"tool_calls": asked} if asked else {})}


def result(call: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call, "content": "done"}


def put(*messages: Any) -> list[Any]:
    return alternate(CODEC.read(messages), CODEC)


def part(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def test_messages_that_take_turns_are_the_same_objects() -> None:
    history = [{"role": "system", "content": "s"}, user("a"), assistant(None, "c"), result("c")]
    history += [assistant("b"), user("d")]
    assert takes_turns(CODEC.read(history))
    assert all(a is b for a, b in zip(put(*history), history, strict=True))


def test_a_summary_goes_into_its_neighbours_with_its_end_said() -> None:
    block = f"{SUMMARY_MARK}2 earlier messages]\n- x"
    (made,) = put(user("task"), user(block), user("question"))
    assert made["content"] == f"task\n\n{block}{END_TEXT}question"
    assert not takes_turns(CODEC.read([user("task"), user(block)]))


def test_two_answers_in_a_row_are_one_and_keep_their_calls() -> None:
    made = put(user("a"), assistant("one"), assistant("two", "c"), result("c"), assistant("three"))
    assert [m["role"] for m in made] == ["user", "assistant", "tool", "assistant"]
    assert made[1]["content"] == "one\n\ntwo"
    assert len(made[1]["tool_calls"]) == 1


def test_a_person_behind_a_result_is_answered_first_and_a_list_opens_with_the_user() -> None:
    made = put(assistant("hello"), user("a"), assistant(None, "c"), result("c"), user("b"))
    assert [m["role"] for m in made] == [
        *("user", "assistant", "user", "assistant", "tool", "assistant", "user")
    ]
    assert made[5] == assistant(ANSWER_TEXT)


def test_operator_text_between_stays_where_it_is() -> None:
    between = {"role": "developer", "content": "be brief"}
    assert put(user("a"), between, user("b")) == [user("a"), between, user("b")]


@pytest.mark.parametrize(
    ("first", "second", "made"),
    [
        ("a", [part("b")], [part("a"), part("\n\n"), part("b")]),
        ([part("a")], "b", [part("a"), part("\n\n"), part("b")]),
        ([part("a")], None, [part("a")]),
        (None, "b", "b"),
        ("", None, None),
    ],
)
def test_content_of_any_form_is_joined(first: Any, second: Any, made: Any) -> None:
    assert put(user(first), user(second)) == [user(made)]


def test_a_dialect_that_joins_none_is_left_alone() -> None:
    codec, history = Anthropic(), [user("a"), user("b")]
    assert alternate(codec.read(history), codec) == history
