"""Units, checks and repairs on histories small enough to read."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.core import laws
from ullage.core.transcript import Call, Message, Part, Rules, Transcript
from ullage.core.wire.openai_chat import OpenAIChat

CODEC = OpenAIChat()


def user(text: str = "go") -> dict[str, Any]:
    return {"role": "user", "content": text}


def calls(*ids: str) -> dict[str, Any]:
    asked = [
        {"id": i, "type": "function", "function": {"name": "f", "arguments": "{}"}} for i in ids
    ]
    return {"role": "assistant", "content": None, "tool_calls": asked}


def result(name: str, text: str = "ok") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": name, "content": text}


def read(*messages: Any) -> Transcript:
    return CODEC.read(list(messages))


def mend(*messages: Any) -> laws.Repaired:
    return laws.repair(read(*messages), CODEC)


def faults(repaired: laws.Repaired) -> list[str]:
    return [r.fault for r in repaired.repairs]


def test_a_response_and_all_its_results_are_one_unit() -> None:
    transcript = read(user(), calls("a", "b"), result("b"), result("a"), user(), calls("c"))
    assert [(u.start, u.stop) for u in laws.units(transcript)] == [(0, 1), (1, 4), (4, 5), (5, 6)]


@pytest.mark.parametrize(
    ("history", "where", "what"),
    [
        ([user(), result("x")], 1, "which no call asked for"),
        ([user(), calls("a"), user()], 1, "has no result"),
        ([user(), calls("a")], 1, "has no result"),
        ([user(), calls("a", "a"), result("a"), result("a")], 1, "is used twice"),
        ([user(), calls("a"), result("a"), result("a")], 3, "which no call asked for"),
    ],
)
def test_a_broken_pair_is_named_with_its_place(history: list[Any], where: int, what: str) -> None:
    found = laws.protocol(CODEC.read(history))
    assert found[0].message == where
    assert what in found[0].detail


def test_a_dialect_says_which_roles_may_open() -> None:
    transcript = read({"role": "system", "content": "s"}, {"role": "assistant", "content": "hi"})
    strict = Transcript(
        transcript.raws, transcript.messages, Rules("openai_chat", frozenset({"user"}))
    )
    assert laws.protocol(transcript) == []
    assert "opens with 'assistant'" in laws.protocol(strict)[0].detail


def test_a_dialect_may_demand_that_roles_alternate() -> None:
    transcript = read(user("a"), user("b"))
    strict = Transcript(
        transcript.raws, transcript.messages, Rules("openai_chat", alternation=True)
    )
    assert "two messages of one role" in laws.protocol(strict)[0].detail


def test_an_orphan_result_is_left_out() -> None:
    mended = mend(user(), result("x"), user("b"))
    assert [m["content"] for m in mended.messages] == ["go", "b"]
    assert faults(mended) == ["orphan_result"]


def test_a_missing_result_is_written_as_an_error() -> None:
    mended = mend(user(), calls("a", "b"), result("b"), user("next"))
    assert mended.messages[2] == {
        "role": "tool",
        "tool_call_id": "a",
        "content": laws.ORPHAN_TEXT,
    }
    assert mended.messages[3]["tool_call_id"] == "b"
    assert faults(mended) == ["missing_result"]


def test_of_two_results_for_one_call_the_first_stays() -> None:
    mended = mend(user(), calls("a"), result("a", "first"), result("a", "second"))
    assert [m["content"] for m in mended.messages[2:]] == ["first"]
    assert faults(mended) == ["duplicate_result"]


def test_a_result_behind_its_turn_is_moved_to_its_call() -> None:
    mended = mend(user(), calls("a"), user("b"), result("a"))
    assert [m["role"] for m in mended.messages] == ["user", "assistant", "tool", "user"]
    assert faults(mended) == ["misplaced_result"]


def test_an_id_used_twice_in_one_response_is_renamed_with_its_result() -> None:
    mended = mend(user(), calls("a", "a"), result("a", "one"), result("a", "two"))
    asked = [c["id"] for c in mended.messages[1]["tool_calls"]]
    assert asked == ["a", "a~2"]
    assert [(m["tool_call_id"], m["content"]) for m in mended.messages[2:]] == [
        ("a", "one"),
        ("a~2", "two"),
    ]
    assert faults(mended) == ["duplicate_call"]


def test_an_id_used_again_by_a_later_response_is_lawful() -> None:
    history = [user(), calls("a"), result("a"), user(), calls("a"), result("a")]
    assert laws.protocol(CODEC.read(history)) == []


def test_repair_changes_no_message_of_the_caller() -> None:
    history = [user(), calls("a", "a"), result("a"), result("x"), user()]
    before = [dict(m) for m in history]
    laws.repair(CODEC.read(history), CODEC)
    assert history == before


def test_repair_is_repaired_once() -> None:
    mended = mend(user(), calls("a", "b"), result("x"), user(), result("b"))
    again = laws.repair(CODEC.read(mended.messages), CODEC)
    assert again.repairs == ()
    assert again.messages == mended.messages


def test_operator_text_is_pinned_wherever_it_stands() -> None:
    transcript = read(user(), {"role": "developer", "content": "d"}, user())
    assert laws.pinned(transcript.messages) == {1}


# ── calls that stand in messages of their own ───────────────────────────────────────────────────


def split(*messages: Message) -> Transcript:
    rules = Rules("openai_responses", split_calls=True)
    return Transcript(tuple(range(len(messages))), messages, rules)


def asked(name: str) -> Message:
    return Message("assistant", (), (Call(name, "f", "{}"),))


def answered(name: str) -> Message:
    return Message("tool", (Part("result", "ok", name),))


THOUGHT = Message("assistant", (Part("reasoning", "hm"),))
SEARCH = Message("assistant", (Part("other", "{}"),))
SAID = Message("assistant", (Part("text", "so"),))
ASKED = Message("user", (Part("text", "go"),))


def borders(*messages: Message) -> list[tuple[int, int]]:
    return [(u.start, u.stop) for u in laws.units(split(*messages))]


@pytest.mark.parametrize(
    "history",
    [
        [ASKED, asked("a"), asked("b"), answered("a"), answered("b"), SAID],
        [ASKED, THOUGHT, asked("a"), THOUGHT, SEARCH, asked("b"), answered("b"), answered("a")],
        [ASKED, asked("a"), answered("a"), asked("b"), answered("b")],
        [ASKED, asked("a"), THOUGHT, answered("a")],
    ],
)
def test_calls_directly_after_each_other_are_one_lawful_batch(history: list[Message]) -> None:
    assert laws.protocol(split(*history)) == []


def test_where_calls_share_a_message_a_second_one_leaves_the_first_unanswered() -> None:
    history = (ASKED, asked("a"), asked("b"), answered("a"), answered("b"))
    found = laws.protocol(Transcript(history, history, Rules("openai_chat")))
    assert [v.message for v in found] == [1, 3]


@pytest.mark.parametrize(
    ("history", "where"),
    [
        ([ASKED, asked("a"), asked("b"), answered("b"), ASKED], [1]),
        ([ASKED, asked("a"), asked("b"), answered("a"), asked("c"), answered("c")], [2]),
        ([ASKED, asked("a"), SAID, answered("a")], [1, 3]),
        ([ASKED, asked("a"), THOUGHT, ASKED], [1]),
        ([ASKED, asked("a"), asked("b"), answered("a"), THOUGHT, answered("b")], [2, 5]),
        ([ASKED, asked("a"), asked("a"), answered("a")], [2]),
    ],
)
def test_a_batch_ends_with_its_first_result_and_wants_them_all(
    history: list[Message], where: list[int]
) -> None:
    assert [v.message for v in laws.protocol(split(*history))] == where


def test_a_batch_with_its_reasoning_and_results_is_one_unit() -> None:
    found = borders(ASKED, THOUGHT, asked("a"), THOUGHT, asked("b"), answered("a"), answered("b"))
    assert found == [(0, 1), (1, 7)]
    assert borders(asked("a"), THOUGHT, answered("a"), SAID) == [(0, 3), (3, 4)]


def test_reasoning_belongs_to_the_answer_it_led_to() -> None:
    assert borders(ASKED, THOUGHT, SAID, ASKED) == [(0, 1), (1, 3), (3, 4)]
    assert borders(THOUGHT, ASKED, SEARCH) == [(0, 1), (1, 2), (2, 3)]
    assert borders(asked("a"), answered("a"), THOUGHT, SAID) == [(0, 2), (2, 4)]
    assert borders(asked("a"), THOUGHT, SAID) == [(0, 1), (1, 3)]


@given(
    st.lists(
        st.one_of(
            st.sampled_from([THOUGHT, SEARCH, SAID, ASKED]),
            st.sampled_from("ab").map(asked),
            st.sampled_from("ab").map(answered),
        ),
        max_size=9,
    )
)
def test_in_a_lawful_history_no_unit_parts_a_call_from_its_result(history: list[Message]) -> None:
    transcript = split(*history)
    found = laws.units(transcript)
    assert [i for u in found for i in range(u.start, u.stop)] == list(range(len(history)))
    if laws.protocol(transcript) == []:
        for unit in found:
            inside = split(*history[unit.start : unit.stop])
            assert [v for v in laws.protocol(inside) if "opens with" not in v.detail] == []


def test_a_user_message_with_results_and_words_stays_with_its_calls() -> None:
    mixed = Message("user", (Part("result", "ok", "a"), Part("text", "and now?")))
    history = (ASKED, asked("a"), mixed, SAID)
    transcript = Transcript(history, history, Rules("openai_chat"))
    assert laws.protocol(transcript) == []
    assert [(u.start, u.stop) for u in laws.units(transcript)] == [(0, 1), (1, 3), (3, 4)]
