"""Going back to an earlier question: what was compacted later is never applied to it unproved.

Regenerate, retry, a second sample, another worker: the same beginning, and what is asked now lies
inside of what a checkpoint left out.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.guard.driving import World, setup, talk, window
from ullage.core.compaction import laws
from ullage.core.compaction.policy import Policy
from ullage.core.guard import machine as guard
from ullage.core.guard.request import NeedLoad, Prepared, Request, Setup


def prepare(world: World, messages: list[Any], given: Setup | None = None) -> Prepared:
    return world.drive(guard.prepare(given or setup(), Request(messages)))


def working(steps: int, words: int) -> list[dict[str, Any]]:
    """Return a task and as many tool calls with their results."""
    history: list[dict[str, Any]] = [{"role": "user", "content": "Mend the leak."}]
    for n in range(steps):
        function = {"name": "read", "arguments": f'{{"page": {n}}}'}
        call = {"id": f"c{n}", "type": "function", "function": function}
        history.append({"role": "assistant", "content": None, "tool_calls": [call]})
        text = f"step {n} " + "w " * words
        history.append({"role": "tool", "tool_call_id": f"c{n}", "content": text})
    return history


def has_question(made: Prepared, history: list[Any]) -> bool:
    """Tell whether the last message of a user is in what is sent, as it is."""
    asked = [m for m in history if m["role"] == "user"][-1]
    return any(message is asked for message in made.messages)


TURNS = st.lists(
    st.tuples(st.integers(1, 90), st.lists(st.integers(1, 60), min_size=1, max_size=2)),
    min_size=4,
    max_size=25,
)
"""The words of each answer, and of the one or two questions behind it."""


def chat(turns: list[tuple[int, list[int]]]) -> list[dict[str, Any]]:
    history = talk(0)
    for n, (answer, questions) in enumerate(turns):
        history.append({"role": "assistant", "content": f"answer {n} " + "a " * answer})
        for place, words in enumerate(questions):
            text = f"question {n}.{place} " + "q " * words
            history.append({"role": "user", "content": text})
    return history


@given(TURNS, st.lists(st.integers(0, 49), min_size=1, max_size=6), st.booleans())
def test_every_earlier_question_is_sent_with_its_question(
    turns: list[tuple[int, list[int]]], back: list[int], anew: bool
) -> None:
    world, whole = World(window(1500)), chat(turns)
    asked = [i for i, m in enumerate(whole) if m["role"] == "user"]
    for end in asked:
        prepare(world, whole[: end + 1])
    for step in back:
        history = whole[: asked[step % len(asked)] + 1]
        if anew:
            history = [*history[:-1], {"role": "user", "content": f"something else {step}"}]
        made = prepare(world, history)
        assert has_question(made, history)
        assert not laws.survey(made.sent).violations
    assert has_question(prepare(world, whole), whole)  # and as it was before


@given(st.integers(5, 30), st.integers(5, 60), st.lists(st.integers(1, 29), min_size=1, max_size=4))
def test_every_earlier_step_is_sent_with_its_newest_result(
    steps: int, words: int, back: list[int]
) -> None:
    world, whole = World(window(1200)), working(steps, words)
    for end in range(3, len(whole) + 1, 2):
        prepare(world, whole[:end])
    for step in back:
        history = whole[: 1 + 2 * (step % steps + 1)]
        made = prepare(world, history)
        assert made.messages[-1] is history[-1]
        assert not laws.survey(made.sent).violations


def test_an_older_checkpoint_is_tried_where_the_newest_reaches_too_far() -> None:
    world, whole = World(window(1500)), talk(60)
    made = [prepare(world, whole[:end]) for end in range(4, len(whole) + 1, 2)]
    kept = [view.checkpoint for view in made if view.checkpoint is not None]
    assert len(kept) > 1
    first, second = kept[0], kept[1]
    end = second.count - second.count % 2
    again = prepare(world, whole[:end])
    assert again.replayed is not None
    assert again.replayed.prefix == first.prefix


def test_a_history_that_grew_is_replayed_without_a_second_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, whole = World(window(1500)), talk(24)
    assert prepare(world, whole).checkpoint is not None
    monkeypatch.setattr(laws, "prove", None)  # would fail if it were called
    then = prepare(world, [*whole, {"role": "assistant", "content": "ok"}])
    assert then.replayed is not None
    assert sum(isinstance(need, NeedLoad) for need in world.needs) == 2


def test_where_nothing_may_be_compacted_the_whole_goes_out() -> None:
    world, whole = World(window(1500)), talk(40)
    made = prepare(world, whole)
    assert made.checkpoint is not None
    early = whole[: made.checkpoint.first + 1]
    watching = setup(Policy.off(), scope=setup().scope)
    assert prepare(world, early, watching).messages == early
