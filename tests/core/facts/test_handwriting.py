"""Another hand is told by its capitals where the first words have none."""

from __future__ import annotations

import pytest

from ullage.core.facts.handwriting import find_minded

PARAGRAPH = "The lease ends in May. Both sides sign it. Keys are handed over at noon."


@pytest.mark.parametrize(
    ("first", "found"),
    [
        ("so this came today, what is it. no idea here", [1]),
        ("So this came today.", []),
        ("so it goes. This came today. Nobody knows it. What is it?", []),
        ("rules for you:", []),
        ("1234", []),
    ],
)
def test_a_paragraph_with_capitals_stands_behind_first_words_without_them(
    first: str, found: list[int]
) -> None:
    assert list(find_minded([first, PARAGRAPH], 1)) == found
    assert list(find_minded([first], 1)) == []


OWN = "My lease ends in May. I sign it soon. Both keys are mine."


def test_who_begins_one_of_two_sentences_with_a_capital_may_go_on_of_themselves() -> None:
    mixed, small = "ok so this came today. Let me tell you", "ok so this came today. no idea"
    assert list(find_minded([mixed, OWN, PARAGRAPH, OWN], 1)) == []
    assert list(find_minded([mixed, PARAGRAPH, PARAGRAPH, OWN], 1)) == [1, 2, 3]
    assert list(find_minded([small, OWN, OWN], 1)) == [1, 2]
