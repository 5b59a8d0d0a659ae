"""Which policy to take, and how it is written down."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ullage import config
from ullage.core.compaction.edits import Script
from ullage.core.compaction.policy import Policy, Rung, known_policies
from ullage.core.compaction.strategy import Strategy
from ullage.core.errors import ConfigurationError
from ullage.core.tokens.gauge import Thresholds
from ullage.replay import PolicyComparison, ReplayTotals, find_front, recommend, write_settings


def came_to(cost: int, lost: int, *, refused: int = 0, again: int = 0) -> ReplayTotals:
    return ReplayTotals(
        sessions=1, turns=10, refused=refused, nanodollars=cost, fault_nanodollars=again,
        taken_values=1_000, lost_values=lost, carried_tokens=cost,
    )  # fmt: skip


def test_the_front_is_what_no_other_beats_in_both() -> None:
    held = {
        "dear": came_to(9, 0),
        "cheap": came_to(1, 50),
        "bad": came_to(5, 60),
        "mid": came_to(4, 20),
    }
    assert find_front(held) == ("cheap", "mid", "dear")


def test_the_cheapest_that_loses_little_is_taken_with_what_is_done_again() -> None:
    held = {"dear": came_to(9, 0), "cheap": came_to(1, 50), "mid": came_to(4, 20)}
    assert recommend(PolicyComparison(held)).label == "mid"
    assert recommend(PolicyComparison(held), slack=0.05).label == "cheap"
    assert recommend(PolicyComparison(held), slack=0.0).label == "dear"
    faults = held | {"mid": came_to(4, 20, again=6)}
    assert recommend(PolicyComparison(faults)).label == "dear"


def test_a_policy_that_refuses_more_turns_is_not_taken_however_cheap() -> None:
    held = {"off": came_to(1, 0, refused=3), "ladder": came_to(9, 40)}
    choice = recommend(PolicyComparison(held))
    assert (choice.label, choice.front) == ("ladder", ("ladder",))
    assert "1 of 2 refuse more turns" in choice.reason
    assert "$0.00" in choice.reason


def test_turns_that_fit_under_no_policy_are_told() -> None:
    held = {"off": came_to(1, 0, refused=3), "ladder": came_to(9, 40, refused=2)}
    assert "even so 2 of 10 turns do not fit" in recommend(PolicyComparison(held)).reason
    assert "even so" not in recommend(PolicyComparison({"ladder": came_to(9, 0)})).reason


def test_without_prices_tokens_decide() -> None:
    held = {"a": replace(came_to(900, 0), unpriced=1), "b": replace(came_to(100, 0), unpriced=1)}
    choice = recommend(PolicyComparison(held))
    assert choice.label == "b"
    assert "$" not in choice.reason
    assert "tokens decide" in choice.reason


def test_without_a_turn_there_is_nothing_to_choose_by() -> None:
    with pytest.raises(ConfigurationError, match="no session was replayed"):
        recommend(PolicyComparison({"ladder": ReplayTotals()}))


OWN = Policy(
    name="mine", rungs=(Rung(0.7, 0.4, ("clear", "trim_oldest")), Rung(0.9, 0.5, ("trim_oldest",))),
    thresholds=Thresholds(advisory=None, warning=0.8), tail_share=0.1, keep_last=6,
    results={"read": "once"}, recovery_tails=(8, 2), background=True, economic="prices",
)  # fmt: skip


@pytest.mark.parametrize(
    "policy",
    [*map(Policy.from_name, known_policies()), OWN, replace(Policy.advisory(), tail_tokens=5)],
    ids=lambda policy: policy.name,
)
def test_settings_give_the_same_policy_again(policy: Policy, tmp_path: Path) -> None:
    path = tmp_path / "ullage.toml"
    path.write_text(write_settings(policy))
    found = Policy.read(config.load({}, tmp_path / "none", named=path).settings.policy)
    assert found == policy


def test_a_strategy_of_ones_own_cannot_be_written_down() -> None:
    mine = Strategy("mine", lambda situation: Script())
    with pytest.raises(ConfigurationError, match="of your own: settings cannot name it"):
        write_settings(Policy(name="x", rungs=(Rung(0.5, 0.3, (mine,)),)))


@pytest.mark.parametrize("slack", [-0.1, 1.5, float("nan")])
def test_a_slack_that_is_no_share_is_refused(slack: float) -> None:
    found = PolicyComparison({"dear": came_to(9, 0), "cheap": came_to(1, 50)})
    with pytest.raises(ConfigurationError, match="a slack is a share of loss from 0 to 1"):
        recommend(found, slack)
