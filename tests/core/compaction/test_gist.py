"""Of a long task whole sentences stay: the first, the last, and those that tell most."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.core.compaction.gist import choose_sentences
from ullage.core.messages.transcript import Message, Part

NAMES = [f"{first}{second}lta" for first in "BCDFGHKLMNPRSTVWXZ" for second in "aeiouy"]
SENTENCES = [f"Shelf {n} was built by the good uncle of {NAMES[n]}." for n in range(30)]
NEWLINES = "\n" * 90
MARK = "\n[{tokens} left out]\n"


def choose(text: str, worths: Mapping[int, float], tokens: int, mark: str = MARK) -> str:
    message = Message("user", (Part("text", text),))
    return choose_sentences(message, text, worths, tokens, len, mark)


def test_the_first_and_the_last_stay_with_what_tells_most() -> None:
    told = choose(" ".join(SENTENCES), {n: float(n == 12) + n / 100 for n in range(30)}, 240)
    assert told.startswith(f"{SENTENCES[0]} \u2026 {SENTENCES[12]}\n[")
    assert told.endswith(f" left out]\n{SENTENCES[28]} {SENTENCES[29]}")
    assert len(told) <= 240


def test_what_has_no_worth_stays_only_at_the_ends() -> None:
    told = choose(" ".join(SENTENCES), {}, 10_000)
    assert told.startswith(SENTENCES[0])
    assert told.endswith(SENTENCES[29])
    assert len(told) < 150


def test_neighbours_stand_as_they_were_written() -> None:
    text = (
        "Hello.\n\n- twelve casks of wine stand in row 4\n- nine of them leak at noon\n\nDo it now."
    )
    assert choose(text, dict.fromkeys(range(9), 1.0), len(text) + 90) == text


def test_a_mark_says_how_much_is_left_out_and_a_paste_is_not_chosen() -> None:
    text = f"{' '.join(SENTENCES[:4])}\n```\n{'x = 1;' * 30}\n```\nWhat does it do to us all here?"
    told = choose(text, dict.fromkeys(range(9), 1.0), 400)
    assert "x = 1" not in told
    assert told.endswith("What does it do to us all here?")
    (left,) = [int(line.split()[0][1:]) for line in told.splitlines() if line.endswith("left out]")]
    assert left >= 180


@pytest.mark.parametrize("tokens", [-1, 0, 10, 40])
def test_where_not_one_sentence_fits_there_is_none(tokens: int) -> None:
    assert choose(" ".join(SENTENCES), dict.fromkeys(range(30), 1.0), tokens) == ""


def test_of_two_sentences_none_is_chosen() -> None:
    assert choose(" ".join(SENTENCES[:2]), {0: 1.0, 1: 1.0}, 500) == ""


def test_of_very_many_that_are_too_large_not_all_are_tried() -> None:
    tried: list[str] = []

    def count(text: str) -> int:
        tried.append(text)
        return len(text)

    text = " ".join(f"In the year {n} I built the shelf of {name}." for n, name in enumerate(NAMES))
    message = Message("user", (Part("text", text),))
    told = choose_sentences(message, text, dict.fromkeys(range(99), 1.0), 250, count, MARK)
    assert 0 < len(told) <= 250
    assert len(tried) < len(NAMES)


def test_where_what_stands_between_takes_more_than_was_thought_the_least_goes() -> None:
    text = NEWLINES.join(SENTENCES[:3]) + f" {SENTENCES[3]} {SENTENCES[4]}"
    told = choose(text, {1: 2.0, 2: 1.0}, 300)
    assert told.startswith(f"{SENTENCES[0]}{NEWLINES}{SENTENCES[1]}")
    assert SENTENCES[2] not in told


def test_of_a_message_of_several_texts_none_is_chosen() -> None:
    text = " ".join(SENTENCES)
    message = Message("user", (Part("text", "use it is"), Part("text", text)))
    assert choose_sentences(message, text, {5: 1.0}, 300, len, MARK) == ""


def test_a_sentence_that_is_not_in_the_text_is_not_chosen() -> None:
    message = Message("user", (Part("text", " ".join(SENTENCES[:9])),))
    text = " ".join(SENTENCES[:3] + SENTENCES[4:9])
    told = choose_sentences(message, text, {3: 2.0, 5: 1.0}, 300, len, MARK)
    assert SENTENCES[3] not in told
    assert SENTENCES[5] in told


def test_items_stand_below_their_heading_once() -> None:
    rules = "\n".join(f"{n}. a rule of the uncle of {name}" for n, name in enumerate(NAMES[:15]))
    text = f"I plan a fair.\n\nThese are out of the question for all of us:\n{rules}\n\nGo on now."
    told = choose(text, dict.fromkeys(range(20), 1.0) | {9: 2.0}, 260)
    assert told.count("These are out of the question for all of us:") == 1
    assert len([line for line in text.split("\n") if line and line in told]) >= 6
    assert "\n8. a rule of the uncle of" in told or "\u2026 8. a rule of the uncle of" in told


def test_a_heading_that_an_item_begins_with_is_not_told_twice() -> None:
    filler = " ".join(SENTENCES[:12])
    text = f"A fair.\n\n# Rules\n- Rules must be kept by all.\n- no salt\n\n{filler}\n\nGo on now."
    told = choose(text, dict.fromkeys(range(20), 1.0), 400)
    assert "RulesRules" not in told
    assert "- Rules must be kept by all." in told


def test_an_earlier_cut_is_counted_and_its_mark_is_gone() -> None:
    earlier = "[ullage: about 1,200 tokens left out here; recall u:0123456789abcdef]"
    text = f"{' '.join(SENTENCES[:4])}\n{earlier}\n{' '.join(SENTENCES[4:9])}"
    told = choose(text, {1: 1.0}, 300)
    assert "ullage" not in told
    (left,) = [int(line.split()[0][1:]) for line in told.splitlines() if line.endswith("left out]")]
    assert left > 1_200


@given(
    st.lists(st.sampled_from(SENTENCES), min_size=1, max_size=12),
    st.integers(0, 500),
    st.lists(st.floats(0, 9), min_size=12, max_size=12),
)
def test_no_more_is_written_than_has_room_and_nothing_is_made_up(
    sentences: list[str], tokens: int, worths: list[float]
) -> None:
    told = choose(" ".join(sentences), dict(enumerate(worths)), tokens)
    assert len(told) <= tokens
    lines = (line for line in told.splitlines() if not line.endswith("left out]"))
    for piece in (part for line in lines for part in line.split(" \u2026 ")):
        assert piece in " ".join(sentences)
