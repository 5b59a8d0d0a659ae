"""What calls cost with the provider's cache."""

from __future__ import annotations

from ullage.core.tokens.cost import Price
from ullage.replay.till import Till

ANTHROPIC = (Price(0, 3.0, 15.0, 0.3, 3.75),)


def test_what_stood_in_the_last_prompt_is_read_from_the_cache() -> None:
    till = Till(ANTHROPIC, 300)
    first = till.pay(10_000, 100, None, 0.0, "m")
    assert (first.cached, first.expired) == (0, 0)
    assert first.nanodollars == round((10_000 * 3.75 + 100 * 15) * 1_000)
    second = till.pay(12_000, 100, None, 60.0, "m")
    assert second.cached == 10_000
    assert second.nanodollars == round((10_000 * 0.3 + 2_000 * 3.75 + 100 * 15) * 1_000)


def test_a_pause_longer_than_its_life_loses_the_cache_and_another_model_has_none() -> None:
    till = Till(ANTHROPIC, 300)
    till.pay(10_000, 1, None, 0.0, "m")
    late = till.pay(10_000, 1, None, 301.0, "m")
    assert (late.cached, late.expired) == (0, 10_000)
    other = till.pay(10_000, 1, None, 302.0, "n")
    assert (other.cached, other.expired) == (0, 0)
    assert till.pay(10_000, 1, None, None, "n").cached == 10_000  # no time: nothing expired


def test_a_compaction_keeps_what_stands_before_its_first_edit() -> None:
    till = Till(ANTHROPIC, 300)
    till.pay(10_000, 1, None, None, "m")
    assert till.pay(6_000, 1, 2_000, None, "m").cached == 2_000
    assert till.pay(6_000, 1, 900, None, "m").cached == 0  # below what providers cache


def test_without_a_price_for_reading_nothing_is_cached_and_without_any_nothing_is_known() -> None:
    plain = Till((Price(0, 1.0, 2.0),), 300)
    plain.pay(5_000, 1, None, None, "m")
    again = plain.pay(5_000, 0, None, None, "m")
    assert (again.cached, again.nanodollars) == (0, 5_000_000)
    assert Till((), 300).pay(5_000, 1, None, None, "m").nanodollars is None
    assert Till((Price(0, None, 2.0),), 300).pay(5_000, 1, None, None, "m").nanodollars is None


def test_a_long_prompt_is_priced_by_its_own_tier() -> None:
    till = Till((Price(0, 1.0, 2.0), Price(200_000, 2.0, 4.0)), 300)
    assert till.pay(200_000, 0, None, None, "m").nanodollars == 200_000_000
    assert till.pay(200_001, 0, None, None, "m").nanodollars == 400_002_000


def test_bringing_something_back_reads_the_prompt_and_pays_for_what_comes() -> None:
    till = Till(ANTHROPIC, 300)
    assert till.price_again(1_000, 10_000) == round((10_000 * 0.3 + 1_000 * 3.75) * 1_000)
    assert Till((), 300).price_again(1_000, 10_000) == 0


def test_a_call_of_which_no_model_is_known_is_of_the_one_before() -> None:
    till = Till(ANTHROPIC, 300)
    till.pay(10_000, 1, None, None, "m")
    assert till.pay(10_000, 1, None, None, None).cached == 10_000
    assert till.pay(10_000, 1, None, None, "m").cached == 10_000
    assert till.pay(10_000, 1, None, None, "n").cached == 0


def test_a_prompt_that_is_too_short_for_a_cache_is_no_cache_write() -> None:
    till = Till(ANTHROPIC, 300)
    assert till.pay(1_000, 0, None, None, "m").nanodollars == 3_000_000
    assert till.pay(1_024, 0, None, None, "m").nanodollars == 3_840_000
