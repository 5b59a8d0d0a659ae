"""A checkpoint of a smaller window: left out where the whole history fits, found again later."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.guard.driving import World, setup, talk, window
from ullage.core.compaction.checkpoint import Checkpoint
from ullage.core.compaction.policy import Policy
from ullage.core.dialects.anthropic.codec import Anthropic
from ullage.core.errors import ErrorKind
from ullage.core.guard import machine as guard
from ullage.core.guard.conversation import Conversation
from ullage.core.guard.recovery import recover
from ullage.core.guard.request import Prepared, Request, Setup
from ullage.core.tokens.counting import Scale, measure

SMALL, LARGE = window(1000), window(20_000)


def prepare(world: World, messages: list[Any], given: Setup | None = None, **more: Any) -> Prepared:
    return world.drive(guard.prepare(given or setup(), Request(messages, **more)))


def small_then(now: Any, turns: int = 24) -> tuple[World, list[Any], Prepared]:
    """Return a world with another window, a history, and what was sent of it in a small one."""
    world, history = World(SMALL), talk(turns)
    made = prepare(world, history)
    assert made.checkpoint is not None
    world.window = now
    return world, history, made


def test_a_larger_window_gets_the_whole_history_and_the_small_one_its_checkpoint_again() -> None:
    world, history, made = small_then(LARGE)
    for _ in range(3):
        whole = prepare(world, history)
        assert whole.messages == history
        assert (whole.checkpoint, whole.replayed) == (None, None)
    world.window = SMALL
    assert prepare(world, history).messages == made.messages
    grown = [*history, {"role": "assistant", "content": "ok"}, {"role": "user", "content": "on"}]
    assert prepare(world, grown).messages[: len(made.messages)] == made.messages


@pytest.mark.parametrize("now", [SMALL, window(None), window(900), window(1600)])
def test_it_stays_where_the_window_is_no_larger_or_too_small_for_the_whole(now: Any) -> None:
    world, history, made = small_then(now)
    again = prepare(world, history)
    assert again.messages[:2] == made.messages[:2]
    assert len(again.messages) < len(history)
    assert again.replayed is not None


def test_it_stays_where_the_answer_would_have_no_room() -> None:
    given = setup(replace(Policy.ladder(), min_output=900))
    world, history = World(SMALL), talk(24)
    made = prepare(world, history, given)
    world.window = window(2000)
    assert prepare(world, history, given, max_tokens=1000).messages == made.messages
    assert prepare(world, history, given, max_tokens=300).messages == history


def test_what_somebody_wanted_by_hand_stays() -> None:
    world, history = World(SMALL), talk(24)
    made = world.drive(guard.prepare_compacted(setup(), Request(history), 300))
    world.window = LARGE
    assert prepare(world, history).messages == made.messages


def test_a_limit_that_was_learned_and_taken_back_gives_the_history_back() -> None:
    world, history = World(LARGE), talk(24)
    sent = prepare(world, history)
    world.window = window(800, source="refusal")
    error = ErrorKind("input", 800, sent.count.tokens)
    made = world.drive(recover(setup(), Request(history), sent, error))
    assert made.checkpoint is not None
    assert made.checkpoint.resolved == 800
    assert prepare(world, history).messages == made.messages
    world.window = LARGE
    assert prepare(world, history).messages == history


def test_a_recovery_under_the_same_window_stays() -> None:
    world, history = World(LARGE), talk(24)
    sent = prepare(world, history)
    error = ErrorKind("input", certainty="likely")
    made = world.drive(recover(setup(), Request(history), sent, error))
    assert made.checkpoint is not None
    assert made.checkpoint.resolved == 20_000
    assert prepare(world, history).messages == made.messages


def test_without_a_known_window_what_was_refused_counts() -> None:
    world, history = World(window(None)), talk(24)
    sent = prepare(world, history)
    error = ErrorKind("input", certainty="likely")
    made = world.drive(recover(setup(), Request(history), sent, error))
    assert made.checkpoint is not None
    assert (made.checkpoint.resolved, made.checkpoint.bound > 0) == (0, True)
    world.window = window(made.checkpoint.bound)
    assert prepare(world, history).messages == made.messages
    world.window = LARGE
    assert prepare(world, history).messages == history


def test_a_checkpoint_of_the_larger_window_holds_where_that_of_the_small_one_does_not() -> None:
    world, history = World(window(2600)), talk(48)
    large = prepare(world, history)
    assert large.checkpoint is not None
    world.window = SMALL
    assert prepare(world, history).checkpoint is not None
    world.window = window(2600)
    again = prepare(world, history)
    assert again.replayed is not None
    assert again.messages[:2] == large.messages[:2]


def test_a_report_of_the_whole_history_is_what_it_is_measured_by() -> None:
    guess = setup(scale=Scale(0.5, 1.0, 2.0))
    world, history = World(SMALL), talk(24)
    made = prepare(world, history, guess)
    assert made.checkpoint is not None
    world.window = window(5000)
    whole = prepare(world, history, guess)
    assert whole.messages == history
    world.observe(guess, whole, {"usage": {"prompt_tokens": whole.count.tokens}})
    grown = [*history, {"role": "assistant", "content": "ok"}]
    assert prepare(world, grown, guess).messages == grown


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from([0.7, 1.0, 1.4])), min_size=3, max_size=20
    ),
    st.integers(1200, 5000),
)
def test_it_never_goes_back_and_forth(steps: list[tuple[int, float]], tokens: int) -> None:
    world, history, small = small_then(window(tokens))
    whole = False
    for added, ratio in steps:
        for _ in range(added):
            history.append({"role": "assistant", "content": "answer " + "a " * 40})
            history.append({"role": "user", "content": "question " + "q " * 40})
        given = setup(scale=Scale(ratio * 0.9, ratio, ratio * 1.1))
        made = prepare(world, history, given)
        back = made.replayed is not None and made.replayed == small.checkpoint
        if whole and back:  # it fits no more at all
            assert measure(given.codec.read(history), given.meter).count().high >= tokens
        whole = (whole or made.messages == history) and not back


def test_reasoning_that_is_bound_to_a_compacted_history_keeps_it() -> None:
    free = replace(setup(), codec=Anthropic())
    world, history = World(SMALL), talk(24)[1:]
    for asked, whole in ((free, True), (free.with_laws({"bound_thinking"}), False)):
        world.window = SMALL
        made = prepare(world, history, asked)
        assert made.checkpoint is not None
        thought = {"type": "thinking", "thinking": "so", "signature": "c2ln"}
        said = {"role": "assistant", "content": [thought, {"type": "text", "text": "Done."}]}
        grown = [*history, said, {"role": "user", "content": "and?"}]
        world.window = LARGE
        assert (prepare(world, grown, asked).messages == grown) == whole
        assert prepare(world, history, asked).messages == history


def test_what_was_recorded_before_is_read() -> None:
    _, _, made = small_then(LARGE)
    assert made.checkpoint is not None
    old = made.checkpoint.to_dict()
    del old["resolved"]
    assert Checkpoint.from_dict(old) == replace(made.checkpoint, resolved=0)
    talked = Conversation("s", "p").to_dict()
    del talked["wide"]
    assert Conversation.from_dict(talked) == Conversation("s", "p")


def test_a_policy_that_changes_nothing_applies_nothing() -> None:
    world, history, _ = small_then(LARGE)
    assert prepare(world, history, setup(Policy.off())).messages == history
