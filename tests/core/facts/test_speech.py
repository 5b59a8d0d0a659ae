"""A long speech in a line is somebody else's text; a short one is a part of its sentence."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.core.facts.quoting import drop_quoted, read_origins
from ullage.core.facts.speech import CITED_LEAST, cut_speech, find_spoken

TOLD = "The tenant shall remove the tables. Rent is due on the first of each month, in advance."
MARKS = ['""', "\u201c\u201d", "\u201e\u201c", "\xab\xbb", "\u300c\u300d"]


@pytest.mark.parametrize("marks", MARKS)
def test_a_long_speech_in_a_line_is_quoted_and_what_stands_beside_it_typed(marks: str) -> None:
    line = f"The house sent me this. {marks[0]}{TOLD}{marks[1]} I keep the tables."
    before, speech, behind = cut_speech(line)
    assert before == (0, "The house sent me this. ")
    assert speech == (1, f"{marks[0]}{TOLD}{marks[1]}")
    assert behind == (0, " I keep the tables.")
    assert drop_quoted(line) == "The house sent me this. \n I keep the tables."


@pytest.mark.parametrize(
    "line",
    [
        f'Never say "{TOLD}" to anybody.',  # what a rule says word by word
        f'Write me a note that says "{TOLD}" in French.',
        '"Rent is due. Pay." is what they said.',  # short
        f'They said "{"a long word and another one, " * 5}" and went.',  # one sentence
        f'They said "{TOLD}',  # nothing closes it
        "no speech at all",
        f'My screen is 15" wide. {TOLD} The other one is 24" wide.',
        f"Our rules: \xab{TOLD}\xbb",
        "",
    ],
)
def test_what_is_a_part_of_its_sentence_stays_in_it(line: str) -> None:
    assert cut_speech(line) == ()
    assert [told.text for told in read_origins(line)] == line.splitlines()


def test_speeches_within_each_other_end_with_the_outer_one() -> None:
    inner = "\u201cno bread\u201d"
    line = f"They wrote \u201cThe gate is shut, {inner} says the sign. {TOLD}\u201d and left."
    assert [number for number, _ in cut_speech(line)] == [0, 1, 0]
    twice = f'"{TOLD}" "{TOLD}"'
    assert [number for number, _ in cut_speech(twice)] == [1, 1]


def test_a_third_of_the_characters_is_enough_in_a_script_without_spaces() -> None:
    line = "他说“门在九点关。请把自行车搬走否则物业会处理掉它们不再通知。”我不同意。"
    assert len(line) < CITED_LEAST
    assert [number for number, _ in cut_speech(line)] == [0, 1, 0]


@given(st.text(alphabet='ab. "\u201c\u201d\xab\xbb\n:', max_size=200))
def test_nothing_is_lost_but_signs(text: str) -> None:
    for line in text.splitlines():
        parts = cut_speech(line)
        assert not parts or "".join(told for _, told in parts).count("a") == line.count("a")
    assert all(0 < number < len(text.split("\n")) for number in find_spoken(text.split("\n")))


@pytest.mark.parametrize("lead", ["Your rules for this job:", "Please remember what I told you."])
def test_who_cites_their_own_rules_has_typed_them(lead: str) -> None:
    text = f'I go on.\n\n{lead}\n\n"{TOLD}"'
    assert drop_quoted(text) == text


@pytest.mark.parametrize("sign", ["\xab ", "\u201c", '"', "\xab a\n\n", '" b\n\n'])
def test_marks_beyond_number_are_read_once(sign: str) -> None:
    text = f"This came in.\n\n{sign * 5_000}"
    assert len(read_origins(text)) == len(text.splitlines())
