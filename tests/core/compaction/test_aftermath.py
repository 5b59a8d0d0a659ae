"""What comes of a compaction is measured, and decides how deep the next one goes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.compaction.situations import CODEC, said, tool_step
from ullage.core.compaction.aftermath import NEAR, Aftermath, choose_target, review
from ullage.core.compaction.faults import LONGEST
from ullage.core.tokens.budget import SOON
from ullage.core.tokens.cost import Price


def look(*commands: str) -> list[dict[str, Any]]:
    return [
        raw
        for number, command in enumerate(commands)
        for raw in tool_step(f"c{number}", "ok", arguments=f'{{"command": "{command}"}}')
    ]


def test_calls_that_are_made_again_behind_a_compaction_are_counted() -> None:
    history = [said("user", "go"), *look("a", "b", "b"), said("assistant", "so"), *look("a", "c")]
    messages = CODEC.read(history).messages
    place = 1 + 6
    found = review(messages, place, [30, 12], 1)
    assert found == Aftermath(3, 2, 1, 3, 1, 1, 42)
    assert found.to_dict()["repeated"] == 1


def test_only_the_first_answers_behind_it_count_as_its_consequence() -> None:
    history = [said("user", "go"), *look("a", *map(str, range(NEAR)), "a")]
    messages = CODEC.read(history).messages
    found = review(messages, 3, [], 0)
    assert (found.answers, found.calls, found.repeated) == (NEAR + 1, NEAR, 0)
    assert review(messages, 5, [], 0).repeated == 1
    assert review(messages, len(messages) + 9, [], 0).answers == 0  # somebody went back


def test_a_call_that_carries_a_text_of_its_own_is_none_that_is_made_again() -> None:
    text = "w " * LONGEST
    messages = CODEC.read([said("user", "go"), *look(text, text)]).messages
    assert review(messages, 1, [], 0).calls == 0


def past(faults: int, tokens: int, answers: int = 10) -> Aftermath:
    return Aftermath(answers, 0, 0, 0, 0, faults, tokens)


def test_where_nothing_was_asked_for_again_the_target_stays() -> None:
    assert choose_target(5_000, 8_000, 0, None) == 5_000
    assert choose_target(5_000, 8_000, 0, past(0, 0)) == 5_000
    assert choose_target(5_000, 8_000, 0, past(9, 90_000, SOON)) == 5_000
    assert choose_target(5_000, 4_000, 0, past(9, 90_000)) == 5_000


def test_what_was_asked_for_again_raises_the_target_as_far_as_it_costs_more() -> None:
    cheap = choose_target(5_000, 8_000, 0, past(1, 50))
    dear = choose_target(5_000, 8_000, 0, past(9, 40_000))
    assert cheap == 5_000
    assert dear == 6_500


def test_prices_decide() -> None:
    some = past(2, 2_500)
    free = (Price(0, 10.0, 30.0, 0.01, 10.0),)
    equal = (Price(0, 10.0, 30.0, 10.0, 10.0),)
    assert choose_target(5_000, 8_000, 0, past(0, 0), equal) == 5_000
    assert choose_target(5_000, 8_000, 0, some, equal) >= choose_target(5_000, 8_000, 0, some, free)
    assert choose_target(5_000, 8_000, 0, past(9, 40_000), (Price(0, 0.0, 0.0),)) == 6_500


PASTS = st.builds(past, st.integers(0, 50), st.integers(0, 10**6), st.integers(0, 100))


@given(st.integers(1, 10**6), st.integers(1, 10**6), st.integers(0, 10**6), PASTS)
@pytest.mark.parametrize("prices", [(), (Price(0, 3.0, 15.0, 0.3, 3.75),)])
def test_a_target_is_never_lower_nor_more_than_half_of_the_way_back(
    prices: tuple[Price, ...], target: int, more: int, kept: int, was: Aftermath
) -> None:
    found = choose_target(target, target + more, kept, was, prices)
    assert target <= found <= target + (more + 1) // 2
    worse = past(was.faults * 2, was.fault_tokens * 2, was.answers)
    assert choose_target(target, target + more, kept, worse, prices) >= found
