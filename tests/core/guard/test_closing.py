"""A turn begins: servers may leave out the reasoning of the last one, so a report is awaited."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.guard.driving import World, setup, talk, window
from tests.core.guard.test_learning import usage
from ullage.core.compaction.policy import Policy
from ullage.core.guard import machine as guard
from ullage.core.guard.events import Compacted, CompactionFailed
from ullage.core.guard.request import NeedServerCount, Prepared, Request, Setup
from ullage.core.tokens.counting import Scale

GUESSING = setup(scale=Scale(0.9, 1.0, 1.1))
SURE = setup(scale=Scale(0.99, 1.0, 1.01))
BOUND = 2_200
THOUGHTS = (
    {"content": "so", "reasoning_content": "t " * 700},
    {"content": f"<think>{'t ' * 700}</think>so"},
)


def prepare(world: World, history: Any, given: Setup = GUESSING, **more: Any) -> Prepared:
    return world.drive(guard.prepare(given, Request(history, **more)))


def made_room(made: Prepared) -> bool:
    return any(isinstance(event, Compacted | CompactionFailed) for event in made.events)


def begin(world: World, thought: Any) -> list[Any]:
    """Return the history of a turn that was answered with a thought; all before it is reported."""
    history = talk(20, 20)
    made = prepare(world, history, setup(Policy.off()))
    world.observe(GUESSING, made, usage(made.count.tokens))
    return [*history, {"role": "assistant", **thought}]


def turn(text: str = "and now?") -> dict[str, str]:
    return {"role": "user", "content": text}


@pytest.mark.parametrize("thought", THOUGHTS, ids=["field", "text"])
def test_pressure_of_reasoning_that_may_be_left_out_waits_for_a_report(thought: Any) -> None:
    world = World(window(BOUND))
    history = [*begin(world, thought), turn()]
    made = prepare(world, history)
    assert made.count.high > 0.8 * BOUND
    assert not made_room(made)
    world.observe(GUESSING, made, usage(made.count.tokens - 700))
    more = [*history, {"role": "assistant", "content": "yes"}, turn()]
    assert not made_room(prepare(world, more))


def test_where_the_server_reads_it_the_next_request_makes_room() -> None:
    world = World(window(BOUND))
    history = [*begin(world, THOUGHTS[0]), turn()]
    made = prepare(world, history)
    world.observe(GUESSING, made, usage(made.count.tokens))
    more = [*history, {"role": "assistant", "content": "yes"}, turn()]
    assert made_room(prepare(world, more))


@pytest.mark.parametrize("bound", [2_000, 1_800])
def test_without_room_nothing_is_waited_for(bound: int) -> None:
    world = World(window(bound))
    history = [*begin(world, THOUGHTS[0]), turn()]
    assert made_room(prepare(world, history, max_tokens=300))


def test_in_the_open_turn_reasoning_is_pressure() -> None:
    world = World(window(BOUND))
    history = begin(world, THOUGHTS[0])
    assert made_room(prepare(world, [*history, {"role": "assistant", "content": "and so"}]))


def test_a_history_without_a_question_closes_no_turn() -> None:
    world = World(window(BOUND))
    history: list[Any] = [{"role": "assistant", "content": "w " * 1_000}]
    made = prepare(world, history)
    world.observe(GUESSING, made, usage(made.count.tokens))
    assert made_room(prepare(world, [*history, {"role": "assistant", **THOUGHTS[0]}]))
    assert not made_room(prepare(world, [*history, {"role": "assistant", **THOUGHTS[0]}, turn()]))


@pytest.mark.parametrize("left_out", [True, False])
def test_a_server_that_counts_is_asked(left_out: bool) -> None:
    world = World(window(BOUND))
    history = [*begin(world, THOUGHTS[0]), turn()]

    def count(sent: list[Any]) -> int:
        kept = [{k: v for k, v in m.items() if k == "content" or not left_out} for m in sent]
        return sum(len(str(m).split()) for m in kept)

    world.server = count
    made = prepare(world, history, SURE)
    assert any(isinstance(need, NeedServerCount) for need in world.needs)
    assert made_room(made) == (not left_out)
