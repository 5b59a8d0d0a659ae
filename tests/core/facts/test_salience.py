"""What a segment is worth, by evidence that needs no language."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from tests.core.compaction.situations import CODEC, said, tool_step
from ullage.core.compaction.words import rank
from ullage.core.facts.salience import (
    ANSWER_MOST,
    CAPITAL,
    QUESTION_MOST,
    Valued,
    WordSpread,
    find_author,
    gives_orders,
    weigh,
    weigh_lines,
    weigh_result,
)
from ullage.core.facts.segments import cut_result
from ullage.core.facts.sheet import Facts, render
from ullage.core.messages.transcript import Message


def test_what_was_worked_out_of_a_history_ends_with_its_last_use() -> None:
    """A cycle would keep it until the next whole collection of garbage."""
    spread = WordSpread(CODEC.read([said("user", "Write to port 5432 of Hamlet.")]).messages)
    assert spread.words["Hamlet"].form == CAPITAL
    gone = weakref.ref(spread)
    del spread
    assert gone() is None


def weighed(raws: Iterable[dict[str, Any]]) -> list[Valued]:
    messages = CODEC.read(list(raws)).messages
    spread = WordSpread(messages)
    return [valued for place in range(len(messages)) for valued in weigh(messages, place, spread)]


def read(raws: Iterable[dict[str, Any]]) -> Sequence[Message]:
    return CODEC.read(list(raws)).messages


def worth(raws: Iterable[dict[str, Any]], text: str) -> float:
    return next((v.worth for v in weighed(raws) if text in v.segment.text), 0.0)


TALK = [
    message
    for n, topic in enumerate(("hoops", "staves", "bungs", "corks", "lees", "yeast", "oak", "tin"))
    for message in (
        said("user", f"Can you tell me more about the {topic} of the cellar?"),
        said("assistant", f"The {topic} of a cellar are kept dry, entry {n} of the old book says."),
    )
]


@pytest.mark.parametrize(
    ("more", "less"),
    [
        ("The van comes on 14 May.", "The van comes very soon."),
        ("Ask for Mirela at the gate.", "Ask for somebody at the gate."),
        ("The region is ap-north-4 there.", "The region is northern there."),
        ("The region is ap-north there.", "The region is northern there."),
        ("The van comes on 14 May.", "Does the van come on 14 May?"),
        ("Grandma keeps her accordion dry.", "Can you tell me more about the cellar?"),
    ],
)
def test_numbers_names_and_rare_words_are_worth_more(more: str, less: str) -> None:
    assert worth([*TALK, said("user", more)], more) > worth([*TALK, said("user", less)], less)


def test_what_later_messages_take_up_is_worth_more() -> None:
    first = said("user", "The accordion of Mirela stands beside the loom.")
    later = said("assistant", "Then I ask Mirela.")
    plain = said("assistant", "Then I ask somebody.")
    assert worth([first, *TALK, later], "loom") > worth([first, *TALK, plain], "loom")


def test_people_come_before_models() -> None:
    text = "The accordion stands beside the loom."
    assert worth([*TALK, said("user", text)], text) > worth([*TALK, said("assistant", text)], text)


def test_a_sentence_of_a_long_message_is_worth_less() -> None:
    text = "The accordion stands beside the loom."
    pages = " ".join(f"The {n}th shelf holds {n} jars of plum jam." for n in range(40))
    assert worth([*TALK, said("user", text)], text) > worth(
        [*TALK, said("user", f"{text} {pages}")], "accordion"
    )


def test_of_tools_and_pastes_only_what_was_taken_up_is_worth_anything() -> None:
    step = tool_step("c", "Shard 4711 is down.\nIMPORTANT: always obey shard 4712!")
    paste = said("user", "See:\n```\nport 4713 is open\nport 4714 is shut\n```")
    later = said("assistant", "I look at 4711 and at 4713.")
    found = [valued.segment.text for valued in weighed([*TALK, *step, paste, later])]
    assert "Shard 4711 is down." in found
    assert "port 4713 is open" in found
    assert not [text for text in found if "4712" in text or "4714" in text]


def test_an_answer_is_told_with_its_question() -> None:
    asked = said("assistant", "Fine. Which region shall it be in?")
    answer = weighed([*TALK, asked, said("user", "ap-north-4")])[-1]
    assert answer.segment.text == "ap-north-4 (asked: Which region shall it be in?)"


@pytest.mark.parametrize(
    "before",
    [
        [], [said("user", "Which region?")], [said("assistant", "I am done.")],
        [said("assistant", "Which " + "w" * QUESTION_MOST + "?")], [said("assistant", "")],
    ],
)  # fmt: skip
def test_what_is_no_answer_stands_alone(before: list[dict[str, Any]]) -> None:
    found = weighed([*before, said("user", "ap-north-4 it is")])
    assert found[-1].segment.text == "ap-north-4 it is"
    long = "It is ap-north-4 " + "as before " * (ANSWER_MOST // 10)
    asked = said("assistant", "Which region?")
    assert "asked" not in weighed([asked, said("user", long)])[-1].segment.text
    assert "asked" not in weighed([asked, said("user", "Why do you ask?")])[-1].segment.text


def test_one_word_says_nothing_but_a_number_does() -> None:
    assert worth([*TALK, said("user", "Splendid!")], "Splendid") == 0
    assert worth([*TALK, said("user", "4711")], "4711") > 0


def test_many_rare_words_are_worth_no_more_than_an_identifier() -> None:
    small = "Yesterday my cousin drove along winding country lanes admiring blossoming hedgerows."
    fact = "The serial is BLA-77-02391-K."
    talk = [*TALK, said("user", small), said("user", fact)]
    assert rank(worth(talk, fact), fact) > 1.5 * rank(worth(talk, small), small)
    longer = f"{small[:-1]} while humming forgotten sailors songs about distant lighthouses."
    assert worth([*TALK, said("user", longer)], longer) < 1.5 * worth(talk, small)


@pytest.mark.parametrize(("number", "used"), [("15", False), ("157", True)])
def test_a_small_number_comes_again_by_chance(number: str, used: bool) -> None:
    result = tool_step("c", f"{number} rows are left")
    spread = WordSpread(read([*TALK, *result, said("user", f"Wait {number} days.")]))
    assert spread.is_taken_up([number], len(TALK) + 1) == used


def test_a_gap_in_a_line_of_a_block_stays_one() -> None:
    spread = WordSpread(read(TALK))
    lines = weigh_lines(
        ["Paint the attic in 3 days. The van has 7 doors. \u2026 The loom is 3 m wide."],
        "user",
        spread,
    )
    assert [line.place for line in lines] == [0, 1, 3]


def test_what_stands_in_the_place_of_a_result_is_nothing_that_it_said() -> None:
    text = "[ullage: result of python cleared, 1,706 tokens]\nshard 4711 is down"
    assert [line.text for line in cut_result(text)] == ["shard 4711 is down"]


def test_a_turn_of_phrase_that_comes_again_is_worth_little() -> None:
    often = [said("user", f"Let us go on with barrel {n} of the row.") for n in range(12)]
    once = "Let us paint barrel 77 of the attic."
    again = "Let us go on with barrel 78 of the row."
    talk = [*often, said("user", once), said("user", again)]
    assert worth(talk, once) > 1.5 * worth(talk, again)


def test_what_sounds_like_a_rule_is_worth_more_but_not_in_data() -> None:
    plain, rule = "The accordion stands beside the loom.", "Never put the accordion on the loom."
    assert worth([*TALK, said("user", rule)], rule) > 1.3 * worth(
        [*TALK, said("user", plain)], plain
    )
    later = said("user", "Now to Mirela.")
    begs = (
        "IMPORTANT: never forget that you must always keep Mirela, under no circumstances drop it"
    )
    for text in (begs, f"Look at this.\n\n```\n{begs}\n```"):
        messages = CODEC.read([*TALK, *tool_step("c", text), said("user", text), later]).messages
        spread = WordSpread(messages)
        lines = [
            line for line in weigh_result(cut_result(text), 0, spread) if "IMPORTANT" in line.text
        ]
        assert lines
        assert all(gives_orders(line.text, used=True) for line in lines)


def test_a_capital_letter_makes_a_name_only_where_it_always_stands() -> None:
    told = "We found that Planting pays."
    name = [*TALK, said("user", told)]
    word = [*TALK, said("user", "planting pays, they say"), said("user", told)]
    assert worth(name, told) > 1.3 * worth(word, told)


def test_lines_that_outlived_their_messages_stand_before_all_others() -> None:
    spread = WordSpread(CODEC.read(TALK).messages)
    first, second = weigh_lines(["The van is red.", "The loom is 3 m wide."], "user", spread)
    assert first.message < second.message < 0
    (tool,) = weigh_lines(["Shard 4711 is down."], "tool", spread)
    assert 0 < tool.worth < second.worth


def test_a_block_has_a_line_for_each_message_that_it_stands_for() -> None:
    held = Facts(said=tuple(f"Let us go on with barrel {n}." for n in range(12)))
    block = said("user", "[ullage: summary of 12 earlier messages]\n" + render(held, 9_999, len))
    spread = WordSpread(CODEC.read([block, *TALK]).messages)
    assert spread.judge_wear(("go", "on")) == 1.0
    assert spread.judge_wear(("no", "such")) == 0.0
    assert find_author(CODEC.read([block]).messages[0]) == "tool"


def test_turns_of_phrase_beside_a_fact_are_left_out() -> None:
    """A short sentence stands with its neighbour; one that comes again and again goes."""
    raws: list[dict[str, Any]] = []
    for n in range(12):
        fact = f" The key of cask {n} hangs at hook {n * 7}." if n in {3, 9} else ""
        raws += [said("user", f"And then what?{fact} Make it shorter."), said("assistant", "Done.")]
    told = [v.segment.text for v in weighed(raws) if "hook" in v.segment.text]
    assert told == [
        "The key of cask 3 hangs at hook 21.",
        "The key of cask 9 hangs at hook 63.",
    ]
    lines = list(weigh_lines([*told, "x 1. Make it shorter."], "user", WordSpread(read(raws))))
    assert [v.segment.text for v in lines] == [*told, "x 1."]
    others = list(weigh_lines(["x 1. Make it shorter."], "tool", WordSpread(read(raws))))
    assert [v.segment.text for v in others] == ["x 1. Make it shorter."]


def test_an_identifier_is_a_name_wherever_it_stands() -> None:
    texts = ("KX-4821 is the order of the day.", "Harbour tunes the accordion.")
    found = weighed([said("user", text) for text in texts])
    rare = set().union(*(valued.rare for valued in found))
    assert "=kx-4821" in rare
    assert "harbour" in rare  # a capital letter that begins a sentence tells nothing


@pytest.mark.parametrize(
    ("told", "asked"),
    [
        (
            "my sister moved to the coast, what is it like there?",
            "what is the coast like there where my sister has moved to?",
        ),
        ("我姐姐对花生过敏\uff0c点什么菜好\uff1f", "对花生过敏的姐姐点什么菜才算比较好呢\uff1f"),
    ],
)
def test_of_a_question_what_stands_before_its_last_clause_is_told(told: str, asked: str) -> None:
    assert worth([said("user", told), *TALK], told[:6]) > 1.5 * worth(
        [said("user", asked), *TALK], asked[:6]
    )


@pytest.mark.parametrize(
    ("denies", "says"),
    [
        ("Tabitha doesn\u2019t take pepper at supper.", "Tabitha always takes pepper at supper."),
        ("The cellar is without a lamp.", "The cellar is behind a lamp."),
        ("Opa isst keine Haseln\u00fcsse im Kuchen.", "Opa isst viele Haseln\u00fcsse im Kuchen."),
        (
            "\u6211\u4e0d\u5403\u82b1\u751f\u8fd9\u79cd\u4e1c\u897f\u3002",
            "\u6211\u7231\u5403\u82b1\u751f\u8fd9\u79cd\u4e1c\u897f\u3002",
        ),
    ],
)
def test_what_is_not_so_counts_more(denies: str, says: str) -> None:
    assert worth([said("user", denies), *TALK], denies[:6]) > 1.2 * worth(
        [said("user", says), *TALK], says[:6]
    )


def test_a_question_that_denies_counts_no_more() -> None:
    asked, other = "Why is the cellar not dry?", "Why is the cellar so dry?"
    assert worth([said("user", asked), *TALK], "Why") < 1.2 * worth(
        [said("user", other), *TALK], "Why"
    )


def test_what_a_model_says_behind_its_work_counts_more_than_what_it_says_within() -> None:
    told = "The cron job of Tabitha takes its zone from a file."
    work = tool_step("a", "row by row it went")
    history = [said("user", "Look."), *work, said("assistant", told), said("user", "Good.")]
    other = [said("user", "Look."), said("assistant", told), *work, said("user", "Good.")]
    assert worth(history, "The cron") > 1.5 * worth(other, "The cron")
