"""Steps that make the messages to send of a caller's own, in order, each accounted for."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ullage.core.compaction.edits import Clear, Drop, Edit, Insert, Script, apply
from ullage.guard.steps import FitStep, list_steps
from ullage.runtime import Measurable, Runtime

RUNTIME = Runtime()


def talk(size: int) -> list[dict[str, Any]]:
    return [{"role": "user", "content": f"text {n}"} for n in range(size)]


@st.composite
def scripts(draw: st.DrawFn) -> tuple[int, Script]:
    size = draw(st.integers(1, 9))
    places = st.sets(st.integers(0, size - 1))
    drops, clears = draw(places), draw(places)
    inserts = draw(st.sets(st.integers(0, size), max_size=3))
    edits: list[Edit] = [Drop(n) for n in drops]
    edits += [Clear(n, 0, -1, "cut") for n in clears]
    edits += [Insert(n, "user", f"block {n}") for n in inserts]
    return size, Script.of(edits)


@given(scripts())
def test_steps_make_what_a_script_makes_and_name_each_edited_message(
    drawn: tuple[int, Script],
) -> None:
    size, script = drawn
    history = talk(size)
    read = RUNTIME.read(Measurable(history, dialect="openai_chat"))
    edited = apply(read, script, RUNTIME.codec_for("openai_chat"))
    sent = list(edited.transcript.raws)
    steps = list_steps(history, sent, edited.origin)
    made = [history[s.keep] if s.keep is not None else s.message for s in steps]
    assert all(one is other for one, other in zip(made, sent, strict=True))
    places = [s.keep if s.keep is not None else s.edit for s in steps]
    assert tuple(places) == edited.origin
    stood_for = [place for step in steps for place in step.stands_for]
    assert len(stood_for) == len(set(stood_for))
    assert set(stood_for) in (set(), script.drops), "all that is gone is stood for, or nothing is"


def test_what_is_gone_behind_a_message_that_stays_is_stood_for_by_the_summary_before_it() -> None:
    history = talk(8)
    summary, result = {"role": "user", "content": "block"}, {"role": "user", "content": "none"}
    sent = [history[0], summary, history[3], history[6], result, history[7]]
    steps = list_steps(history, sent, (0, None, 3, 6, None, 7))
    assert steps[1] == FitStep(summary, stands_for=(1, 2, 4, 5))
    assert steps[4] == FitStep(result)


def test_a_message_that_is_gone_where_nothing_was_summarised_is_in_no_step() -> None:
    history = talk(3)
    result = {"role": "user", "content": "none"}
    steps = list_steps(history, [history[0], history[2], result], (0, 2, None))
    assert [step.stands_for for step in steps] == [(), (), ()]


def test_a_message_that_was_put_together_stands_for_those_that_are_gone() -> None:
    history = talk(4)
    joined = {"role": "user", "content": "text 1 and text 2"}
    steps = list_steps(history, [history[0], joined, history[3]], (0, None, 3))
    assert steps == (
        FitStep(history[0], keep=0),
        FitStep(joined, stands_for=(1, 2)),
        FitStep(history[3], keep=3),
    )
