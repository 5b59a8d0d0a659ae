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
