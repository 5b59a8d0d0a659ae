"""Units, checks and repairs on histories small enough to read."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.core.compaction import laws, mending
from ullage.core.dialects.anthropic.codec import Anthropic
from ullage.core.dialects.openai_chat.codec import OpenAIChat
from ullage.core.dialects.openai_responses.codec import OpenAIResponses
from ullage.core.messages.transcript import Call, Message, Part, Rules, Transcript

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


def mend(*messages: Any) -> mending.Mended:
    return mending.repair(read(*messages), CODEC)


def faults(repaired: mending.Mended) -> list[str]:
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
        "content": mending.ORPHAN_TEXT,
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
    mending.repair(CODEC.read(history), CODEC)
    assert history == before


def test_repair_is_repaired_once() -> None:
    mended = mend(user(), calls("a", "b"), result("x"), user(), result("b"))
    again = mending.repair(CODEC.read(mended.messages), CODEC)
    assert again.repairs == ()
    assert again.messages == mended.messages


def test_operator_text_is_pinned_wherever_it_stands() -> None:
    transcript = read(user(), {"role": "developer", "content": "d"}, user())
    assert laws.find_operator_text(transcript.messages) == {1}


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
        [ASKED, THOUGHT, SAID, asked("a"), answered("a"), THOUGHT, SAID],
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
        ([ASKED, asked("a"), THOUGHT, ASKED], [2, 1]),
        ([ASKED, asked("a"), THOUGHT, answered("a")], [2]),
        ([ASKED, asked("a"), asked("b"), answered("a"), THOUGHT, answered("b")], [4, 2, 5]),
        ([ASKED, THOUGHT], [1]),
        ([ASKED, THOUGHT, THOUGHT, ASKED], [1, 2]),
        ([ASKED, asked("a"), asked("a"), answered("a")], [2]),
    ],
)
def test_a_batch_ends_with_its_first_result_and_wants_them_all(
    history: list[Message], where: list[int]
) -> None:
    assert [v.message for v in laws.protocol(split(*history))] == where


def test_words_between_reasoning_and_its_calls_go_with_both() -> None:
    found = borders(ASKED, THOUGHT, SAID, asked("a"), answered("a"), SAID, asked("b"), ASKED)
    assert found == [(0, 1), (1, 5), (5, 6), (6, 7), (7, 8)]


def test_reasoning_that_led_to_nothing_is_left_out() -> None:
    bare = {"type": "reasoning", "id": "rs_1", "summary": []}
    sealed = {**bare, "encrypted_content": "c2VhbGVk"}
    said = {"role": "assistant", "content": "So."}
    codec = OpenAIResponses()
    went = [{"role": "user", "content": "Go."}, sealed, bare, {"role": "user", "content": "On."}]
    mended = mending.repair(codec.read([*went, bare, said]), codec)
    assert mended.messages == [went[0], went[3], bare, said]
    assert [(r.fault, r.message) for r in mended.repairs] == [
        ("lone_reasoning", 1),
        ("lone_reasoning", 2),
    ]


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


# ── results that share messages ─────────────────────────────────────────────────────────────────

CLAUDE = Anthropic()


def use(*ids: str) -> dict[str, Any]:
    return {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": i, "name": "f", "input": {}} for i in ids],
    }


def block(name: str, text: str = "ok") -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": name, "content": text}


def words(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def said(*blocks: dict[str, Any], role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": list(blocks)}


def claude(*messages: Any) -> mending.Mended:
    transcript = CLAUDE.read(messages)
    mended = mending.repair(transcript, CLAUDE)
    assert laws.protocol(CLAUDE.read(mended.messages)) == []
    return mended


def shape(mended: mending.Mended) -> list[Any]:
    """Return each message as its texts, results marked by their call id."""
    return [
        [f"{p.answers}={p.text}" if p.answers else p.text for p in message.parts]
        + [call.id for call in message.calls]
        for message in CLAUDE.read(mended.messages).messages
    ]


NO_RESULT = mending.ORPHAN_TEXT


@pytest.mark.parametrize(
    ("history", "where", "what"),
    [
        ([user(), said(block("x"))], 1, "which no call asked for"),
        ([user(), said(block("x"), role="assistant")], 1, "which no call asked for"),
        ([user(), use("a"), user()], 1, "has no result"),
        ([user(), use("a")], 1, "has no result"),
        ([user(), use("a", "b"), said(block("a")), said(block("b"))], 1, "'b' has no result"),
        ([user(), use("a"), said(words("so"), block("a"))], 2, "results come first"),
        ([user(), use("a", "a"), said(block("a"), block("a"))], 1, "is used twice"),
        ([user(), use("a"), said(block("a")), use("a"), said(block("a"))], 3, "is used twice"),
        ([said(words("hi"), role="assistant")], 0, "opens with 'assistant'"),
    ],
)
def test_where_results_share_a_message_a_broken_pair_is_named(
    history: list[Any], where: int, what: str
) -> None:
    found = laws.protocol(CLAUDE.read(history))
    assert found[0].message == where
    assert what in found[0].detail


def test_messages_of_one_role_in_a_row_are_one_response() -> None:
    think = said({"type": "thinking", "thinking": "hm", "signature": "s"}, role="assistant")
    late = {"role": "system", "content": "from now on"}
    history = [
        user(),
        think,
        use("a"),
        use("b"),
        said(block("b"), block("a"), words("go on")),
        late,
        said(words("so"), role="assistant"),
        user(),
    ]
    transcript = CLAUDE.read(history)
    assert laws.protocol(transcript) == []
    found = [(u.start, u.stop) for u in laws.units(transcript)]
    assert found == [(0, 1), (1, 6), (6, 7), (7, 8)]


def test_of_a_message_only_the_orphan_goes() -> None:
    mended = claude(user(), said(block("x"), words("hi")), said(block("y")))
    assert shape(mended) == [["go"], ["hi"]]
    assert mended.origin == (0, 1)
    assert faults(mended) == ["orphan_result", "orphan_result"]


def test_a_missing_result_joins_the_others_of_its_response() -> None:
    given = said(block("b"), words("next"))
    mended = claude(user(), use("a", "b"), given, user("end"))
    assert shape(mended)[2] == ["b=ok", f"a={NO_RESULT}", "next"]
    assert mended.messages[2]["content"][0] is given["content"][0]
    assert mended.messages[2]["content"][1]["is_error"] is True
    assert mended.origin == (0, 1, 2, 3)
    assert faults(mended) == ["missing_result"]


def test_a_result_that_nothing_stands_beside_is_a_message_of_its_own() -> None:
    mended = claude(user(), use("a"), user("next"), use("b"))
    assert shape(mended) == [["go"], ["a"], [f"a={NO_RESULT}"], ["next"], ["b"], [f"b={NO_RESULT}"]]
    assert mended.origin == (0, 1, None, 2, 3, None)


def test_results_apart_are_brought_together_before_the_words() -> None:
    mended = claude(
        user(), use("a", "b"), said(words("so"), block("a")), said(block("b"), words("and"))
    )
    assert shape(mended)[2:] == [["a=ok", "b=ok", "so"], ["and"]]
    assert mended.origin == (0, 1, 2, 3)
    assert faults(mended) == ["misplaced_result", "misplaced_result"]


def test_a_result_behind_words_is_moved_before_them_and_named() -> None:
    mended = claude(user(), use("a", "b"), said(block("a"), words("so"), block("b")))
    assert shape(mended)[2] == ["a=ok", "b=ok", "so"]
    assert [r.detail for r in mended.repairs] == ["moved to call 'b'"]


def test_a_whole_message_of_results_is_moved_as_it_is() -> None:
    results = said(block("a"), block("b"))
    mended = claude(user(), use("a", "b"), user("wait"), results)
    assert shape(mended)[2:] == [["a=ok", "b=ok"], ["wait"]]
    assert mended.messages[2] is results
    assert mended.origin == (0, 1, 3, 2)
    assert mended.map_positions({3}) == {2}


def test_a_message_with_the_results_of_two_responses_is_divided() -> None:
    both = said(block("a"), block("b"))
    mended = claude(user(), use("a"), user("one"), use("b"), user("two"), both)
    assert shape(mended)[2:] == [["a=ok"], ["one"], ["b"], ["b=ok"], ["two"]]
    assert mended.origin == (0, 1, 5, 2, 3, None, 4)


def test_a_result_among_the_words_of_the_assistant_is_moved_out() -> None:
    mended = claude(user(), said(*use("a")["content"], block("a"), role="assistant"), use("b"))
    assert shape(mended) == [["go"], ["a"], ["b"], ["a=ok", f"b={NO_RESULT}"]]
    assert faults(mended) == ["misplaced_result", "missing_result"]


def test_a_call_id_is_used_once_in_the_whole_history() -> None:
    mended = claude(
        user(),
        use("a", "a_2"),
        said(block("a", "1"), block("a_2", "2")),
        use("a"),
        said(block("a", "3")),
        use("a", "a"),
        said(block("a", "4"), block("a", "5")),
    )
    assert shape(mended)[1:] == [
        ["a", "a_2"],
        ["a=1", "a_2=2"],
        ["a_3"],
        ["a_3=3"],
        ["a_4", "a_5"],
        ["a_4=4", "a_5=5"],
    ]
    assert faults(mended) == ["duplicate_call"] * 3
    assert mended.origin == tuple(range(7))


def test_of_two_results_in_one_message_the_first_stays() -> None:
    mended = claude(user(), use("a"), said(block("a", "first"), block("a", "second")))
    assert shape(mended)[2] == ["a=first"]
    assert faults(mended) == ["duplicate_result"]


@pytest.mark.parametrize("late", [[], [{"role": "system", "content": "s"}]])
def test_a_history_that_lost_its_beginning_opens_with_the_user_again(late: list[Any]) -> None:
    mended = claude(said(block("x")), *late, said(words("hi"), role="assistant"), user())
    assert shape(mended)[0] == [mending.OPENING_TEXT]
    assert mended.origin[:2] == (None, 1)
    assert faults(mended) == ["orphan_result", "missing_opening"]
    assert claude(said(block("x"))).messages == []


# ── repairs where calls stand in messages of their own ──────────────────────────────────────────


def asked_item(name: str, kind: str = "function_call") -> dict[str, Any]:
    return {"type": kind, "call_id": name, "name": "f", "arguments": "{}", "input": "{}"}


def output_item(name: str) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": name, "output": "ok"}


def test_a_lawful_batch_keeps_the_order_of_its_results_in_a_broken_history() -> None:
    codec = OpenAIResponses()
    lawful = [user(), asked_item("a"), asked_item("b"), output_item("b"), output_item("a")]
    custom = asked_item("c", "custom_tool_call")
    mended = mending.repair(codec.read([*lawful, custom, user()]), codec)
    assert all(a is b for a, b in zip(mended.messages, [*lawful, custom], strict=False))
    assert mended.messages[6] == {
        "type": "custom_tool_call_output",
        "call_id": "c",
        "output": mending.ORPHAN_TEXT,
    }
    assert mended.origin == (0, 1, 2, 3, 4, 5, None, 6)


def test_a_twin_in_a_batch_of_items_is_renamed_with_its_result() -> None:
    codec = OpenAIResponses()
    history = [asked_item("a"), asked_item("a"), output_item("a"), user(), output_item("a")]
    mended = mending.repair(codec.read(history), codec)
    assert [m.get("call_id") for m in mended.messages] == ["a", "a~2", "a", "a~2", None]
    assert faults(mended) == ["duplicate_call", "misplaced_result"]
    assert laws.protocol(codec.read(mended.messages)) == []


BLOCKS = st.one_of(
    st.sampled_from("ab").map(lambda name: use(name)["content"][0]),
    st.sampled_from("abx").map(block),
    st.just(words("so")),
)
ANYTHING = st.lists(
    st.one_of(
        st.builds(
            lambda role, blocks: {"role": role, "content": blocks},
            st.sampled_from(["user", "assistant"]),
            st.lists(BLOCKS, min_size=1, max_size=4),
        ),
        st.just({"role": "system", "content": "s"}),
    ),
    max_size=7,
).filter(lambda history: not history or history[0]["role"] != "system")


@given(ANYTHING)
def test_whatever_order_blocks_come_in_repair_makes_a_lawful_history(history: list[Any]) -> None:
    transcript = CLAUDE.read(history)
    mended = mending.repair(transcript, CLAUDE)
    after = CLAUDE.read(mended.messages)
    assert laws.protocol(after) == []
    assert bool(mended.repairs) == bool(laws.protocol(transcript))
    assert len(after) == len(mended.origin)
    said_before = [p.text for m in transcript.messages for p in m.parts if p.answers is None]
    said_after = [p.text for m in after.messages for p in m.parts if p.answers is None]
    assert [t for t in said_after if t != mending.OPENING_TEXT] == said_before


@given(
    st.lists(
        st.one_of(
            st.sampled_from("ab").map(asked_item),
            st.sampled_from("abx").map(output_item),
            st.just(user()),
            st.just({"type": "reasoning", "id": "rs", "summary": []}),
        ),
        max_size=9,
    )
)
def test_whatever_order_items_come_in_repair_makes_a_lawful_history(history: list[Any]) -> None:
    codec = OpenAIResponses()
    transcript = codec.read(history)
    mended = mending.repair(transcript, codec)
    assert laws.protocol(codec.read(mended.messages)) == []
    assert bool(mended.repairs) == bool(laws.protocol(transcript))
