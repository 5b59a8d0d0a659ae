"""What a turn may spend: a breaker that opens, half opens and closes, and recoveries."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.guard.driving import World, setup, talk, window
from ullage.core.guard import machine as guard
from ullage.core.guard.effort import FRUITLESS, HALF_OPEN_S, PROGRESS, Effort
from ullage.core.guard.events import CompactionFailed
from ullage.core.guard.request import Prepared, Request

OPEN = Effort("request", 1000, fruitless=FRUITLESS, since=100.0)


@given(st.integers(1, 10**6), st.floats(0, 1.5), st.integers(0, 9))
def test_a_compaction_that_frees_five_per_cent_is_progress_and_one_that_frees_less_is_none(
    before: int, share: float, fruitless: int
) -> None:
    after = int(before * share)
    effort = Effort("r", 1, fruitless=fruitless).after(before, after, 7.0)
    progress = after <= before * (1 - PROGRESS)
    assert effort.fruitless == (0 if progress else fruitless + 1)
    assert effort.since == (0.0 if progress else 7.0)


@pytest.mark.parametrize(("fruitless", "open_"), [(0, False), (2, False), (3, True), (9, True)])
def test_the_breaker_opens_after_three_compactions_that_led_nowhere(
    fruitless: int, open_: bool
) -> None:
    assert replace(OPEN, fruitless=fruitless).allows(100.0) is not open_


def test_the_breaker_lets_one_through_after_a_minute_and_opens_again() -> None:
    assert not OPEN.allows(100.0 + HALF_OPEN_S - 0.1)
    assert OPEN.allows(100.0 + HALF_OPEN_S)
    failed = OPEN.after(100, 100, 170.0)
    assert not failed.allows(170.0 + HALF_OPEN_S - 0.1)
    assert OPEN.after(100, 50, 170.0).allows(170.0)


@pytest.mark.parametrize(
    ("request_", "bound", "same"),
    [("request", 1000, True), ("other", 1000, False), ("request", 1001, False)],
)
def test_a_new_request_or_another_window_begins_anew(request_: str, bound: int, same: bool) -> None:
    spent = replace(OPEN, recoveries=2)
    found = spent.at(request_, bound)
    assert found == (spent if same else Effort(request_, bound))


# --- in a guard -----------------------------------------------------------------------------------


def stuck() -> list[dict[str, Any]]:
    """Return a history that no compaction helps: what must stay is too large."""
    return [{"role": "system", "content": "s " * 1500}, {"role": "user", "content": "hi"}]


def looped(world: World, calls: int, now: float = 0.0, more: int = 0) -> list[Prepared]:
    """Return what comes of so many calls of one turn, each a little longer."""
    made = []
    for n in range(more, more + calls):
        history = [*stuck(), *({"role": "developer", "content": "more"} for _ in range(n))]
        made.append(world.drive(guard.prepare(setup(now=now), Request(history))))
    return made


def reasons(made: list[Prepared]) -> list[str]:
    found = [[e.reason for e in each.events if isinstance(e, CompactionFailed)] for each in made]
    return [reason.split(":")[0] for (reason,) in found]


def listed() -> World:
    return World(window(1600, source="table"))


def test_a_turn_in_which_nothing_helps_stops_compacting_and_says_so() -> None:
    made = looped(listed(), 5)
    assert reasons(made) == ["cannot_compact"] * 3 + ["breaker_open"] * 2
    assert [each.outcome for each in made] == [None] * 5


def test_after_a_minute_one_more_is_tried() -> None:
    world = listed()
    looped(world, 4, now=0.0)
    assert reasons(looped(world, 2, now=HALF_OPEN_S, more=4)) == ["cannot_compact", "breaker_open"]


def test_what_the_user_says_closes_the_breaker() -> None:
    world = listed()
    looped(world, 4)
    history = [*stuck(), *[{"role": "developer", "content": "more"}] * 4]
    asked = Request([*history, {"role": "user", "content": "please"}])
    assert reasons([world.drive(guard.prepare(setup(), asked))]) == ["cannot_compact"]


def test_another_window_closes_the_breaker() -> None:
    world = listed()
    looped(world, 4)
    world.window = window(1650, source="table")
    assert reasons(looped(world, 1, more=4)) == ["cannot_compact"]


def test_progress_closes_the_breaker() -> None:
    world, history = World(window(1500)), talk(24)
    first = world.drive(guard.prepare(setup(), Request(talk(2))))
    spent = replace(first.conversation.effort, fruitless=2)
    world.remember(replace(first.conversation, effort=spent))
    made = world.drive(guard.prepare(setup(), Request(history)))
    assert made.outcome is not None
    assert made.conversation.effort.fruitless == 0
