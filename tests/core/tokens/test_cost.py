"""Dollars by hand-computed examples and by laws, and whether a compaction pays."""

from __future__ import annotations

from dataclasses import replace
from math import fsum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.core.dialects.usage import Usage
from ullage.core.errors import ConfigurationError
from ullage.core.tokens.cost import Cost, Price, Saving, cost, measure_saving, rates, saving
from ullage.core.tokens.counting import Count

# Claude Sonnet 4.5 as it was priced with its long context tier
TIERS = (Price(0, 3.0, 15.0, 0.3, 3.75), Price(200_000, 6.0, 22.5, 0.6, 7.5))
FLAT = TIERS[:1]

TOKENS = st.integers(0, 2_000_000)
RATES = st.none() | st.floats(0, 1000, allow_nan=False)
USAGES = st.builds(Usage, TOKENS, TOKENS, TOKENS, TOKENS, TOKENS)
PRICES = st.lists(st.builds(Price, TOKENS, RATES, RATES, RATES, RATES), max_size=4)
BUCKETS = ("input", "cache_read", "cache_write", "output", "reasoning")


def test_every_bucket_has_its_own_price():
    found = cost(Usage(1_000, 100_000, 5_000, 2_000, 500), TIERS)
    assert found.input == pytest.approx(0.003, abs=1e-12)
    assert found.cache_read == pytest.approx(0.03, abs=1e-12)
    assert found.cache_write == pytest.approx(0.01875, abs=1e-12)
    assert found.output == pytest.approx(0.03, abs=1e-12)
    assert found.reasoning == pytest.approx(0.0075, abs=1e-12)
    assert found.total == pytest.approx(0.08925, abs=1e-12)
    assert (found.unpriced_tokens, found.estimated) == (0, False)


def test_a_long_prompt_prices_the_whole_request_by_its_tier():
    # 50,000 at 6 + 160,000 at 0.6 + 1,000 at 22.5
    assert cost(Usage(50_000, 160_000, 0, 1_000), TIERS).total == pytest.approx(0.4185, abs=1e-12)
    assert cost(Usage(50_000, 160_000, 0, 1_000), TIERS[::-1]).total == pytest.approx(0.4185)


def test_a_tier_begins_above_its_number():
    assert cost(200_000, TIERS).total == pytest.approx(0.6, abs=1e-12)
    assert cost(200_001, TIERS).total == pytest.approx(1.200006, abs=1e-12)
    assert rates(0, TIERS) == TIERS[0]


def test_output_does_not_choose_the_tier():
    assert cost(Usage(1, output=999_999), TIERS).output == pytest.approx(14.999985, abs=1e-12)


def test_what_a_tier_leaves_out_comes_from_the_one_below():
    prices = (Price(0, 2.0, 8.0, 0.5), Price(272_000, 4.0))
    assert rates(300_000, prices) == Price(272_000, 4.0, 8.0, 0.5)
    assert rates(5, (Price(100, 1.0),)) == Price(0)


def test_a_count_or_a_number_is_an_estimate_of_uncached_input():
    assert cost(10_000, FLAT) == Cost(input=0.03, estimated=True)
    assert cost(Count(10_000, 9_000, 12_000, "estimate"), FLAT) == cost(10_000, FLAT)


def test_an_unknown_price_is_unknown_and_not_nothing():
    found = cost(Usage(1_000, 500, 0, 20), (Price(0, 3.0, 15.0),))
    assert (found.cache_read, found.cache_write, found.total) == (None, 0.0, None)
    assert found.unpriced_tokens == 500
    assert cost(Usage(1_000, 0, 0, 20), (Price(0, 3.0, 15.0),)).total == pytest.approx(0.0033)
    assert cost(Usage(1_000, 0, 0, 20, 7), ()).unpriced_tokens == 1_027
    assert cost(Usage(0), ()).total == 0.0


def test_a_price_of_nothing_is_a_price():
    assert cost(Usage(1_000, output=5), (Price(0, 0.0, 0.0),)).total == 0.0


def test_a_cost_can_be_written_down():
    assert cost(Usage(1_000, 5), (Price(0, 1.0),)).to_dict() == {
        "input": 0.001,
        "cache_read": None,
        "cache_write": 0.0,
        "output": 0.0,
        "reasoning": 0.0,
        "unpriced_tokens": 5,
        "estimated": False,
        "total": None,
    }


@pytest.mark.parametrize("tokens", [-1, True, 1.5, None])
def test_numbers_that_are_no_tokens_are_refused(tokens):
    with pytest.raises(ConfigurationError, match=r"the tokens is .* at least 0"):
        cost(tokens, FLAT)


@given(USAGES, PRICES)
def test_buckets_add_up_and_are_never_negative(usage: Usage, prices: list[Price]):
    found = cost(usage, prices)
    parts = [getattr(found, name) for name in BUCKETS]
    assert all(part is None or part >= 0 for part in parts)
    if None in parts:
        assert found.total is None
        assert found.unpriced_tokens > 0
    else:
        assert found.unpriced_tokens == 0
        assert found.total == pytest.approx(fsum(parts), rel=1e-12, abs=1e-12)


@given(USAGES, st.sampled_from(BUCKETS), TOKENS, PRICES)
def test_more_tokens_of_a_tier_never_cost_less(usage, bucket: str, more: int, prices):
    larger = replace(usage, **{bucket: getattr(usage, bucket) + more})
    if rates(usage.prompt_tokens, prices) != rates(larger.prompt_tokens, prices):
        return
    small, large = cost(usage, prices).total, cost(larger, prices).total
    assert small is None or large is None or large >= small


def test_a_compaction_saves_reads_and_loses_cache_once():
    # 10 calls read 100,000 at 0.3; or the first reads 5,000 and writes 15,000 at 3.75, and nine
    # read 20,000: 0.3 - (0.0015 + 0.05625) - 0.054
    found = saving(100_000, 20_000, 5_000, FLAT, turns=10)
    assert (found.tokens, found.rewritten_tokens) == (800_000, 15_000)
    assert found.dollars == pytest.approx(0.18825, abs=1e-12)
    assert found.worth is True
    assert found.sentence() == (
        "800,000 tokens fewer over 10 calls, 15,000 of the cache written anew: $0.1883 saved "
        "(estimate)"
    )


def test_a_compaction_for_one_call_does_not_pay_where_reading_is_cheap():
    found = saving(100_000, 60_000, 0, FLAT, turns=1)
    assert found.dollars == pytest.approx(0.03 - 0.225, abs=1e-12)
    assert found.worth is False
    assert found.sentence().endswith(": $0.1950 lost (estimate)")


def test_without_cache_prices_nothing_is_lost():
    found = saving(100_000, 60_000, 0, (Price(0, 3.0, 15.0),), turns=1)
    assert found.dollars == pytest.approx(0.12, abs=1e-12)


def test_leaving_a_long_tier_is_part_of_the_saving():
    found = saving(300_000, 100_000, 100_000, TIERS, turns=1)
    assert found.dollars == pytest.approx(0.18 - 0.03, abs=1e-12)


def test_a_saving_without_a_price_is_known_in_tokens_only():
    found = saving(100_000, 20_000, 0, (), turns=3)
    assert (found.tokens, found.dollars, found.worth) == (240_000, None, None)
    assert found.sentence().endswith("price unknown (estimate)")
    assert saving(9, 8, 0, (Price(1_000, 3.0),), turns=3).dollars is None
    assert saving(2_000, 8, 0, (Price(1_000, 3.0),), turns=3).dollars is None


def test_what_saves_no_tokens_is_not_worth_it_at_any_price():
    assert saving(100, 100, 0, (), turns=3).worth is False
    assert saving(100, 120, 0, (), turns=3).worth is False
    assert saving(100_000, 5, 0, FLAT, turns=0).worth is False
    assert saving(100_000, 5, 0, (), turns=0).dollars == 0.0


def test_the_next_usage_shows_what_the_cache_lost():
    estimate = saving(100_000, 20_000, 5_000, FLAT, turns=10)
    found = measure_saving(estimate, Usage(1_500, 4_000, 17_000, 300), added_tokens=1_000)
    assert found == Saving(100_000, 21_500, 4_000, 10, FLAT, measured=True)
    assert found.rewritten_tokens - estimate.rewritten_tokens == 2_500
    assert found.sentence().startswith("785,000 tokens fewer")
    assert found.sentence().endswith("(measured)")


def test_a_usage_smaller_than_expected_is_taken_as_it_is():
    estimate = saving(100_000, 20_000, 5_000, FLAT, turns=10)
    found = measure_saving(estimate, Usage(10, 90), added_tokens=60)
    assert (found.after_tokens, found.kept_tokens) == (40, 40)
    assert measure_saving(estimate, Usage(10), added_tokens=60).after_tokens == 0


def test_a_saving_can_be_written_down():
    assert saving(100, 20, 5, (), turns=2).to_dict() == {
        "before_tokens": 100,
        "after_tokens": 20,
        "kept_tokens": 5,
        "turns": 2,
        "measured": False,
        "tokens": 160,
        "rewritten_tokens": 15,
        "dollars": None,
        "worth": None,
    }


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.data(), st.integers(0, 100))
def test_longer_use_never_saves_less_once_a_call_saves(before: int, after: int, data, turns: int):
    kept = data.draw(st.integers(0, min(before, after)))
    one, more = (saving(before, after, kept, FLAT, turns=n).dollars for n in (turns, turns + 1))
    assert one is not None
    assert more is not None
    if turns and after <= before:
        assert more >= one - 1e-9


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"before_tokens": -1}, "before_tokens is -1"),
        ({"after_tokens": 1.5}, "after_tokens is 1.5"),
        ({"kept_prefix_tokens": 21}, "kept_prefix_tokens=21 is more than the 20 tokens"),
        ({"turns": True}, "turns is True"),
    ],
)
def test_a_saving_of_impossible_numbers_is_refused(change: dict[str, Any], match: str):
    asked: dict[str, Any] = {"before_tokens": 100, "after_tokens": 20, "kept_prefix_tokens": 5}
    with pytest.raises(ConfigurationError, match=match):
        saving(**{**asked, "prices": FLAT, "turns": 1, **change})
