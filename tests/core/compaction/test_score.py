"""A block with prose carries no less of people's words than the same room without any."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.compaction.situations import CODEC, said, tool_step
from tests.core.compaction.test_packing import mine
from tests.core.compaction.test_plan import ALL, run
from tests.support.counting import WordCounter
from tests.support.transcripts import histories
from ullage.core.compaction.block import Carried, gather, write_block
from ullage.core.compaction.plan import Order
from ullage.core.compaction.score import SaidScore
from ullage.core.facts.sheet import parse
from ullage.core.summary.headings import SECTIONS
from ullage.core.summary.record import Line, render

COUNT = WordCounter().count

GUESTS = ("Mirela", "Kofi", "Beatriz", "Noor", "Jonas", "Ayumi", "Priya", "Oskar", "Lena", "Tomek")
TALK = [
    message
    for n, name in enumerate(GUESTS)
    for message in (
        said("user", f"{name} found the accordion of shelf {n + 20} in week {n + 30}."),
        said("assistant", f"I looked at shelf {n + 20}; its loom is {n + 3} m wide, and dusty."),
        *tool_step(f"c{n}", f"shelf {n + 20}: accordion, loom"),
    )
]
SAID = [raw["content"] for raw in TALK if raw["role"] == "user"]


def write(lines: list[tuple[str, str]]) -> str:
    return render([Line(section, text) for section, text in lines])


SUMMARIES = st.one_of(
    st.just(""),
    st.text(max_size=200),
    st.lists(st.sampled_from(SAID), max_size=12).map("\n".join),  # copied, and in no form
    st.lists(st.tuples(st.sampled_from(SECTIONS), st.sampled_from(SAID)), max_size=12).map(write),
    st.lists(
        st.tuples(
            st.sampled_from(SECTIONS),
            st.sampled_from(["the pump turns", "Mirela found accordion, shelf 20, week 30", "a 7"]),
        ),
        max_size=9,
    ).map(write),
    st.sampled_from(["garbage " * 300, "Goal:\n" + "- mend the pump, and mend it\n" * 40]),
)


@given(
    st.one_of(st.just(TALK), histories(max_turns=5)),
    st.integers(-5, 500),
    SUMMARIES,
    SUMMARIES,
    st.booleans(),
    st.sampled_from(["", "; recall u:0123456789abcdef"]),
)
def test_whatever_a_model_wrote_the_block_is_never_worse_than_the_extract(
    raws: list[Any], tokens: int, prose: str, earlier: str, spoken: bool, named: str
) -> None:
    kept = gather(CODEC.read(raws).messages)
    kept = Carried(kept.messages, kept.facts, earlier, kept.spoken, kept.words)
    extract = write_block(kept, tokens, COUNT, prose="", named=named)
    score = SaidScore(kept.facts, kept.words)
    for given_prose in (prose, None):
        made = write_block(kept, tokens, COUNT, prose=given_prose, spoken=spoken, named=named)
        assert COUNT(made.text) <= max(tokens, 0)
        assert score.judge(made.text) >= score.judge(extract.text)
        assert not made.prose or made.score >= made.least


@given(st.integers(60, 600), SUMMARIES)
def test_the_same_gives_the_same(tokens: int, prose: str) -> None:
    kept = gather(CODEC.read(TALK).messages)
    again = gather(CODEC.read(TALK).messages)
    assert write_block(kept, tokens, COUNT, prose=prose) == write_block(
        again, tokens, COUNT, prose=prose
    )


def test_what_prose_carries_is_not_told_again_and_what_it_dropped_is_put_back() -> None:
    kept = gather(CODEC.read(TALK).messages)
    short = "\n".join(
        f"- {name} found the accordion in week {n + 30}, of shelf {n + 20}"
        for n, name in enumerate(GUESTS[:6])
    )
    made = write_block(kept, 300, COUNT, prose=f"Goal:\n{short}")
    assert made.text.endswith(short)
    assert mine(parse(made.text)[0]) == tuple(SAID[6:])
    assert (
        made.score
        == made.least
        == pytest.approx(SaidScore(kept.facts, kept.words).judge(made.text))
    )


def test_rules_stand_word_for_word_whatever_prose_says_of_them() -> None:
    rule = "Never sell the accordion of Mirela to Kofi."
    kept = gather(CODEC.read([*TALK, said("user", rule)]).messages)
    made = write_block(kept, 500, COUNT, prose=f"Goal:\n- go on\nDone:\n- {rule}")
    assert f"\n- {rule}\n" in made.text.partition("Done:")[0]
    assert made.prose


def test_prose_that_takes_the_room_of_better_words_loses_its_least_important_lines_first() -> None:
    kept = gather(CODEC.read(TALK).messages)
    extract = write_block(kept, 190, COUNT, prose="")
    idle = [("Open questions", f"is door {n} to be opened or not, and by whom") for n in range(9)]
    good = ("Goal", "; ".join(line.removesuffix(".") for line in SAID[:5]))
    made = write_block(kept, 190, COUNT, prose=write([good, *idle]))
    assert made.prose
    assert good[1] in made.prose
    assert made.prose.count("is door") < 9
    assert made.score >= SaidScore(kept.facts, kept.words).judge(extract.text)


def test_prose_that_says_nothing_is_left_out_of_a_room_that_words_fill() -> None:
    kept = gather(CODEC.read(TALK).messages)
    extract = write_block(kept, 130, COUNT, prose="")
    for prose in ("mend it " * 30, "Goal:\n" + "\n".join(f"- mend it {n}" for n in range(12))):
        made = write_block(kept, 130, COUNT, prose=prose)
        assert (made.text, made.prose) == (extract.text, "")
    roomy = write_block(kept, 600, COUNT, prose="Goal:\n- mend it")
    assert roomy.text.endswith("Goal:\n- mend it")


def test_an_earlier_block_keeps_its_prose_where_a_newer_one_may_not_stand() -> None:
    kept = gather(CODEC.read(TALK).messages)
    good = "Goal:\n- " + "; ".join(line.removesuffix(".") for line in SAID[:3])
    kept = Carried(kept.messages, kept.facts, good, kept.spoken, kept.words)
    made = write_block(kept, 130, COUNT, prose="mend it " * 60)
    assert (made.text.endswith(good), made.prose) == (True, "")


@pytest.mark.parametrize("target", range(300, 1_600, 100))
@pytest.mark.parametrize("answer", ["", "Goal: mend it", "Goal: " + " ".join(SAID[:4]), "Done: a"])
def test_a_compaction_with_a_model_is_no_worse_than_one_by_rule(target: int, answer: str) -> None:
    history = [said("user", "Mend the loom."), *TALK * 3, said("user", "Go on.")]
    order = Order(target, 120, ALL, summariser=True, window=4_000)
    words = gather(CODEC.read(history).messages)
    score = SaidScore(words.facts, words.words)
    by_model, by_rule = run(history, order, answer), run(history, order, None)
    judged = [
        score.judge("\n".join(m.text for m in made.edited.transcript.messages))
        for made in (by_model, by_rule)
    ]
    assert judged[0] >= judged[1]
    assert by_model.reached == by_rule.reached
    if by_model.fallback_reason == "summary_worse":
        assert by_model.written is not None
        assert by_model.written.prose is None
        assert by_model.written.requests
