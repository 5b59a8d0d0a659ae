"""The bench asks all peers in turn, and asks who is slow no more than once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.measure import QUICK, SLOW_S, Bench, slow
from bench.sections import SECTIONS, present


@given(names=st.lists(st.text(), unique=True), rounds=st.integers(0, 6))
def test_each_round_has_every_name_once(names: Sequence[str], rounds: int) -> None:
    asked = list(Bench.order(bench(), names, rounds))
    size = len(names)
    turns = [asked[at : at + size] for at in range(0, len(asked), size or 1)]
    assert len(turns) == (rounds if names else 0)
    assert all(sorted(turn) == sorted(names) for turn in turns)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({"first_s": 0.1, "tokens": 900}, False),
        ({"first_s": 0.1, "more_s": SLOW_S + 1}, True),
        ({"counted_mb": 900.0}, False),
        ({"cut": 60}, True),
        ({"error": "died"}, True),
        ({}, False),
    ],
)
def test_slow_is_what_is_asked_once(answer: dict[str, float], expected: bool) -> None:
    assert slow(answer) is expected


def test_readings_are_gathered_and_facts_replaced() -> None:
    measured = bench()
    answers = [("a", {"x_s": 1.0, "tokens": 3}), ("a", {"x_s": 2.0, "tokens": 4})]
    measured.table("count", 200, iter(answers))
    assert measured.results["count"] == {"200": {"a": {"x_s": [1.0, 2.0], "tokens": 4}}}


def test_a_section_is_present_with_all_of_its_results() -> None:
    assert present({"loop": {}}) == set()
    assert present({"loop": {}, "manage": {}, "count": {}}) == {"loops", "counting"}
    assert present({key: {} for part in SECTIONS.values() for key in part.keys}) == set(SECTIONS)


def bench() -> Bench:
    """Return a bench without environments: it can only keep readings."""
    quiet = object.__new__(Bench)
    quiet.plan, quiet.folder, quiet.results = QUICK, Path(), {}
    quiet.say = lambda text: None  # type: ignore[method-assign]
    return quiet
