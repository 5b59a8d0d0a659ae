"""What each section of a budget holds: it adds up, and marks that make no sense are refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.counting import WordCounter
from tests.support.transcripts import histories
from ullage.core.dialects.openai_chat.codec import OpenAIChat
from ullage.core.errors import ConfigurationError
from ullage.core.tokens.budget import SHARES, allocate, overruns
from ullage.core.tokens.counting import EXACT, UNKNOWN_VOCABULARY, Meter, Scale, measure
from ullage.core.tokens.sections import MARKS, check_marks, count_sections

TOOL = {
    "type": "function",
    "function": {"name": "read_file", "description": "Read it.", "parameters": {"type": "object"}},
}
SCALES = st.sampled_from([EXACT, UNKNOWN_VOCABULARY, Scale(0.9, 1.07, 1.3)])


@given(histories(max_turns=4), SCALES, st.booleans(), st.booleans(), st.data())
def test_the_sections_add_up_to_the_upper_edge(
    raws: list[Any], scale: Scale, tools: bool, system: bool, data: st.DataObject
) -> None:
    meter = Meter(WordCounter(), scale=scale, basis="exact" if scale is EXACT else "estimate")
    given_tools = [TOOL] if tools else None
    measured = measure(
        OpenAIChat().read(raws), meter, system="Be brief." if system else None, tools=given_tools
    )
    places = st.integers(0, len(raws) - 1)
    marks = data.draw(st.dictionaries(places, st.sampled_from(MARKS)))
    found = count_sections(measured, meter, check_marks(marks, len(raws)), given_tools, 77)
    assert list(found) == ["system_prompt", "tools", "knowledge", "conversation", "output_buffer"]
    assert found.pop("output_buffer") == 77
    high = measured.count().high
    # Each section is rounded up by itself.
    assert high <= sum(found.values()) <= high + (0 if scale is EXACT else len(found))
    assert (found["tools"] > 0) >= tools


def test_a_message_is_in_the_section_that_it_was_marked_with() -> None:
    raws = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "doc " * 50},
        {"role": "user", "content": "ask " * 20},
    ]
    meter = Meter(WordCounter())
    measured = measure(OpenAIChat().read(raws), meter)
    sizes = [size.high for size in measured.sizes]
    plain = count_sections(measured, meter, {}, None, 0)
    assert plain["system_prompt"] == sizes[0] + measured.fixed.high
    assert (plain["knowledge"], plain["conversation"]) == (0, sizes[1] + sizes[2])
    marked = count_sections(measured, meter, {1: "knowledge", 2: "system_prompt"}, None, 0)
    assert (marked["knowledge"], marked["conversation"]) == (sizes[1], 0)
    assert marked["system_prompt"] == plain["system_prompt"] + sizes[2]


def test_what_was_learned_to_stand_outside_is_system_prompt() -> None:
    meter = Meter(WordCounter(), scale=Scale(0.9, 1.0, 1.1), basis="calibrated")
    measured = measure(OpenAIChat().read([{"role": "user", "content": "w " * 50}]), meter)
    before = count_sections(measured, meter, {}, None, 0)
    after = count_sections(replace(measured, extra=900), meter, {}, None, 0)
    assert after["system_prompt"] == before["system_prompt"] + 900
    less = count_sections(replace(measured, extra=-900), meter, {}, None, 0)
    assert less["system_prompt"] == 0
    assert overruns(allocate(1_000), less) == ()


@pytest.mark.parametrize("index", [-1, 3, True, 1.0, "1", None])
def test_a_mark_at_a_place_that_is_none_is_refused(index: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"sections names message .* at 0 to 2"):
        check_marks({index: "knowledge"}, 3)


@pytest.mark.parametrize("name", ["output_buffer", "Knowledge", "", None, ["knowledge"]])
def test_a_mark_with_a_name_that_is_none_is_refused(name: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"puts message 1 into .* are system_prompt"):
        check_marks({1: name}, 3)


@given(st.dictionaries(st.integers(0, 4), st.sampled_from(MARKS)))
def test_lawful_marks_are_returned_as_they_are(marks: dict[int, str]) -> None:
    assert check_marks(marks, 5) is marks
    assert {*MARKS, "output_buffer"} == set(SHARES)
