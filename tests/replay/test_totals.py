"""Totals add up whatever the order, and unknown stays unknown."""

from __future__ import annotations

from dataclasses import fields

from hypothesis import given
from hypothesis import strategies as st

from ullage.replay.totals import ReplayTotals, add_totals

NUMBERS = [f.name for f in fields(ReplayTotals) if f.name != "own_ms"]
DRAWN = st.builds(ReplayTotals, **dict.fromkeys(NUMBERS, st.integers(0, 10**15)))


@given(st.lists(DRAWN, max_size=6), st.randoms())
def test_the_sum_is_the_same_in_any_order_and_grouping(found, chance) -> None:
    whole = add_totals(found)
    mixed = list(found)
    chance.shuffle(mixed)
    cut = chance.randrange(len(found) + 1)
    assert add_totals(mixed) == whole == add_totals(mixed[:cut]) + add_totals(mixed[cut:])


@given(DRAWN)
def test_totals_come_back_from_json_as_they_were(found: ReplayTotals) -> None:
    assert ReplayTotals.from_dict(found.to_dict()) == found


def test_unknown_prices_and_nothing_taken_up_are_unknown() -> None:
    assert ReplayTotals().loss is None is ReplayTotals().fault_rate
    assert ReplayTotals(faults=1, left_out=50).fault_rate == 0.02
    assert ReplayTotals(unpriced=1, nanodollars=5).dollars is None
    assert ReplayTotals(unpriced=1).burden_dollars is None
    found = ReplayTotals(nanodollars=2_500_000_000, taken_words=3, taken_values=1, lost_values=1)
    assert (found.dollars, found.loss, found.burden_dollars) == (2.5, 0.25, 0.0)
    assert ReplayTotals().__add__("x") is NotImplemented
