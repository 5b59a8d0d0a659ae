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
        ("Rules: no salt", ["Rules:", "- no salt"]),
        ("Rules: bread at noon", ["Rules:", "- bread at noon"]),
        ("Cellar twelve casks", ["Cellar", "- twelve casks"]),
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


@pytest.mark.parametrize(
    "text",
    [
        "Budget: 20 euro. We fly at noon. Flights: 30 euro.",  # no heading: its value is beside it
        "Budget:\n- 20 euro\n\nFlights:\n- 30 euro",  # the item of another heading
    ],
)
def test_a_value_that_stands_by_another_name_is_not_there(text: str) -> None:
    assert not TextPlaces(text).has("Budget: 30 euro")
    assert TextPlaces("Budget:\n- 20 euro\n- 30 euro\n\nWe fly.").has("Budget: 30 euro")


def test_what_is_below_a_heading_stands_with_it_whatever_its_length() -> None:
    item = f"hand out the tickets of the school {'and of the yard ' * 6}for nothing"
    text = f"A fair.\n\nThese are out:\n1. {item}\n2. a band\n\nWe begin at noon."
    found = TextPlaces(text).find(item)
    assert [text[start:stop] for start, stop in found] == ["These are out:", f"1. {item}"]
    assert TextPlaces(text).find("We begin at noon.") == [(len(text) - 17, len(text))]
    marked = f"# In\nbread\n\n# Out\nsalt in the soup\n\n{'w' * 200}:\n- no"
    found = TextPlaces(marked).find("salt in the soup")
    assert [marked[start:stop] for start, stop in found] == ["Out", "salt in the soup"]


def test_a_heading_goes_with_the_text_right_below_it() -> None:
    text = "**Out:**\nsalt in the soup of ours\n\nWe begin at noon.\n\nAt last:"
    found = TextPlaces(text).find("Out: salt in the soup of ours")
    assert [text[start:stop] for start, stop in found] == ["Out:", "salt in the soup of ours"]
    assert len(TextPlaces(text).find("We begin at noon.")) == 1


def test_an_item_is_found_where_it_stands_first() -> None:
    text = "Rules:\n- no tabs\n- no salt\n\nThe old list said Rules: no tabs. I want it red."
    found = TextPlaces(text).find("Rules: no tabs")
    assert [text[start:stop] for start, stop in found] == ["Rules:", "- no tabs"]
