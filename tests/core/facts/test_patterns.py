"""Patterns that are searched fast find what they did before."""

from __future__ import annotations

import re
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ullage.core.facts import cues, grading, segments, sentences
from ullage.core.facts.patterns import (
    BeyondAscii,
    LatePattern,
    flatten,
    group_branches,
    has_digit,
    split_at,
    split_branches,
)

BRANCHES: Final = (
    "must(?:n't| not)",
    "may|must be",
    "(?:can|could)(?:n't| not)",
    "(?:yo )?quiero",
    "(?:no|nay)+ way",
    r"s?he|[m|)]x|\(a",
    "(?:un(?:der|til)|up) now",
    "m{2}",
)
TEXTS: Final = st.text(alphabet="mustn' beyoquirwaycdlhpx|)(", max_size=24)


@given(text=TEXTS | st.sampled_from(BRANCHES).flatmap(st.from_regex))
def test_grouped_branches_find_what_these_branches_find(text: str) -> None:
    whole = re.compile(rf"\b(?:{'|'.join(BRANCHES)})(?!\w)")
    grouped = re.compile(rf"\b(?:{group_branches(BRANCHES)})(?!\w)")
    assert (grouped.search(text) is None) == (whole.search(text) is None)


def test_branches_that_begin_alike_stand_together() -> None:
    assert group_branches(["(?:can|may) go", "come"]) == "c(?:an go|ome)|may go"
    assert group_branches(["(?:so )?here"]) == "so here|here"
    assert group_branches(["(?:so )+here", "at?"]) == "(?:so )+here|at?"


def test_bars_in_groups_and_classes_part_nothing() -> None:
    assert split_branches(r"a|(?:b|c)|[|]|\||[]|]") == ["a", "(?:b|c)", "[|]", r"\|", "[]|]"]


def test_a_text_is_cut_behind_its_marks() -> None:
    ends = LatePattern(r"[.!]\s+")
    assert split_at(ends, "One.  Two! Three.") == ["One.", "Two!", "Three."]
    assert split_at(ends, "") == [""]


@pytest.mark.parametrize("ends", [segments._ENDS, sentences._SPLIT])
@given(text=st.text(alphabet="aB1.!? \n\"')]", max_size=16))
def test_a_text_without_a_mark_within_is_cut_as_any_other(ends: LatePattern, text: str) -> None:
    beyond = "\u00e9" + text  # is looked through, and begins no other sentence
    first, *rest = split_at(ends, beyond)
    assert split_at(ends, "e" + text) == ["e" + first[1:], *rest]


@given(text=st.text(alphabet="ab \t\n\x1f\u00a0\u2003\u3000", max_size=12) | st.text(max_size=12))
def test_white_space_is_single_blanks(text: str) -> None:
    assert flatten(text) == " ".join(text.split())


@given(data=st.data())
def test_a_line_of_data_is_graded_as_any_other(data: st.DataObject) -> None:
    cue = data.draw(st.sampled_from([cue for cue, _ in grading.WORTH_JOINED]))
    text = data.draw(st.from_regex(cue.pattern) | st.text(max_size=12)).lower()
    assert grading.find_worth(text, data=True) == grading.find_worth(text)


def test_a_pattern_is_compiled_when_it_is_asked_for_first() -> None:
    broken = LatePattern("(")
    with pytest.raises(re.error):
        broken.search("")
    whole = LatePattern("b+", re.IGNORECASE)
    assert (whole.begins("ab"), whole.stands_in("aB"), whole.begins("BBa")) == (False, True, True)
    assert (whole.sub("-", "abBa"), whole.split("abba"), whole.findall("aBb")) == (
        "a-a",
        ["a", "a"],
        ["Bb"],
    )


ONE_OF: Final[dict[str, tuple[LatePattern, list[LatePattern]]]] = {
    "joined": (grading.JOINED, [*(cue for cue, _ in grading.WORTH_JOINED), cues.DISTRIBUTES]),
    "opens": (
        cues.OPENS,
        [*(cue for cue, _ in grading.WORTH_OPENING), cues.COMMANDS, cues.ASKS_ONCE],
    ),
    "turns": (cues.TURNS, [cues.LIFTS, cues.TASK, cues.DECIDES, cues.FAILS]),
    "changes": (cues.CHANGES, [cues.REPLACES]),
    "signed": (
        LatePattern(rf"{sentences.SIGNED.source}|{sentences.HASH.source}"),
        [sentences.STRONG],
    ),
}


@pytest.mark.parametrize("name", ONE_OF)
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_what_is_looked_for_first_is_in_all_that_is_found(name: str, data: st.DataObject) -> None:
    first, patterns = ONE_OF[name]
    pattern = data.draw(st.sampled_from(patterns))
    text = data.draw(st.from_regex(pattern.pattern, alphabet=st.characters(codec="utf-8")))
    assert first.search(text) is not None


PARTS = [
    *((pattern, parts) for pattern, _, parts in grading.WORTH),
    *((pattern, parts) for pattern, _, parts in grading.WORTH_AT_HEAD),
    (cues.NAMES, cues.NAMING),
]


@given(text=st.text(max_size=12) | st.text(alphabet="a1²٣一", max_size=4))
def test_a_text_has_a_digit_where_a_pattern_finds_one(text: str) -> None:
    assert has_digit(text) == (re.search(r"\d", text) is not None)


@pytest.mark.parametrize(("pattern", "parts"), PARTS)
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_a_cue_that_is_looked_for_by_parts_of_it_has_one_of_them(
    pattern: LatePattern, parts: tuple[str, ...], data: st.DataObject
) -> None:
    found = data.draw(st.from_regex(pattern.pattern))
    assert any(part in found for part in parts)


BEYOND = {name: cue for name, cue in vars(cues).items() if isinstance(cue, BeyondAscii)}


@pytest.mark.parametrize("name", BEYOND)
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_a_cue_that_is_not_looked_for_in_ascii_is_in_none(name: str, data: st.DataObject) -> None:
    text = data.draw(st.from_regex(BEYOND[name].pattern))
    assert not text.isascii()
    assert BEYOND[name].search(text) is not None


VALUES = st.from_regex(sentences.STRONG.pattern, alphabet=st.characters(codec="ascii"))


@settings(max_examples=200, deadline=None)
@given(text=VALUES | st.text(alphabet="a1b.-:=@/ v", max_size=30))
def test_a_value_is_found_whatever_signs_stand_beside_it(text: str) -> None:
    found, whole = (
        sentences.find_strong(text, digit=any(map(str.isdigit, text))),
        sentences.STRONG.search(text),
    )
    assert (found and found.span()) == (whole and whole.span())


@settings(max_examples=30, deadline=None)
@given(text=st.from_regex(cues.SCRIPTS.pattern))
def test_cues_of_other_scripts_have_a_character_of_one(text: str) -> None:
    assert max(text) >= cues.FIRST_SCRIPT
