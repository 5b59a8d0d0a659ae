"""The protected tail, and shortening that keeps head and tail within what was asked."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.compaction.situations import said, situation, situations, tool_step, words
from tests.support.counting import WordCounter
from ullage.core.compaction.situation import CUT_MARK, Keep, Situation, shorten

COUNT = WordCounter().count
MARK_TOKENS = COUNT(CUT_MARK.format(tokens=10**6, named=""))
TEXTS = st.one_of(
    st.text(max_size=400),
    st.lists(st.sampled_from(["a", "bb", "...", "\n\n", "漢字", "long_identifier_of_code"])).map(
        " ".join
    ),
    st.integers(0, 3000).map(words),
)


# ── shorten ─────────────────────────────────────────────────────────────────────────────────────


@given(TEXTS, st.integers(-5, 500))
def test_a_shortened_text_never_takes_more_than_was_asked_or_the_mark_alone(text: str, tokens: int):
    short, most = shorten(text, tokens, COUNT), max(tokens, 0)
    if COUNT(short) > most:
        assert short == CUT_MARK.format(tokens=COUNT(text) - most, named="")


def test_nothing_is_left_of_nothing():
    assert shorten("", -1, COUNT) == ""


@given(TEXTS, st.integers(MARK_TOKENS, 500))
def test_a_budget_that_holds_the_mark_is_kept(text: str, tokens: int):
    assert COUNT(shorten(text, tokens, COUNT)) <= tokens


@given(TEXTS, st.integers(0, 500))
def test_a_text_that_fits_is_returned_as_it_is(text: str, spare: int):
    assert shorten(text, COUNT(text) + spare, COUNT) is text


@given(TEXTS, st.integers(MARK_TOKENS + 6, 500))
def test_what_is_kept_is_the_head_and_the_tail_of_the_text(text: str, tokens: int):
    short = shorten(text, tokens, COUNT)
    if short is text:
        return
    mark = CUT_MARK.format(tokens=COUNT(text) - tokens, named="")
    head, found, tail = short.partition(mark)
    assert found
    assert text.startswith(head)
    assert text.endswith(tail)
    assert len(head) + len(tail) < len(text)


def test_head_and_tail_are_kept_about_two_to_one_and_near_the_budget():
    text = "HEAD " + words(2000) + " TAIL"
    short = shorten(text, 300, COUNT)
    head, _, tail = short.partition("\n[ullage: about 1,702 tokens left out here]\n")
    assert head.startswith("HEAD")
    assert tail.endswith("TAIL")
    assert 1.8 < len(head) / len(tail) < 2.2
    assert COUNT(short) > 250


def test_a_text_of_uneven_density_still_ends_within_the_budget():
    dense, sparse = "!?" * 500, "x" * 8000
    for text in (dense + sparse, sparse + dense, sparse[:4000] + dense + sparse[:4000]):
        assert COUNT(shorten(text, 100, COUNT)) <= 100


def test_where_no_cut_is_ever_small_enough_the_mark_alone_remains():
    def stubborn(text: str) -> int:
        return 0 if text.startswith("\n[ullage") and text.endswith("here]\n") else 101

    assert shorten(words(500), 100, stubborn) == CUT_MARK.format(tokens=1, named="")


# ── the protected tail ──────────────────────────────────────────────────────────────────────────


def sizes_behind(found: Situation, border: int) -> int:
    return sum(sum(found.sizes[u.start : u.stop]) for u in found.units[border:])


@given(situations())
def test_the_tail_holds_as_many_of_the_newest_units_as_fit_and_the_newest_always(found: Situation):
    border = found.border()
    assert 0 <= border < len(found.units)
    newest_only = border == len(found.units) - 1
    assert newest_only or sizes_behind(found, border) <= found.tail
    assert border == 0 or sizes_behind(found, border - 1) > found.tail


def test_the_newest_unit_stays_with_all_its_results_however_big():
    found = situation([said("user", "go"), *tool_step("c1", words(500))], 10)
    assert found.units[found.border()].start == 1


def test_units_that_fill_the_tail_to_the_token_are_in_it():
    history = [said("user", words(10)) for _ in range(4)]
    two = sum(situation(history, 0).sizes[-2:])
    assert situation(history, 0, tail=two).border() == 2
    assert situation(history, 0, tail=two - 1).border() == 3


KEEPING = [said("user", "go"), *tool_step("c1", "ok"), *tool_step("c2", "ok"), said("user", "on")]
"""Units of one, two, two and one messages."""


@pytest.mark.parametrize(
    ("keep", "cut", "widened"),
    [(0, 3, 3), (1, 3, 3), (2, 3, 2), (3, 2, 2), (4, 2, 1), (5, 1, 1), (6, 0, 0), (99, 0, 0)],
)
def test_a_tail_in_messages_is_whole_units_and_widened_where_told(
    keep: int, cut: int, widened: int
):
    found = situation(KEEPING, 0, tail=10_000)
    assert found.border() == 0
    assert replace(found, keep=Keep(keep)).border() == cut
    assert replace(found, keep=Keep(keep, whole=True)).border() == widened


def test_the_smaller_of_the_two_tails_holds():
    found = situation(KEEPING, 0, tail=0, keep=Keep(6))
    assert found.border() == 3


def test_a_mark_names_the_text_only_where_something_keeps_it():
    found = situation([], 0)
    assert found.referring("[gone]", "text") == "[gone]"
    assert replace(found, name_of=str.upper).referring("[gone]", "text") == "[gone; recall TEXT]"


@given(situations())
def test_the_tokens_of_a_part_are_those_of_its_text(found: Situation):
    for index, message in enumerate(found.transcript.messages):
        for position, part in enumerate(message.parts):
            if part.media is None:
                assert found.tokens(index, position) == COUNT(part.text)
        for position, call in enumerate(message.calls):
            assert found.tokens(index, -1, position) == COUNT(call.arguments)


def test_an_empty_transcript_has_no_tail():
    assert situation([], 10).border() == 0


@given(situations())
def test_the_total_is_all_messages_and_what_is_outside_the_list(found: Situation):
    assert found.total == found.fixed + sum(found.sizes)
