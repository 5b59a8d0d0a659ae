"""Shares that add up, what fits into a window, and what a turn may still spend."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ullage.core.dialects.thinking import LEAST_THINKING
from ullage.core.errors import ConfigurationError
from ullage.core.tokens.budget import (
    ANSWER,
    KINDS,
    SHARES,
    Charged,
    Fit,
    Overrun,
    Spent,
    TurnBudget,
    allocate,
    divide_budget,
    fit,
    overruns,
    tighten_budget,
)
from ullage.core.tokens.window import Window

WINDOWS = st.integers(1, 20_000_000)
TOKENS = st.integers(0, 300_000)
DOLLARS = st.floats(0, 100, allow_nan=False)


@st.composite
def shares(draw: st.DrawFn) -> dict[str, float]:
    weights = draw(st.lists(st.integers(0, 100), min_size=5, max_size=5))
    assume(sum(weights))
    return {name: w / sum(weights) for name, w in zip(SHARES, weights, strict=True)}


def test_a_window_is_divided_by_the_published_shares():
    assert allocate(128_000) == {
        "system_prompt": 12_800,
        "tools": 25_600,
        "knowledge": 19_200,
        "conversation": 57_600,
        "output_buffer": 12_800,
    }


def test_what_rounding_leaves_goes_to_the_conversation():
    assert list(allocate(19).values()) == [1, 3, 2, 12, 1]
    assert list(allocate(1).values()) == [0, 0, 0, 1, 0]


def test_a_share_is_the_decimal_number_it_was_written_as():
    written = dict(zip(SHARES, (0.29, 0.29, 0.07, 0.35, 0.0), strict=True))
    assert list(allocate(100, written).values()) == [29, 29, 7, 35, 0]


@given(st.one_of(WINDOWS, st.integers(1, 10**30)), shares())
def test_parts_add_up_and_only_the_conversation_gains_by_rounding(window: int, parts):
    allocated = allocate(window, parts)
    assert sum(allocated.values()) == window
    assert list(allocated) == list(SHARES)
    for name, tokens in allocated.items():
        exact = window * parts[name]
        slack = 1 + window * 1e-9
        assert exact - slack <= tokens <= exact + slack + 4 * (name == "conversation")
        assert tokens >= 0


@given(WINDOWS, st.integers(0, 1_000_000), shares())
def test_a_larger_window_gives_no_section_a_smaller_part(window: int, more: int, parts):
    small, large = allocate(window, parts), allocate(window + more, parts)
    for name in SHARES:
        # the others take what rounding had left to the conversation
        assert large[name] >= small[name] - 4 * (name == "conversation")


@pytest.mark.parametrize("window", [0, -1, True, 1000.0, None, "8192"])
def test_a_window_that_is_no_positive_number_is_refused(window):
    with pytest.raises(ConfigurationError, match=r"the window is .*at least 1"):
        allocate(window)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"tools": -0.2, "knowledge": 0.55}, "share of tools is -0.2, below 0"),
        ({"tools": 0.3}, r"add up to 1\.1 .*change conversation to 0\.35"),
        ({"tools": 0.2 + 1e-8}, "add up to 1"),
        ({"tools": float("nan")}, "share of tools is nan"),
        ({"tools": float("inf")}, "share of tools is inf"),
        ({"tools": True}, "share of tools is True"),
        ({"tools": "0.2"}, "share of tools is '0.2'"),
        ({"images": 0.0}, "missing: none, unknown: 'images'"),
    ],
)
def test_shares_that_cannot_be_are_refused_with_the_fix(change, match: str):
    with pytest.raises(ConfigurationError, match=match):
        allocate(1000, {**SHARES, **change})


def test_missing_shares_are_named():
    with pytest.raises(ConfigurationError, match="missing: conversation, tools, unknown: none"):
        allocate(1000, {k: v for k, v in SHARES.items() if k not in ("tools", "conversation")})


def test_shares_within_rounding_of_one_are_taken():
    assert sum(allocate(10**12, {**SHARES, "tools": 0.2 + 9e-10}).values()) == 10**12


def test_sections_over_their_share_are_told_largest_first():
    used = {"tools": 2_600, "conversation": 4_500, "knowledge": 9_000, "system_prompt": 1_001}
    found = overruns(allocate(10_000), used)
    assert found == (
        Overrun("knowledge", 9_000, 1_500),
        Overrun("tools", 2_600, 2_000),
        Overrun("system_prompt", 1_001, 1_000),
    )
    assert found[0].sentence() == "knowledge holds 9,000 tokens, 7,500 over its 1,500"


def test_a_section_without_a_share_is_refused():
    with pytest.raises(ConfigurationError, match=r"'images' has no share .*system_prompt, tools"):
        overruns(allocate(10_000), {"images": 1})
    with pytest.raises(ConfigurationError, match="tools is -1"):
        overruns(allocate(10_000), {"tools": -1})


def test_what_fits_is_left_as_it_was_asked():
    assert fit(32_000, input_tokens=28_000) == Fit(True, None, None, 4_000)
    assert fit(32_000, input_tokens=28_000, max_tokens=4_000) == Fit(True, 4_000, None, 4_000)
    assert fit(32_000, input_tokens=8_000, max_tokens=9_000, thinking_tokens=8_000) == Fit(
        True, 9_000, 8_000, 24_000
    )


def test_output_is_lowered_to_the_room_and_said_so():
    found = fit(32_000, input_tokens=28_000, max_tokens=8_000)
    assert found == Fit(True, 4_000, None, 4_000, found.lowered)
    assert " ".join(found.lowered) == (
        "max_tokens lowered from 8,000 to 4,000: 28,000 tokens of input leave 4,000 of the window "
        "of 32,000"
    )


def test_output_is_never_above_the_limit_of_the_model():
    window = Window(input_tokens=128_000, total_tokens=128_000, output_tokens=4_096)
    found = fit(window, input_tokens=1_000, max_tokens=8_000)
    assert (found.max_tokens, found.room) == (4_096, 4_096)
    assert found.lowered[0].endswith("the model answers with at most 4,096 tokens")
    assert fit(window, input_tokens=127_000, max_tokens=8_000).max_tokens == 1_000


def test_a_bound_for_the_input_alone_does_not_bind_the_output():
    window = Window(input_tokens=1_000_000)
    assert fit(window, input_tokens=999_999, max_tokens=65_536) == Fit(True, 65_536, None)
    both = Window(input_tokens=272_000, total_tokens=400_000, output_tokens=128_000)
    assert fit(both, input_tokens=271_000, max_tokens=128_000).max_tokens == 128_000
    assert fit(both, input_tokens=272_000).over == 1


def test_thinking_is_lowered_with_the_output_it_is_part_of():
    found = fit(32_000, input_tokens=28_000, max_tokens=8_000, thinking_tokens=4_000)
    assert (found.max_tokens, found.thinking_tokens) == (4_000, 2_000)
    assert found.lowered[1] == (
        "thinking lowered from 4,000 to 2,000 tokens, its part of max_tokens"
    )


def test_thinking_below_its_least_is_left_out():
    found = fit(32_000, input_tokens=30_000, max_tokens=8_000, thinking_tokens=4_000)
    assert (found.max_tokens, found.thinking_tokens) == (2_000, None)
    assert found.lowered[1] == (
        "thinking of 4,000 tokens left out: of 2,000 tokens of output it would get 1,000, and "
        "1,024 is the least"
    )


def test_thinking_without_an_output_gets_one_that_holds_it():
    assert fit(200_000, input_tokens=5, thinking_tokens=10_000).max_tokens == 10_000 + ANSWER
    found = fit(8_192, input_tokens=4_096, thinking_tokens=4_096)
    assert (found.max_tokens, found.thinking_tokens) == (4_096, 2_048)


def test_an_unknown_window_leaves_everything_as_asked():
    found = fit(Window(), input_tokens=10**9, max_tokens=5_000, thinking_tokens=2_000)
    assert found == Fit(True, 5_000, 2_000)
    assert fit(Window(), input_tokens=1, thinking_tokens=2_000) == Fit(True, None, 2_000)


def test_the_smaller_of_two_bounds_binds():
    assert fit(Window(input_tokens=100, total_tokens=50), input_tokens=60).over == 11


def test_an_output_limit_holds_without_a_window():
    assert fit(Window(output_tokens=4_096), input_tokens=9, max_tokens=5_000).max_tokens == 4_096


@pytest.mark.parametrize(
    ("tokens", "over", "room"), [(31_999, 0, 1), (32_000, 1, 0), (40_000, 8_001, 0)]
)
def test_an_input_that_leaves_no_token_for_an_answer_does_not_fit(tokens, over, room):
    found = fit(32_000, input_tokens=tokens, max_tokens=8_000, thinking_tokens=4_000)
    assert (found.fits, found.over, found.room) == (not over, over, room)
    if over:
        assert (found.max_tokens, found.thinking_tokens, found.lowered) == (8_000, 4_000, ())


@given(
    st.one_of(
        WINDOWS, st.builds(Window, st.none() | WINDOWS, st.none() | WINDOWS, st.none() | WINDOWS)
    ),
    TOKENS,
    st.none() | st.integers(1, 300_000),
    st.none() | st.integers(LEAST_THINKING, 300_000),
)
def test_what_is_to_be_sent_fits(window, used: int, output: int | None, thinking: int | None):
    assume(output is None or thinking is None or thinking < output)
    found = fit(window, input_tokens=used, max_tokens=output, thinking_tokens=thinking)
    assert found.fits == (found.over == 0)
    if not found.fits:
        return
    if found.max_tokens is not None and found.room is not None:
        assert 1 <= found.max_tokens <= found.room
    if found.thinking_tokens is not None:
        assert thinking is not None
        assert LEAST_THINKING <= found.thinking_tokens <= thinking
        assert found.max_tokens is None or found.thinking_tokens < found.max_tokens
    if output is not None:
        assert found.max_tokens is not None
        assert found.max_tokens <= output
        assert bool(found.lowered) == (found.max_tokens < output)


@pytest.mark.parametrize(
    ("asked", "match"),
    [
        ({"input_tokens": -1}, "input_tokens is -1"),
        ({"input_tokens": True}, "input_tokens is True"),
        ({"max_tokens": 0}, "max_tokens is 0; .*at least 1"),
        ({"max_tokens": 5.0}, "max_tokens is 5.0"),
        ({"thinking_tokens": 1_023}, "thinking_tokens is 1023; .*at least 1,024"),
        ({"thinking_tokens": 2_000, "max_tokens": 2_000}, "must be less than max_tokens=2,000"),
    ],
)
def test_numbers_that_no_request_can_have_are_refused(asked, match: str):
    with pytest.raises(ConfigurationError, match=match):
        fit(8_192, **{"input_tokens": 1, **asked})


@pytest.mark.parametrize("window", [0, -5, True, 8.5, None])
def test_a_window_to_fit_into_is_a_window_or_a_positive_number(window):
    with pytest.raises(ConfigurationError, match="the window is"):
        fit(window, input_tokens=1)


CHARGES = st.lists(st.tuples(st.sampled_from(KINDS), TOKENS, st.none() | DOLLARS), max_size=8)


@given(CHARGES)
def test_a_ledger_keeps_the_sum_of_every_kind(charges):
    spent = Spent()
    for kind, tokens, dollars in charges:
        spent = spent.charge(kind, tokens, dollars)
    assert spent.tokens == sum(tokens for _, tokens, _ in charges)
    for kind in KINDS:
        of_kind = [charge for charge in charges if charge[0] == kind]
        known: Charged = getattr(spent, kind)
        assert (known.times, known.tokens) == (len(of_kind), sum(c[1] for c in of_kind))
        assert (known.dollars is None) == any(c[2] is None for c in of_kind)
    if any(dollars is None for _, _, dollars in charges):
        assert spent.dollars is None
    else:
        assert spent.dollars == pytest.approx(sum(dollars for _, _, dollars in charges))


def test_a_charge_that_cannot_be_is_refused():
    with pytest.raises(ConfigurationError, match="'tip' is no kind of call"):
        Spent().charge("tip", 1, None)  # type: ignore[arg-type] # what is tested
    with pytest.raises(ConfigurationError, match="tokens of a call is -1"):
        Spent().charge("call", -1, None)
    wrong: list[Any] = [-0.1, float("nan"), float("inf"), True, "1"]
    for dollars in wrong:
        with pytest.raises(ConfigurationError, match="dollars of a call is"):
            Spent().charge("call", 1, dollars)


def test_a_turn_without_a_budget_may_do_anything():
    spent = Spent().charge("call", 10**9, None)
    assert TurnBudget().allows(spent, tokens=10**9) is None


def test_ordinary_calls_leave_what_is_kept_for_a_recovery():
    budget = TurnBudget(100_000, recovery_share=0.2)
    spent = Spent().charge("call", 50_000, None).charge("retry", 10_000, None)
    assert budget.allows(spent, tokens=20_000) is None
    refused = budget.allows(spent, tokens=20_001)
    assert refused is not None
    assert refused.reason == "tokens"
    assert str(refused) == (
        "A call of up to 20,001 tokens is over the turn's budget: 60,000 tokens of 100,000 tokens "
        "are spent, 20,000 tokens are kept for one recovery. Raise the budget, shorten the request "
        "or end the turn."
    )
    assert budget.allows(spent, tokens=40_000, recovering=True) is None
    assert budget.allows(spent, tokens=40_001, recovering=True) is not None


def test_after_the_recovery_nothing_more_is_kept():
    spent = Spent().charge("summary", 70_000, 0.0).charge("recovery", 10_000, 0.0)
    budget = TurnBudget(100_000)
    assert budget.allows(spent, tokens=20_000) is None
    refused = budget.allows(spent, tokens=20_001)
    assert refused is not None
    assert "kept" not in refused.text


def test_money_is_budgeted_beside_tokens():
    budget = TurnBudget(100_000, 1.0, recovery_share=0.5)
    spent = Spent().charge("call", 1_000, 0.4)
    assert budget.allows(spent, tokens=1_000, dollars=0.1) is None
    refused = budget.allows(spent, tokens=1_000, dollars=0.11)
    assert refused is not None
    assert refused.reason == "dollars"
    assert "$0.1100 is over" in refused.text
    assert "$0.5000 are kept" in refused.text
    assert budget.allows(spent, tokens=1_000, dollars=0.6, recovering=True) is None
    first = budget.allows(spent, tokens=10**6, dollars=99.0)
    assert first is not None
    assert first.reason == "tokens"


def test_an_unknown_price_is_refused_where_dollars_are_budgeted():
    budget = TurnBudget(dollars=1.0)
    refused = budget.allows(Spent(), tokens=1)
    assert refused is not None
    assert refused.reason == "price_unknown"
    assert "price of this call is unknown" in refused.text
    earlier = budget.allows(Spent().charge("call", 1, None), tokens=1, dollars=0.0)
    assert earlier is not None
    assert "price of a call of this turn" in earlier.text
    assert TurnBudget(tokens=10).allows(Spent(), tokens=1) is None


@given(st.integers(1, 10**6), st.floats(0, 0.99), CHARGES, TOKENS)
def test_a_call_that_is_allowed_leaves_room_for_a_recovery(budget, share, charges, tokens: int):
    turn = TurnBudget(budget, recovery_share=share)
    spent = Spent()
    for kind, used, dollars in charges:
        spent = spent.charge("call" if kind == "recovery" else kind, used, dollars)
    assume(turn.allows(spent, tokens=tokens) is None)
    after = spent.charge("call", tokens, None)
    assert turn.allows(after, tokens=int(budget * share), recovering=True) is None


@pytest.mark.parametrize(
    ("budget", "match"),
    [
        ({"tokens": 0}, "token budget of a turn is 0"),
        ({"dollars": -1.0}, "dollar budget of a turn is -1.0"),
        ({"dollars": 0}, "0 dollars can call nothing"),
        ({"recovery_share": 1.0}, "recovery_share=1.0 must be from 0 to below 1"),
        ({"recovery_share": float("nan")}, "recovery_share=nan"),
    ],
)
def test_a_budget_that_cannot_be_is_refused(budget, match: str):
    with pytest.raises(ConfigurationError, match=match):
        TurnBudget(**budget)


# ── what several share ──────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("budget", "spent", "left"),
    [
        (None, Spent(), None),
        (TurnBudget(1_000), Spent().charge("call", 400, None), TurnBudget(300)),
        (TurnBudget(1_000), Spent().charge("subagent", 1_400, None), TurnBudget(1)),
        (TurnBudget(dollars=3.0), Spent().charge("call", 9, 1.0), TurnBudget(dollars=1.0)),
        (TurnBudget(dollars=3.0), Spent().charge("call", 9, None), TurnBudget(dollars=1e-12)),
    ],
)
def test_what_a_budget_has_left_is_divided(
    budget: TurnBudget | None, spent: Spent, left: TurnBudget | None
) -> None:
    assert divide_budget(budget, spent, 2) == left


@given(st.integers(1, 10**6), st.integers(0, 10**6), st.integers(1, 9))
def test_those_who_share_a_budget_use_no_more_than_it_has(
    whole: int, spent: int, among: int
) -> None:
    left = divide_budget(TurnBudget(whole), Spent().charge("call", spent, 0.0), among)
    assert left is not None
    assert left.tokens is not None
    assert left.tokens * among <= max(whole - spent, among)


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        (None, None, None),
        (TurnBudget(5), None, TurnBudget(5)),
        (None, TurnBudget(5), TurnBudget(5)),
        (TurnBudget(5), TurnBudget(7, 1.0), TurnBudget(5, 1.0)),
        (TurnBudget(dollars=2.0), TurnBudget(dollars=1.0), TurnBudget(dollars=1.0)),
    ],
)
def test_a_budget_within_another_keeps_to_both(
    one: TurnBudget | None, other: TurnBudget | None, both: TurnBudget | None
) -> None:
    assert tighten_budget(one, other) == both
