"""The block that stands for what was left out: bounded, added up, taken over and never lost."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.compaction.situations import CODEC, said, tool_step, words
from tests.support.counting import WordCounter
from tests.support.transcripts import histories
from ullage.core.compaction.block import (
    LEAST,
    PROSE,
    SPOKEN,
    SPOKEN_MOST,
    Carried,
    GoneFacts,
    block,
    gather,
)
from ullage.core.facts import extract as facts
from ullage.core.facts.extract import Facts
from ullage.core.messages.transcript import SUMMARY_MARK, Message, summarises

COUNT = WordCounter().count
RULES = [
    said("user", "Mend the leak. Never touch main.py."),
    *tool_step("c1", words(40), arguments='{"path": "src/a.py"}'),
    said("assistant", "I looked at the valve."),
    said("user", "Use the port 8443."),
    said("assistant", "Done with the valve."),
]


def read(raws: list[dict[str, Any]]) -> tuple[Message, ...]:
    return CODEC.read(raws).messages


def carried(*raws: dict[str, Any], tokens: int = 10_000, **more: Any) -> str:
    return block(gather(read(list(raws))), tokens, COUNT, **more)


# --- what is in it --------------------------------------------------------------------------------


def test_a_block_says_how_many_messages_it_stands_for_and_that_it_orders_nothing():
    head = carried(*RULES).split("\n")[0]
    assert head == SUMMARY_MARK + "6 earlier messages; a record, not instructions]"
    assert summarises(read([said("user", carried(*RULES))])[0])


def test_the_facts_of_a_block_are_those_of_its_messages():
    kept = gather(read(RULES))
    told = facts.parse(carried(*RULES).partition("\n")[2])[0]
    assert replace(told, said=(), found=()) == kept.facts
    assert told.said == ("Mend the leak.",)
    assert told.found == ("I looked at the valve.", "Done with the valve.")
    assert "Never touch main.py." in kept.facts.constraints
    assert kept.facts.files == ("src/a.py",)


def test_prose_stands_behind_the_facts_and_last_words_only_where_asked_for():
    text = carried(*RULES, prose="  Goal:\n- mend.\n")
    assert text.endswith("[end of facts]\nGoal:\n- mend.")
    assert SPOKEN not in carried(*RULES)
    told = carried(*RULES, spoken=True).partition("[end of facts]\n")[2]
    assert told == f'{SPOKEN}\n- "I looked at the valve."\n- "Done with the valve."'


def test_the_last_words_are_the_last_two_on_one_line_each_and_cut():
    raws = [said("assistant", f"{n} " + "long\nword " * 60) for n in range(4)]
    lines = carried(*raws, spoken=True).split(SPOKEN + "\n")[1].split("\n")
    assert [json.loads(line[2:])[0] for line in lines] == ["2", "3"]
    assert all(len(json.loads(line[2:])) == SPOKEN_MOST for line in lines)
    assert all(json.loads(line[2:]).endswith("...") for line in lines)


def test_what_says_nothing_gets_no_block_unless_it_can_be_read_back():
    silent = [said("assistant", "ok"), said("assistant", "")]
    assert carried(*silent) == ""
    named = carried(*silent, named="; recall u:0123456789abcdef")
    assert named == SUMMARY_MARK + (
        "2 earlier messages; a record, not instructions; recall u:0123456789abcdef]"
    )


def test_last_words_stand_whole_or_not_at_all_and_push_no_rule_out():
    paths = [
        m
        for n in range(12)
        for m in tool_step(f"c{n}", "ok", arguments=json.dumps({"path": f"src/file{n}.py"}))
    ]
    raws = [*RULES, *paths, said("assistant", "Now for the door. " + words(20))]
    kept = gather(read(raws))
    for tokens in range(40, 400, 7):
        text = block(kept, tokens, COUNT, spoken=True)
        found, prose = facts.parse(text.partition("\n")[2])
        assert not prose or prose == block(kept, 10_000, COUNT, spoken=True)[-len(prose) :]
        assert not prose or prose.startswith(SPOKEN)
        assert not prose or found.constraints == kept.facts.constraints


def test_of_nothing_nothing_is_gathered():
    assert gather(()) == Carried(0, Facts())
    assert block(gather(()), 100, COUNT, spoken=True) == ""


# --- how large it is ------------------------------------------------------------------------------


@given(
    histories(max_turns=5),
    st.integers(-5, 400),
    st.sampled_from([None, "", words(900)]),
    st.booleans(),
    st.sampled_from(["", "; recall u:0123456789abcdef"]),
)
def test_a_block_never_takes_more_than_it_was_given(
    raws: list[Any], tokens: int, prose: str | None, spoken: bool, named: str
):
    kept = gather(read(raws))
    text = block(kept, tokens, COUNT, prose=prose, spoken=spoken, named=named)
    assert COUNT(text) <= max(tokens, 0)
    assert not text or text.startswith(SUMMARY_MARK)


def test_a_tool_that_wrote_a_megabyte_makes_no_larger_block():
    def after(output: str) -> str:
        raws = [RULES[0], *tool_step("c1", output, arguments='{"path": "src/a.py"}'), *RULES[3:]]
        return carried(*raws, tokens=6_000, spoken=True)

    assert after("x" * 1_000_000) == after("ok") == after("Never stop. " * 90_000)


@pytest.mark.parametrize("role", ["user", "assistant"])
def test_a_person_or_a_model_that_wrote_a_megabyte_makes_a_bounded_block(role: str):
    text = carried(said(role, "I decided to use b. " * 50_000), tokens=6_000, spoken=True)
    assert COUNT(text) <= 6_000


def rules(number: int) -> dict[str, Any]:
    letters = ("".join(chr(97 + n // 26**k % 26) for k in range(3)) for n in range(number))
    return said("user", " ".join(f"Never touch {name}.py." for name in letters))


def test_rules_go_before_prose_and_prose_before_all_else_up_to_half_of_the_room():
    used = [
        m
        for n in range(60)
        for m in tool_step(f"c{n}", "ok", arguments=json.dumps({"path": f"src/file{n}.py"}))
    ]
    for number in (0, 10, 2_000):
        text = carried(rules(number), *used, tokens=600, prose=words(900))
        kept, prose = facts.parse(text.partition("\n")[2])
        assert COUNT(text) <= 600
        assert len(kept.constraints) == number or not prose
        assert number == 2_000 or 250 < COUNT(prose) <= 300
        assert number == 2_000 or "left out here" in prose
        assert number == 2_000 or len(kept.files) > 5


def test_prose_has_a_bound_of_its_own():
    roomy = carried(said("user", "Go."), tokens=6_000, prose=words(PROSE * 2))
    assert COUNT(roomy) < PROSE + 60


def test_prose_that_has_no_room_for_its_mark_is_left_out_and_the_facts_stay():
    kept = Carried(1, Facts(constraints=("Never touch main.py.",)))
    least = COUNT(block(kept, 1_000, COUNT))
    for spare in range(LEAST + 8):
        text = block(kept, least + spare, COUNT, prose=words(400))
        assert COUNT(text) <= least + spare
        assert "\n- Never touch main.py.\n" in text


def test_prose_is_let_go_where_counts_do_not_add_up():
    def stubborn(text: str) -> int:
        return COUNT(text) + (60 if text.startswith(SUMMARY_MARK) and "word" in text else 0)

    kept = Carried(1, Facts())
    for tokens in (90, 160, 300):
        text = block(kept, tokens, stubborn, prose=words(300))
        assert stubborn(text) <= tokens
        assert ("word" in text) == (tokens > 120)
    said_last = Carried(1, Facts(files=("a.py",)), spoken=("a word",))
    assert SPOKEN in block(said_last, 100, COUNT, spoken=True)
    assert "a.py" in block(said_last, 100, stubborn, spoken=True)
    assert SPOKEN not in block(said_last, 100, stubborn, spoken=True)


def test_lines_go_until_a_count_that_does_not_add_up_is_held_to():
    def stubborn(text: str) -> int:
        return COUNT(text) + (4 * text.count("\n") if text.startswith("[facts") else 0)

    names = ("Mirela", "Kofi", "Beatriz", "Noor", "Jonas", "Ayumi", "Priya", "Oskar")
    raws = [said("user", f"{name} found shelf {n} in Bergen.") for n, name in enumerate(names)]
    for tokens in range(20, 260, 12):
        text = block(gather(read(raws)), tokens, stubborn)
        assert stubborn(text.partition("\n")[2]) <= tokens


# --- a block among what is left out ---------------------------------------------------------------


def chained(times: int, *, prose: str | None = None) -> tuple[str, int]:
    """Return the block of that many rounds, each on the block before, and the messages so far."""
    text, messages = carried(*RULES, prose=prose), len(RULES)
    for n in range(times):
        more = [
            *tool_step(f"d{n}", words(90), arguments=json.dumps({"path": f"src/new{n}.py"})),
            said("assistant", f"Looked at {n}."),
            said("user", f"Never open door {n}."),
        ]
        text = carried(said("user", text), *more)
        messages += len(more)
    return text, messages


@pytest.mark.parametrize("times", [1, 3, 6])
def test_numbers_add_up_and_first_facts_stay_through_any_number_of_blocks(times: int):
    text, messages = chained(times)
    assert text.startswith(SUMMARY_MARK + f"{messages} earlier messages;")
    kept = facts.parse(text.partition("\n")[2])[0]
    assert kept.files == ("src/a.py", *(f"src/new{n}.py" for n in range(times)))
    assert kept.constraints[0] == "Never touch main.py."
    assert kept.constraints[-1] == f"Never open door {times - 1}."


def test_the_number_of_thousands_adds_up_too():
    text = block(Carried(12_345, Facts(files=("a",))), 1_000, COUNT)
    assert gather(read([said("user", text), said("user", "x")])).messages == 12_346


def test_a_mark_without_a_number_is_one_message():
    odd = said("user", SUMMARY_MARK + "some, maybe]\nGoal:\n- go")
    assert gather(read([odd, said("assistant", "x")])).messages == 2


def test_earlier_prose_stays_until_newer_takes_its_place():
    text, _ = chained(3, prose="Goal:\n- mend.")
    assert text.endswith("[end of facts]\nGoal:\n- mend.")
    kept = gather(read([said("user", text)]))
    assert kept.prose == "Goal:\n- mend."
    assert block(kept, 1_000, COUNT, prose="Goal:\n- rest.").endswith("\nGoal:\n- rest.")


def test_last_words_are_not_taken_over_as_prose():
    first = carried(*RULES, spoken=True)
    kept = gather(read([said("user", first), said("assistant", "Now this.")]))
    assert (kept.prose, kept.spoken) == ("", ("Now this.",))


def test_of_two_blocks_each_line_stands_once_and_both_proses_stay():
    one = carried(*RULES, prose="Goal:\n- one.")
    other = carried(*RULES, said("user", "Never sing."), prose="Goal:\n- two.")
    kept = gather(read([said("user", one), said("user", other)]))
    assert kept.facts.constraints == (
        "Never touch main.py.",
        "Use the port 8443.",
        "Never sing.",
    )
    assert kept.facts.files == ("src/a.py",)
    assert kept.prose == "Goal:\n- one.\nGoal:\n- two."
    assert kept.messages == 6 + 7


SPELT = st.lists(st.sampled_from(["a", "ab", "b", "c"]), max_size=5).map(" ".join)


@given(lines=st.lists(SPELT, max_size=4), segment=SPELT)
def test_a_segment_says_what_is_gone_where_one_stands_in_the_other(
    lines: list[str], segment: str
) -> None:
    within = any(line in segment or segment in line for line in lines)
    assert GoneFacts(lines).has(segment) is within
