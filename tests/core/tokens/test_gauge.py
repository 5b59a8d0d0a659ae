"""The gauge: tiers at their edges, honest unknown, and what people read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.core.dialects.usage import Usage
from ullage.core.errors import ConfigurationError
from ullage.core.tokens.claim import Claim
from ullage.core.tokens.counting import Count
from ullage.core.tokens.gauge import LEAVING, STANDARD, TIERS, Shown, Thresholds, Tier, assess
from ullage.core.tokens.window import Window, resolve

TOKENS = st.integers(0, 3_000_000)
WINDOWS = st.integers(1, 2_000_000)


@pytest.mark.parametrize(
    ("tokens", "window", "tier"),
    [
        (0, 1000, "none"),
        (350, 1000, "none"),
        (699, 1000, "none"),
        (700, 1000, "advisory"),
        (799, 1000, "advisory"),
        (800, 1000, "warning"),
        (899, 1000, "warning"),
        (900, 1000, "critical"),
        (999, 1000, "critical"),
        (1000, 1000, "overflow"),
        (5000, 1000, "overflow"),
        (125_000, 128_000, "critical"),
    ],
)
def test_the_pinned_tiers_hold(tokens: int, window: int, tier: str):
    assert assess(tokens, window).tier == tier
    assert assess(Usage(tokens), window).tier == tier
    assert assess(tokens, Window(window)).tier == tier


@given(TOKENS, TOKENS, WINDOWS)
def test_more_tokens_never_lower_the_tier(one: int, other: int, window: int):
    less, more = sorted((one, other))
    assert TIERS.index(assess(less, window).tier) <= TIERS.index(assess(more, window).tier)


@given(TOKENS, WINDOWS, WINDOWS)
def test_a_larger_window_never_raises_the_tier(tokens: int, one: int, other: int):
    small, large = sorted((one, other))
    assert TIERS.index(assess(tokens, large).tier) <= TIERS.index(assess(tokens, small).tier)


@given(st.integers(1, 200_000), st.sampled_from([(7, 1), (8, 2), (9, 3), (10, 4)]))
def test_a_lower_edge_belongs_to_its_tier_at_every_window(tenth: int, edge: tuple[int, int]):
    share, tier = edge
    assert assess(tenth * share, tenth * 10).tier == TIERS[tier]
    assert assess(tenth * share - 1, tenth * 10).tier == TIERS[tier - 1]


@given(WINDOWS, st.integers(0, 1000), st.integers(0, 1000), st.integers(0, 1000))
def test_the_tier_goes_by_the_upper_edge_and_the_shown_number_is_the_best(
    window: int, low: int, more: int, most: int
):
    count = Count(low + more, low, low + more + most, "estimate")
    found = assess(count, window)
    assert found.input_tokens == low + more
    assert found.tier == assess(low + more + most, window).tier
    assert found.state == "estimated"


@pytest.mark.parametrize("window", [None, 0, -5, Window(), resolve([], model="never-heard-of")])
@pytest.mark.parametrize("used", [999_999, Usage(999_999), {"prompt_tokens": 999_999}])
def test_tokens_of_an_unknown_window_are_unavailable(used: Any, window: Any):
    found = assess(used, window)
    assert found.to_dict() == {
        "available": False,
        "tier": "unavailable",
        "input_tokens": 999_999,
        "reason": "context_window_unknown",
    }


@pytest.mark.parametrize("window", [1000, None])
def test_a_missing_usage_is_unavailable_whatever_the_window(window: int | None):
    found = assess(None, window)
    assert found.to_dict() == {
        "available": False,
        "tier": "unavailable",
        "reason": "usage_missing",
    }


@pytest.mark.parametrize(
    "used",
    [
        True,
        -1,
        1.5,
        "900",
        [],
        {},
        {"input": -1},
        {"input": True},
        {"input": "9"},
        {"input": 1, "more": 2},
        {"prompt_tokens": None},
    ],
    ids=repr,
)
def test_what_is_no_usage_is_malformed_and_never_a_number(used: Any):
    found = assess(used, 1000)
    assert (found.available, found.reason, found.ratio) == (False, "usage_malformed", None)


def test_a_usage_is_known_and_a_count_is_known_only_if_the_server_made_it():
    assert assess(Usage(1), 10).state == "known"
    assert assess({"prompt_tokens": 1}, 10).state == "known"
    assert assess(MappingProxyType({"prompt_tokens": 1}), 10).state == "known"
    assert assess(Count(1, 1, 1, "server"), 10).state == "known"
    assert assess(Count(1, 1, 1, "exact"), 10).state == "estimated"
    assert assess(1, 10).state == "estimated"


@given(TOKENS, TOKENS, TOKENS, TOKENS)
def test_a_usage_as_recorded_is_assessed_like_the_usage(a: int, b: int, c: int, d: int):
    usage = Usage(a, b, c, d)
    recorded = {"input": a, "cache_read": b, "cache_write": c, "output": d}
    assert assess(recorded, 1_000_000) == assess(usage, 1_000_000)


def test_a_recorded_input_of_zero_is_known_to_be_zero():
    assert assess({"input": 0}, 1000).input_tokens == 0


@pytest.mark.parametrize(
    "edges",
    [
        {"advisory": 0.0},
        {"advisory": 0.8},
        {"warning": 0.95},
        {"critical": 1.0},
        {"advisory": -0.1},
        {"advisory": math.nan},
        {"overflow": math.nan},
    ],
    ids=repr,
)
def test_thresholds_that_do_not_rise_are_refused(edges: dict):
    with pytest.raises(ConfigurationError, match="must rise"):
        Thresholds(**edges)


def test_other_thresholds_move_the_tiers():
    preset = Thresholds(advisory=0.5, warning=0.85, critical=0.95)
    assert assess(849, 1000, thresholds=preset).tier == "advisory"
    assert assess(850, 1000, thresholds=preset).tier == "warning"
    assert Thresholds() == STANDARD


@given(st.one_of(st.none(), TOKENS), st.one_of(st.none(), WINDOWS))
def test_to_dict_has_only_keys_that_hold(used: int | None, window: int | None):
    found = assess(used, window).to_dict()
    assert None not in found.values()
    assert ("ratio" in found) == ("window_tokens" in found) == found["available"]


@pytest.mark.parametrize(
    ("used", "window", "meter"),
    [
        (12_200, 32_000, "ctx=12.2k/32.0k"),
        (1_600, 2_048, "ctx=1.6k/2.0k"),
        (999, 1_000, "ctx=999/1.0k"),
        (12_200, None, "ctx=12.2k"),
        (None, 1_000, "ctx=?"),
    ],
)
def test_the_meter_reads_as_documented(used: int | None, window: int | None, meter: str):
    assert assess(used, window).meter() == meter


def test_the_notice_reads_as_documented():
    notice = assess(27_840, 32_000).notice()
    assert notice == "Context window at 87 % (27,840/32,000 tokens)"
    band = assess(Count(1_465, 1_100, 3_150, "estimate"), 4_096).notice()
    assert band == "Context window at 76 % (3,150/4,096 tokens at most)"
    assert assess(5, None).notice() == "Context window unknown (context_window_unknown)"
    assert assess(None, 5).notice() == "Context window unknown (usage_missing)"


@given(st.integers(0, 300))
def test_the_notice_says_a_whole_percent_as_it_is(percent: int):
    assert f"at {percent} %" in assess(percent, 100).notice()


def test_the_notice_never_rounds_a_full_window_up():
    assert "at 99 %" in assess(99_999, 100_000).notice()


def test_the_notice_shows_one_number_a_tier_and_says_where_it_begins():
    # 87 % of 32,000 is 27,840 (the measuring page)
    assert assess(27_840, 32_000).to_dict() == {
        "available": True,
        "tier": "warning",
        "ratio": 0.87,
        "input_tokens": 27_840,
        "window_tokens": 32_000,
        "state": "estimated",
    }


@pytest.mark.parametrize(("edge", "lowest"), [(0.7, 0.7), (None, 0.8)])
def test_the_lowest_edge_is_that_of_the_first_tier(edge: float | None, lowest: float):
    assert Thresholds(advisory=edge).lowest == lowest


def test_without_an_advisory_tier_the_first_is_warning():
    none = Thresholds(advisory=None, warning=0.85, critical=0.95)
    found = [assess(t, 1000, thresholds=none).tier for t in (0, 700, 849, 850, 950, 1000)]
    assert found == ["none", "none", "none", "warning", "critical", "overflow"]


# ── what is shown ───────────────────────────────────────────────────────────────────────────────

PRESETS = st.sampled_from([STANDARD, Thresholds(advisory=None, warning=0.85, critical=0.95)])
STEPS = st.lists(
    st.tuples(st.one_of(st.none(), st.integers(0, 1200)), st.sampled_from("aaaaab")), max_size=30
)
"""Thousandths of the window, or None for an unavailable assessment; and the last checkpoint."""


def told(steps: Sequence[tuple[int | None, str]], edges: Thresholds = STANDARD) -> list[Tier]:
    """Return the tiers of the notices that a course of assessments gives rise to."""
    shown, notices = Shown(), list[Tier]()
    for used, checkpoint in steps:
        shown, due = shown.after(assess(used, 1000, thresholds=edges), checkpoint, edges)
        if due:
            notices.append(shown.tier)
    return notices


def test_a_tier_that_was_shown_is_left_5_points_under_its_edge():
    shown, tiers = Shown(), []
    for used in (699, 700, 651, 649, 900, 851, 849, 751, 749, 1000, 951, 949):
        shown, _ = shown.after(assess(used, 1000), "")
        tiers.append(shown.tier)
    assert tiers == [
        *("none", "advisory", "advisory", "none"),
        *("critical", "critical", "warning", "warning", "advisory"),
        *("overflow", "overflow", "critical"),
    ]


def test_each_tier_is_told_once_a_checkpoint_and_a_new_one_tells_again():
    swinging = [(t, "") for t in (710, 600, 720, 910, 600, 930, 820, 700, 1100)]
    assert told(swinging) == ["advisory", "critical", "warning", "overflow"]
    assert told([*swinging, (500, "c"), (720, "c"), (750, "c")])[4:] == ["advisory"]


def test_a_new_checkpoint_shows_the_tier_as_it_is_and_not_as_it_lingered():
    shown, _ = Shown().after(assess(900, 1000), "")
    assert shown.after(assess(870, 1000), "")[0].tier == "critical"
    assert shown.after(assess(870, 1000), "new")[0].tier == "warning"


@given(STEPS, PRESETS)
def test_no_tier_is_told_twice_under_one_checkpoint(
    steps: list[tuple[int | None, str]], edges: Thresholds
):
    one = told([(used, "a") for used, _ in steps], edges)
    assert len(set(one)) == len(one)
    assert "none" not in one


@given(STEPS, PRESETS)
def test_the_shown_tier_is_never_under_the_real_one_and_at_most_5_points_over(
    steps: list[tuple[int | None, str]], edges: Thresholds
):
    shown = Shown()
    for used, checkpoint in steps:
        found = assess(used, 1000, thresholds=edges)
        before, (shown, due) = shown, shown.after(found, checkpoint, edges)
        if used is None:
            assert (shown, due) == (before, False)
            continue
        real, lingering = edges.tier(used / 1000), edges.tier(used / 1000 + LEAVING)
        assert TIERS.index(real) <= TIERS.index(shown.tier) <= TIERS.index(lingering)
        if checkpoint != before.checkpoint or TIERS.index(real) >= TIERS.index(before.tier):
            assert shown.tier == real
        assert due == (
            shown.tier != "none"
            and (checkpoint != before.checkpoint or shown.tier not in before.told)
        )


@given(STEPS)
def test_an_unavailable_assessment_makes_no_difference_to_what_follows(
    steps: list[tuple[int | None, str]],
):
    assert told(steps) == told([step for step in steps if step[0] is not None])


def test_a_window_is_measured_by_its_input_bound_not_by_its_total():
    window = resolve([Claim("total", 4000, "table"), Claim("input", 2000, "table")])
    assert assess(1900, window).tier == "critical"
