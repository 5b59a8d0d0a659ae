"""In a small room people's words stay where they were said, and no block is written."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.compaction.situations import said, tool_step, words
from tests.core.compaction.test_plan import run
from ullage.core.compaction.edits import Clear, Script
from ullage.core.compaction.plan import Order, Outcome
from ullage.core.compaction.strategy import Strategy

TRIM = ("trim_oldest",)
TASK, REQUEST = said("user", "Let us plan the greenhouse."), said("user", "What is next?")
CHAT = [
    message
    for n, topic in enumerate(["tea", "rain", "trains", "songs", "bread", "chess"])
    for message in (
        said("user", f"By the way, do you like {topic}?"),
        said("assistant", f"I do. Shall we go on with the plan? {words(6)} {n}"),
    )
]
RULE = "Never water the orchids of Ilse after sunset."


def kept(made: Outcome) -> list[str]:
    return [message.text for message in made.edited.transcript.messages]


def test_a_rule_stays_where_a_block_has_no_room() -> None:
    made = run([TASK, said("user", RULE), *CHAT, REQUEST], Order(40, 20, TRIM))
    assert made.reached
    assert made.block == ""
    assert kept(made)[:2] == [TASK["content"], RULE]
    assert kept(made)[-1] == REQUEST["content"]
    assert made.strategy == "trim_oldest"


def test_a_large_room_has_a_block() -> None:
    talk = [said("user", f"Bed {n} of the greenhouse has {words(20)} herbs.") for n in range(80)]
    made = run([TASK, *talk, *CHAT, REQUEST], Order(900, 100, TRIM))
    assert made.block


def test_of_a_long_message_the_sentences_that_say_most_stay() -> None:
    long = f"{RULE} {words(30)}.\n\nAs it were, {words(30)}.\n\nThe pump is a Grundfos 4410."
    made = run([TASK, said("user", long), *CHAT, REQUEST], Order(48, 20, TRIM))
    assert made.reached
    (short,) = [text for text in kept(made) if RULE in text]
    assert short.startswith("\u2026 ")
    assert len(short) < len(long) / 2
    assert [edit.text for edit in made.script.clears] == [short]


def test_a_rule_stands_alone_where_what_goes_with_it_does_not_fit() -> None:
    long = f"{RULE} It would be the end of them, and of {words(40)}."
    made = run([TASK, said("user", long), *CHAT, REQUEST], Order(40, 20, TRIM))
    assert f"\u2026 {RULE}" in kept(made)


def test_the_same_words_stay_once() -> None:
    again = "The pump of the greenhouse is a Grundfos 4410."
    other = "The mats are from Lindqvist."
    talk = [said("user", again), *CHAT[:4], said("user", again), *CHAT[4:], said("user", other)]
    made = run([TASK, *talk, *CHAT, REQUEST], Order(48, 20, TRIM))
    assert kept(made).count(again) == 1
    assert other in kept(made)


def test_what_is_left_of_the_room_goes_to_the_newest() -> None:
    last = said("assistant", "I would begin with the beds.")
    made = run([TASK, said("user", RULE), said("assistant", words(90)), last, REQUEST],
               Order(54, 20, TRIM))  # fmt: skip
    assert kept(made)[1] == RULE
    assert kept(made)[-2:] == [last["content"], REQUEST["content"]]
    assert made.reached


def test_a_message_of_many_parts_stays_whole_or_goes() -> None:
    picture = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    text = {"type": "text", "text": f"{RULE} {words(20)}."}
    history = [TASK, {"role": "user", "content": [text, picture]}, *CHAT, REQUEST]
    made = run(history, Order(60, 20, TRIM))
    assert made.script.clears == ()
    assert not any(RULE in text for text in kept(made))


def test_what_a_callers_strategy_chose_stands() -> None:
    """Who drops by rules of their own, or shortens a text, has the last word on it."""

    def drop_all(situation: Any) -> Script:
        return Script(frozenset(range(1, len(situation.transcript) - 1)))

    def redact(situation: Any) -> Script:
        return Script.of([Clear(1, 0, -1, "[redacted]")])

    history = [TASK, said("user", RULE), *CHAT, REQUEST]
    mine = Strategy("mine", drop_all)
    assert not any(RULE in text for text in kept(run(history, Order(40, 20, (mine,)))))
    shorter = Strategy("redact", redact, drops=False)
    made = run(history, Order(40, 20, TRIM, first=(shorter,)))
    assert made.reached
    assert not any("orchids" in text for text in kept(made))


def test_who_wants_no_block_gets_the_newest_alone() -> None:
    made = run([TASK, said("user", RULE), *CHAT, REQUEST], Order(50, 40, TRIM, carry=0.0))
    assert RULE not in kept(made)


def test_an_earlier_block_goes_on() -> None:
    block = "[ullage: summary of 4 earlier messages; a record, not instructions]\n"
    block += "[facts kept by rule]\nRules and decisions, in the user's words:\n"
    block += f"- {RULE}\n[end of facts]"
    made = run([TASK, said("user", block), *CHAT, REQUEST], Order(90, 10, TRIM))
    assert made.reached
    assert any(RULE in text for text in kept(made))


def test_what_went_has_its_name() -> None:
    made = run([TASK, said("user", RULE), *CHAT, *CHAT, REQUEST], Order(90, 20, TRIM, named=True))
    assert made.reached
    assert any(RULE in text for text in kept(made))
    (name,) = made.originals
    assert sum(name in text for text in kept(made)) == 1


@given(
    st.lists(
        st.sampled_from([RULE, "Good.", words(30), "The pump is a Grundfos 4410."]), max_size=9
    ),
    st.integers(12, 160),
    st.booleans(),
)
def test_any_room_is_kept(texts: list[str], target: int, named: bool) -> None:
    talk = [said("user", text) for text in texts]
    step = tool_step("a", words(20))
    made = run(
        [TASK, *talk[:4], *step, *talk[4:], *CHAT, REQUEST], Order(target, 20, TRIM, named=named)
    )
    assert made.violations == ()
    assert not made.reached or made.after.high <= target


@pytest.mark.parametrize("target", range(40, 120, 9))
def test_the_steps_say_what_the_script_does(target: int) -> None:
    made = run([TASK, said("user", RULE), *CHAT, REQUEST], Order(target, 20, TRIM))
    joined = Script()
    for _, script in made.steps:
        joined |= script
    assert joined.drops == made.script.drops
    assert joined.clears == made.script.clears


def test_an_answer_at_the_end_gives_way_to_what_was_said() -> None:
    answer = said("assistant", f"I would begin with the beds. {words(60)} Shall I?")
    made = run([TASK, said("user", RULE), *CHAT, REQUEST, answer], Order(60, 20, TRIM))
    assert made.reached
    assert RULE in kept(made)
    assert kept(made)[-1].startswith("I would begin")
    assert " \u2026 " in kept(made)[-1]


def test_a_short_message_stays_whole() -> None:
    short = said("user", "The pump is a Grundfos 4410.\n\nMind it as Ilse does the mats.")
    made = run([TASK, short, *CHAT, REQUEST], Order(52, 20, TRIM))
    assert short["content"] in kept(made)
