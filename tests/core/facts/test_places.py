"""Segments are found where they were cut from, whatever white space and headings they have."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.core.facts.places import TextPlaces
from ullage.core.facts.segments import cut_text

BRIEF = "Say it in\n   English.\n\nRules:\n- no salt\n- bread at noon\n\n# Cellar\n- twelve casks\n"


@pytest.mark.parametrize(
    ("segment", "parts"),
    [
        ("Say it in English.", ["Say it in\n   English."]),
        ("Rules: no salt", ["Rules:", "no salt"]),
        ("Rules: bread at noon", ["Rules:", "bread at noon"]),
        ("Cellar twelve casks", ["Cellar", "twelve casks"]),
        ("Rules: nine casks", []),
        ("Attic twelve casks", []),
        ("no such words", []),
        ("", []),
        ("w " * 99, []),
    ],
)
def test_a_segment_is_found_with_its_heading(segment: str, parts: list[str]) -> None:
    found = TextPlaces(BRIEF)
    assert [BRIEF[start:stop] for start, stop in found.find(segment)] == parts
    assert found.has(segment) == bool(parts)


def test_what_stands_in_front_is_not_found_again() -> None:
    text = "No salt. Bread at noon. No salt."
    first = TextPlaces(text).find("No salt.")
    assert first == [(0, 8)]
    assert TextPlaces(text).find("No salt.", first[0][1]) == [(24, 32)]
    assert TextPlaces(text).find("Bread at noon.", 20) == []


@given(st.text(alphabet="ab:#-. \n", max_size=120))
def test_all_that_is_cut_out_of_a_text_stands_in_it(text: str) -> None:
    places, begin = TextPlaces(text), 0
    for segment in cut_text(text):
        spans = places.find(segment.text)
        assert spans
        assert all(begin <= start < stop <= len(text) for start, stop in spans)
