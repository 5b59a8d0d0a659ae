"""A pin is verbatim, or the call fails and says what is in the way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ullage
from tests.voyage import log_of
from ullage.runtime import Runtime

MODEL = "gpt-4o"
LONG = "Rule one: never touch main.py. " + "The barometer falls, the wind is from the west. " * 400
SHORT = {"role": "user", "content": "And now?"}
STRATEGIES = ("clear", "trim_oldest", "summarise_middle")
RUNTIME = Runtime()


def history(size: int = 20) -> list[dict[str, Any]]:
    """Return a conversation whose task alone takes most of a small window."""
    made: list[dict[str, Any]] = [{"role": "user", "content": LONG}]
    for n in range(size):
        made.append({"role": "assistant", "content": f"Entry {n}: {'all is well. ' * 20}"})
        made.append({"role": "user", "content": f"Go on with {n}."})
    return made


def kept(made: list[Any], messages: list[Any], pins: Any) -> bool:
    return all(any(now is messages[pin] for now in made) for pin in pins)


def test_a_pinned_task_is_not_shortened_and_compact_says_what_is_in_the_way() -> None:
    messages = history()
    unpinned = ullage.compact(messages, target_tokens=2_000, model=MODEL)
    assert unpinned.reached
    assert unpinned.messages[0] is not messages[0]
    made = ullage.compact(messages, target_tokens=2_000, model=MODEL, pins=[0])
    assert made.messages[0] is messages[0]
    assert (made.reached, made.reason) == (False, "cannot_compact")
    for fact in ("2,000 tokens", "pinned: 0 (", "Unpin or shorten", "raise the target to"):
        assert fact in (made.obstacle or "")
    again = asyncio.run(ullage.acompact(messages, target_tokens=2_000, model=MODEL, pins=[0]))
    assert again.obstacle == made.obstacle
    assert unpinned.obstacle is None


def test_what_is_in_the_way_is_named_also_where_nothing_is_pinned() -> None:
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
    operator = {"role": "system", "content": "Be brief."}
    messages = [operator, *history()]
    made = ullage.compact(messages, target_tokens=9, model=MODEL, tools=[tool])
    assert not made.reached
    for fact in (
        "the system prompt and the tools take",
        "always kept: 0 (",
        ", 1 (",
        ". Shorten some",
    ):
        assert fact in (made.obstacle or "")
    assert "pinned" not in (made.obstacle or "")


def test_the_target_that_the_obstacle_names_can_be_reached() -> None:
    messages = history()
    missed = ullage.compact(messages, target_tokens=2_000, model=MODEL, pins=[0])
    target = int((missed.obstacle or "").rpartition("raise the target to ")[2].replace(",", ""))
    made = ullage.compact(messages, target_tokens=target, model=MODEL, pins=[0])
    assert made.reached
    assert made.messages[0] is messages[0]


@pytest.mark.parametrize("policy", ["ladder", "advisory", "auto_summary", "off"])
def test_a_guard_keeps_a_pinned_task_or_refuses_and_names_the_pin(policy: str) -> None:
    messages = history()
    preset = ullage.Policy.from_name(policy)
    roomy = ullage.Guard(MODEL, window=6_500, policy=preset, runtime=Runtime())
    try:
        assert roomy.prepare(messages, pins=[0]).messages[0] is messages[0]
    except ullage.ContextTooLargeError:
        assert policy == "off"
    tight = ullage.Guard(MODEL, window=3_000, policy=preset, runtime=Runtime())
    with pytest.raises(ullage.ContextTooLargeError, match=r"pinned.*messages 0 \(\d,\d{3} tokens"):
        tight.prepare(messages, pins=[0])
    with pytest.raises(ullage.ContextTooLargeError, match="unpin"):
        asyncio.run(tight.aprepare(messages, pins=[0]))


def test_a_pin_that_came_later_takes_a_shortened_task_back() -> None:
    messages = history()
    guard = ullage.Guard(MODEL, window=5_500, runtime=Runtime())
    first = guard.prepare(messages)
    assert first.compaction is not None
    assert guard.prepare(messages, pins=[0]).messages[0] is messages[0]


@pytest.mark.parametrize(
    "pins", [[99], [-1], [True], ["0"], [None], [0.0], [[0]], 0, None, "0", {0: 1}]
)
def test_what_is_no_position_is_refused_by_every_call(pins: Any) -> None:
    guard = ullage.Guard(MODEL, window=9_000, runtime=RUNTIME)
    calls: list[Callable[[], Any]] = [
        lambda: ullage.compact(history(), target_tokens=9_000, model=MODEL, pins=pins),
        lambda: guard.prepare(history(), pins=pins),
    ]
    if pins is not None:
        calls.append(lambda: guard.call(dict, history(), pins=pins))
    for call in calls:
        with pytest.raises(ullage.ConfigurationError, match="pins"):
            call()


def test_a_pin_may_be_given_twice_and_by_any_iterable() -> None:
    messages = history()
    made = ullage.compact(messages, target_tokens=6_000, model=MODEL, pins=iter([2, 2]))
    assert kept(made.messages, messages, [2])


def test_a_pinned_message_that_breaks_the_protocol_is_named() -> None:
    stray = {"role": "tool", "tool_call_id": "nobody's", "content": "x"}
    messages = [SHORT, stray, *history()]
    guard = ullage.Guard(MODEL, window=9_000, runtime=RUNTIME)
    for call in (
        lambda: ullage.compact(messages, target_tokens=9_000, model=MODEL, pins=[1]),
        lambda: guard.prepare(messages, pins=[1]),
    ):
        with pytest.raises(ullage.MalformedHistoryError, match="pinned") as refused:
            call()
        assert refused.value.index == 1
    assert kept(guard.prepare(messages, pins=[0]).messages, messages, [0])


@settings(deadline=None)
@given(
    st.sets(st.integers(0, 40), max_size=4),
    st.lists(st.sampled_from(STRATEGIES), min_size=1, max_size=3, unique=True),
    st.integers(200, 9_000),
    st.booleans(),
)
def test_every_strategy_keeps_a_pinned_message_or_the_call_fails(
    pins: set[int], strategies: list[Any], target: int, tools: bool
) -> None:
    messages = log_of(40)[:41] if tools else history()
    policy = ullage.Policy(name="mine", rungs=(ullage.Rung(0.8, 0.6, tuple(strategies)),))
    made = ullage.compact(
        messages, target_tokens=target, model=MODEL, pins=pins, policy=policy, runtime=RUNTIME
    )
    assert kept(made.messages, messages, pins)
    assert made.obstacle is None or not made.reached
    guard = ullage.Guard(MODEL, window=target, policy=policy, runtime=Runtime())
    try:
        sent = guard.prepare(messages, pins=pins).messages
    except ullage.ContextTooLargeError:
        return
    assert kept(sent, messages, pins)
