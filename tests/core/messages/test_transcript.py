"""The neutral view: what a message says of itself, and the digest that it is known by."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ullage.core.messages.transcript import (
    DIGEST_BYTES,
    SUMMARY_MARK,
    Call,
    Message,
    Part,
    PartKind,
    Rules,
    Transcript,
    asks,
    digest,
    summarises,
)

KINDS: list[PartKind] = [
    "text",
    "refusal",
    "reasoning",
    "result",
    "image",
    "audio",
    "file",
    "other",
]
# few letters, so that neighbouring fields often look alike
WORDS = st.text(alphabet="ab\x00\ud800", max_size=3)
PARTS = st.lists(
    st.builds(Part, st.sampled_from(KINDS), WORDS, st.one_of(st.none(), WORDS)), max_size=3
).map(tuple)
CALLS = st.lists(st.builds(Call, WORDS, WORDS, WORDS), max_size=3).map(tuple)
CONTENTS = st.tuples(
    st.sampled_from(["user", "assistant"]), PARTS, CALLS, st.one_of(st.none(), WORDS)
)


def kept(content: tuple) -> tuple:
    """What of a message makes the conversation: all but reasoning; no id is an empty id."""
    role, parts, calls, name = content
    shown = tuple((p.kind, p.text, p.answers or "") for p in parts if p.kind != "reasoning")
    return role, shown, calls, name or ""


def transcript(*messages: Message) -> Transcript:
    return Transcript(tuple({} for _ in messages), messages, Rules("openai_chat"))


def said(role: str, text: str = "hello") -> Message:
    return Message(role, (Part("text", text),))


RESULTS_ONLY = Message("user", (Part("result", "done", "c1"),))


@given(CONTENTS, CONTENTS)
def test_two_messages_share_a_digest_exactly_if_they_say_the_same(one: tuple, other: tuple):
    assert (digest(*one) == digest(*other)) == (kept(one) == kept(other))


def test_a_part_and_a_call_of_the_same_words_have_different_digests():
    part = digest("assistant", (Part("text", "x"),))
    call = digest("assistant", (), (Call("text", "", "x"),))
    assert part != call


def test_words_that_move_over_a_field_border_change_the_digest():
    one = digest("assistant", (), (Call("ab", "c", "{}"),))
    other = digest("assistant", (), (Call("a", "bc", "{}"),))
    assert one != other


@given(CONTENTS)
def test_reasoning_leaves_the_digest_alone(content: tuple):
    role, parts, calls, name = content
    thought = (Part("reasoning", "hm"), *parts)
    assert digest(role, thought, calls, name) == digest(*content)


def test_a_digest_has_the_documented_length():
    assert len(digest("user", ())) == DIGEST_BYTES


def test_the_text_of_a_message_is_what_a_reader_sees():
    message = Message(
        "assistant",
        (
            Part("reasoning", "secret"),
            Part("text", "yes"),
            Part("image", "png"),
            Part("refusal", "no"),
            Part("result", "42", "c1"),
            Part("other", "{}"),
        ),
    )
    assert message.text == "yes\nno\n42"


def test_the_results_of_a_message_are_the_ids_that_it_answers_in_order():
    message = Message("user", (Part("result", "", "b"), Part("text", "x"), Part("result", "", "a")))
    assert message.results == ("b", "a")


def test_system_and_developer_messages_are_the_operators():
    roles = ("system", "developer", "user", "assistant", "tool")
    assert [role for role in roles if said(role).is_system] == ["system", "developer"]


def test_the_task_is_the_first_user_message_and_the_request_the_last():
    found = transcript(said("system"), said("user"), said("assistant"), said("user"), RESULTS_ONLY)
    assert (found.task(), found.request()) == (1, 3)


def test_one_user_message_is_both_task_and_request():
    found = transcript(said("system"), said("user"), said("assistant"))
    assert found.task() == found.request() == 1


def test_without_a_user_there_is_neither_task_nor_request():
    found = transcript(said("system"), said("assistant"), RESULTS_ONLY)
    assert found.task() is None
    assert found.request() is None


def test_a_user_message_asks_unless_it_holds_tool_results_only():
    assert asks(said("user"))
    assert asks(Message("user"))
    assert asks(Message("user", (Part("result", "", "c"), Part("text", "and?"))))
    assert not asks(RESULTS_ONLY)
    assert not asks(said("assistant"))


def test_a_summary_is_no_persons_turn():
    summary = said("user", SUMMARY_MARK + "4 earlier messages]")
    assert summarises(summary)
    assert not asks(summary)
    found = transcript(summary, said("user", "the task"), summary)
    assert found.task() == found.request() == 1


def test_what_a_tool_or_the_model_says_is_never_taken_for_a_summary():
    text = SUMMARY_MARK + "4 earlier messages]"
    assert not summarises(Message("tool", (Part("result", text, "c1"),)))
    assert not summarises(said("assistant", text))
    assert not summarises(Message("user"))


def test_a_transcript_is_as_long_as_its_messages():
    assert len(transcript(said("user"), said("assistant"))) == 2


def test_messages_are_equal_by_what_they_hold_and_not_by_what_was_worked_out_of_them():
    one, other = said("user"), said("user")
    one.memo["tokens"] = 3
    assert one == other
    assert hash(one) == hash(other)
    assert one != said("assistant")
