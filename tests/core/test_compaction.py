"""One pass of compaction on histories small enough to follow, counted in words."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.driving import setup, talk
from ullage.core.compaction import Order, Outcome, compact
from ullage.core.counting import measure
from ullage.core.policies.policy import StrategyName
from ullage.core.policies.summarise import SummaryRequest

BOTH: tuple[StrategyName, ...] = ("clear", "trim_oldest")
ALL: tuple[StrategyName, ...] = ("summarise_middle", *BOTH)


def run(history: list[Any], order: Order, answer: str | None = None) -> Outcome:
    given = setup()
    transcript = given.codec.read(history)
    measured = measure(transcript, given.meter)
    steps = compact(transcript, measured, given.meter, given.codec, order)
    try:
        asked = next(steps)
        assert isinstance(asked, SummaryRequest)
        while True:
            steps.send(answer)
    except StopIteration as done:
        outcome: Outcome = done.value
        return outcome


def tool_run(steps: int, words: int = 100) -> list[dict[str, Any]]:
    history: list[dict[str, Any]] = [{"role": "user", "content": "Mend the leak."}]
    for step in range(steps):
        function = {"name": "read", "arguments": "{}"}
        call = {"id": f"c{step}", "type": "function", "function": function}
        history.append({"role": "assistant", "content": None, "tool_calls": [call]})
        text = f"step {step} " + "w " * words
        history.append({"role": "tool", "tool_call_id": f"c{step}", "content": text})
    return history


def texts(outcome: Outcome) -> list[str]:
    return [m.text for m in outcome.edited.transcript.messages]


def test_a_transcript_on_target_is_left_alone() -> None:
    history = talk(3)
    made = run(history, Order(10_000, 1000, BOTH))
    assert (made.changed, made.reached, made.reason) == (False, True, "nothing_to_compact")
    assert all(a is b for a, b in zip(made.edited.transcript.raws, history, strict=True))


def test_old_results_are_cleared_before_anything_is_dropped() -> None:
    made = run(tool_run(20), Order(1500, 400, BOTH))
    assert (made.strategy, made.reached) == ("clear", True)
    assert not made.script.drops
    assert "[ullage: result of read cleared" in texts(made)[2]
    assert "w w w" in texts(made)[-1]


def test_units_are_trimmed_where_clearing_is_not_enough() -> None:
    made = run(tool_run(60), Order(900, 400, BOTH))
    assert (made.strategy, made.reached) == ("clear+trim_oldest", True)
    assert texts(made)[0] == "Mend the leak."


def test_a_tail_that_is_too_long_for_the_target_is_lowered() -> None:
    made = run(tool_run(20), Order(400, 5000, BOTH))
    assert made.reached


def test_a_newest_result_too_big_for_the_target_keeps_head_and_tail() -> None:
    history = tool_run(3)
    history[-1]["content"] = "first line " + "w " * 3000 + "last line"
    made = run(history, Order(700, 200, BOTH))
    newest = texts(made)[-1]
    assert made.reached
    assert newest.startswith("first line")
    assert newest.endswith("last line")
    assert "tokens left out here" in newest


def test_rules_of_old_messages_outlive_them() -> None:
    history = talk(30)
    history[3]["content"] = "Never touch main.py. " + "and so on " * 40
    made = run(history, Order(600, 100, BOTH))
    kept = [t for t in texts(made) if "Never touch main.py." in t]
    assert kept == ["[ullage: kept of an earlier message] Never touch main.py."]


def test_what_must_stay_alone_over_the_target_is_said() -> None:
    made = run([{"role": "system", "content": "w " * 500}, *talk(10)[1:]], Order(100, 50, BOTH))
    assert (made.reached, made.reason) == (False, "cannot_compact")
    assert made.changed


def test_nothing_but_what_must_stay_is_left_as_it_is() -> None:
    made = run([{"role": "user", "content": "w " * 500}], Order(100, 50, BOTH))
    assert (made.changed, made.reached, made.reason) == (False, False, "cannot_compact")


def test_a_target_just_out_of_reach_gives_the_smallest_lawful_result() -> None:
    history = tool_run(5, words=300)
    made = run(history, Order(60, 50, BOTH))
    assert (made.changed, made.reached, made.reason) == (True, False, "cannot_reach_target")
    assert [m["role"] for m in made.edited.transcript.raws] == ["user", "assistant", "tool"]


def test_without_strategies_nothing_changes_and_that_is_said() -> None:
    made = run(talk(10), Order(100, 50, ()))
    assert (made.changed, made.reached, made.reason) == (False, False, "nothing_to_compact")


def test_a_summary_stands_behind_the_task_in_the_middles_place() -> None:
    order = Order(700, 200, ALL, summariser=True)
    made = run(talk(40), order, "Goal: count on.")
    assert (made.reached, made.fallback_reason) == (True, None)
    assert texts(made)[1] == "The task is to count."
    assert texts(made)[2].endswith("\nGoal: count on.")


def test_without_a_summariser_the_summary_is_by_rule() -> None:
    made = run(talk(40), Order(700, 200, ALL))
    assert made.fallback_reason == "no_summariser"
    assert "Asked:" in texts(made)[2]


def test_a_middle_too_small_to_pay_is_not_summarised() -> None:
    made = run(talk(4), Order(215, 20, ALL))
    assert "summarise_middle" not in made.strategy


def test_an_earlier_summary_is_carried_into_the_next() -> None:
    first = run(talk(40), Order(700, 200, ALL, summariser=True), "Goal: keep the cellar dry.")
    grown = [*first.edited.transcript.raws, *talk(30)[2:]]
    second = run(grown, Order(700, 200, ALL))
    assert any("keep the cellar dry" in t for t in texts(second))
    assert sum(t.startswith("[ullage: summary of") for t in texts(second)) == 1


def test_a_summary_outlives_a_trim() -> None:
    first = run(talk(40), Order(700, 200, ALL, summariser=True), "Goal: keep the cellar dry.")
    grown = [*first.edited.transcript.raws, *talk(30)[2:]]
    made = run(grown, Order(600, 100, BOTH))
    assert any("keep the cellar dry" in t for t in texts(made))


@pytest.mark.parametrize("strategies", [BOTH, ALL])
def test_an_empty_transcript_cannot_be_compacted(strategies: tuple[StrategyName, ...]) -> None:
    given = setup()
    transcript = given.codec.read([])
    measured = measure(transcript, given.meter, system="s " * 50)
    steps = compact(transcript, measured, given.meter, given.codec, Order(10, 5, strategies))
    with pytest.raises(StopIteration) as done:
        next(steps)
    assert done.value.value.reason == "cannot_compact"
