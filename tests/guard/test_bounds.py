"""Three bounds: thresholds work on the lowest, and only the window refuses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import ullage
from tests.guard.test_defaults import runtime_of
from ullage import ContextTooLargeError, Guard, Policy
from ullage.core.tokens.cost import Price
from ullage.core.tokens.window import Window
from ullage.runtime import Runtime

WINDOW = 10_000
HALF = replace(Policy.ladder(), effective=0.5)


def history(tokens: int) -> list[dict[str, Any]]:
    """Return a history whose count is at least so large, by its upper edge, and hardly larger."""
    made: list[dict[str, Any]] = [{"role": "user", "content": "Go."}]
    while ullage.count(made, model="gpt-4o").high < tokens:
        made.append({"role": "assistant", "content": f"{len(made)}:" + " word" * 40})
        made.append({"role": "user", "content": "And on, please."})
    return made


def guard(policy: Policy = HALF, runtime: Runtime | None = None, **options: Any) -> Guard:
    options.setdefault("window", WINDOW)
    return Guard("gpt-4o", policy=policy, runtime=runtime or Runtime(), **options)


@pytest.mark.parametrize(("tokens", "compacted"), [(3_900, False), (4_100, True)])
def test_rungs_work_on_the_effective_bound(tokens: int, compacted: bool):
    view = guard().prepare(history(tokens))
    assert (view.prepared.checkpoint is not None) is compacted
    if compacted:
        assert view.prepared.count.high <= 0.6 * WINDOW / 2


def test_the_gauge_goes_by_it_and_names_it():
    found = guard().prepare(history(3_600)).assessment
    assert (found.tier, found.window_tokens) == ("advisory", 5_000)
    said = "the effective bound of 5,000 tokens by the policy ladder, of 10,000"
    assert found.bound == said
    assert found.notice().endswith(f"/5,000 tokens); {said}")


def test_beyond_it_nothing_overflows_and_nothing_is_refused():
    off = replace(Policy.off(), effective=5_000)
    view = guard(off).prepare(history(7_000))
    assert view.assessment.tier == "critical"
    with pytest.raises(ContextTooLargeError, match=r"do not fit into 10,000 \("):
        guard(off).prepare(history(10_100))


def test_the_window_says_what_it_is_capped_by():
    window = guard().window()
    assert (window.input_tokens, window.working_tokens) == (WINDOW, 5_000)
    assert "thresholds work on the effective bound of 5,000 tokens by the policy ladder" in (
        window.explain()
    )


def test_a_price_that_rises_is_a_bound_where_the_policy_goes_by_prices():
    priced = replace(Policy.ladder(), economic="prices")
    window = Guard("gemini-2.5-pro", policy=priced, runtime=Runtime()).window()
    assert window.working_tokens == 200_000
    assert window.working is not None
    assert window.working.describe() == "the economic bound of 200,000 tokens by its prices"
    assert Guard("gemini-2.5-pro", runtime=Runtime()).window().working is None


def test_a_bound_that_is_raised_brings_the_whole_history_back():
    runtime, messages = Runtime(), history(4_100)
    assert guard(HALF, runtime).prepare(messages).messages != messages
    wide = replace(HALF, effective=None)
    assert guard(wide, runtime).prepare(messages).messages == messages


@pytest.mark.parametrize(
    ("given", "name", "tokens"),
    [
        ({"effective": 0.5}, "effective", 5_000),
        ({"effective": 4_000}, "effective", 4_000),
        ({"effective": 1.0}, None, None),
        ({"effective": 20_000}, None, None),
        ({"economic": 3_000, "effective": 4_000}, "economic", 3_000),
        ({"economic": 0.9, "effective": 4_000}, "effective", 4_000),
        ({"economic": "prices"}, "economic", 2_000),
        ({"effective": 0.00001}, "effective", 1),
    ],
)
def test_the_lowest_bound_holds(given: dict[str, Any], name: str | None, tokens: int | None):
    prices = (Price(0, 1.0), Price(2_000, 2.0), Price(8_000, 4.0))
    window = replace(Policy.ladder(), **given).narrow(Window(input_tokens=WINDOW), prices)
    found = window.working
    assert (found and found.name, found and found.tokens) == (name, tokens)
    assert window.working_tokens == (tokens or WINDOW)


def test_without_prices_or_a_window_there_is_no_bound():
    by_prices = replace(Policy.ladder(), economic="prices")
    assert by_prices.narrow(Window(input_tokens=WINDOW)).working is None
    assert HALF.narrow(Window()).working_tokens is None


@pytest.mark.parametrize("value", [0, -1, 1.5, 2.5, True, "half"])
def test_a_bound_that_is_none_is_refused(value: Any):
    with pytest.raises(ullage.ConfigurationError, match="effective of the policy 'ladder' is"):
        replace(Policy.ladder(), effective=value)
    with pytest.raises(ullage.ConfigurationError, match='or tokens, or "prices"'):
        replace(Policy.ladder(), economic=value)


def test_settings_say_it(tmp_path: Path):
    text = '[policy]\npreset = "advisory"\neffective = 0.5\neconomic = "prices"\n'
    policy = Guard("gpt-4o", runtime=runtime_of(text, tmp_path)).policy
    assert (policy.effective, policy.economic) == (0.5, "prices")
