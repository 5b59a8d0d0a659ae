"""Policies as values: presets as documented, and settings that cannot work refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.core.compaction.policy import DETERMINISTIC, Policy, Rung
from ullage.core.compaction.strategies import FILES
from ullage.core.errors import ConfigurationError
from ullage.core.tokens.gauge import STANDARD, assess

PRESETS = [
    *(Policy.ladder(), Policy.advisory(), Policy.auto_summary(), Policy.off()),
]


@pytest.mark.parametrize(
    ("ratio", "target"),
    [(0.0, None), (0.79, None), (0.80, 0.60), (0.89, 0.60), (0.90, 0.50), (1.5, 0.50)],
)
def test_the_ladder_acts_at_80_and_at_90_percent(ratio: float, target: float | None):
    rung = Policy.ladder().rung(ratio)
    assert (rung.target if rung else None) == target


def test_only_the_upper_rung_of_the_ladder_asks_for_a_summary():
    low, high = Policy.ladder().rung(0.85), Policy.ladder().rung(0.95)
    assert low is not None
    assert high is not None
    assert low.strategies == DETERMINISTIC
    assert "summarise_middle" in high.strategies


def test_advisory_waits_for_critical():
    assert Policy.advisory().rung(0.899) is None
    assert Policy.advisory().rung(0.90) is not None


def test_auto_summary_warns_at_85_and_summarises_at_95_percent():
    policy = Policy.auto_summary()
    tiers = [assess(n, 100, thresholds=policy.thresholds).tier for n in (84, 85, 94, 95)]
    assert tiers == ["none", "warning", "warning", "critical"]
    assert policy.rung(0.949) is None
    rung = policy.rung(0.95)
    assert rung is not None
    assert rung.strategies[0] == "summarise_middle"


def test_off_means_off():
    assert Policy.off().rung(100.0) is None
    assert Policy.off().thresholds == STANDARD


@given(st.sampled_from(PRESETS), st.floats(0, 3))
def test_a_rung_never_acts_below_its_pressure_and_the_highest_wins(policy: Policy, ratio: float):
    rung = policy.rung(ratio)
    reached = [r for r in policy.rungs if r.at <= ratio]
    assert (rung is None) == (not reached)
    assert rung is None or (rung in reached and rung.at == max(r.at for r in reached))


def test_the_order_of_rungs_does_not_matter():
    upper, lower = Rung(0.9, 0.5, FILES), Rung(0.8, 0.6, DETERMINISTIC)
    assert Policy(rungs=(upper, lower)).rung(0.95) == Policy(rungs=(lower, upper)).rung(0.95)


@pytest.mark.parametrize(
    ("at", "target"), [(0.8, 0.8), (0.8, 0.9), (0.8, 0.0), (0.8, -1.0), (0.8, float("nan"))]
)
def test_a_target_that_is_not_below_its_pressure_is_refused(at: float, target: float):
    with pytest.raises(ConfigurationError, match=f"a rung at {at} needs a target"):
        Rung(at, target, DETERMINISTIC)


def test_an_unknown_strategy_is_refused_by_name_with_those_that_are_known():
    wrong: Any = ("clear", "forget_all")
    with pytest.raises(ConfigurationError, match=r"forget_all.*clear, trim_oldest"):
        Rung(0.8, 0.6, wrong)


def test_a_policy_is_known_by_name_and_version():
    assert Policy(name="mine", version="7").identity == "mine/7"
    assert len({policy.identity for policy in PRESETS}) == len(PRESETS)


@pytest.mark.parametrize(
    "wrong",
    [
        *({"tail_tokens": -1}, {"tail_tokens": 1.5}, {"tail_share": 1.1}, {"min_output": 0}),
        *({"keep_last": 0}, {"carry_share": 1.0}, {"carry_share": -0.1}),
        *({"recovery_tails": t} for t in ((), (5, 10), (5, -1))),
        {"results": {"shell": "sometimes"}},
    ],
)
def test_a_policy_with_impossible_numbers_is_refused(wrong: dict):
    with pytest.raises(ConfigurationError, match=f"{next(iter(wrong))} of the policy"):
        Policy(**wrong)


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_is_found_by_its_name(preset: Policy):
    assert Policy.from_name(preset.name) == preset


def test_another_name_is_refused_with_those_that_there_are():
    with pytest.raises(ConfigurationError, match="there are ladder, advisory"):
        Policy.from_name("ladders")


def test_a_spared_history_is_compacted_only_where_it_does_not_fit():
    spared = Policy.ladder().spare()
    assert [(rung.at, rung.target) for rung in spared.rungs] == [(1.0, 0.5)]
    assert spared.spare() == spared
    assert Policy.off().spare() == Policy.off()
