"""The newest results stand as they were where old steps without results make room for them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ullage
from tests.core.compaction.situations import said, tool_step

MODEL = "gpt-4o"
PLACEHOLDER = "[ullage: result of"


def work(steps: int, rows: int = 20, newest: int | None = None) -> list[dict[str, Any]]:
    """Return a task, steps that read files of so many rows, and a request at the end."""
    history = [said("user", "Look through the cellar, shelf by shelf. Never open barrel 9.")]
    for number in range(steps):
        size = rows if newest is None or number < steps - 1 else newest
        text = "\n".join(f"row {number}.{n}: nothing in barrel {n * 7 % 50}" for n in range(size))
        path = json.dumps({"path": f"cellar/shelf{number}.txt"})
        history += tool_step(f"c{number}", text, tool="read_file", arguments=path)
    return [*history, said("user", "And now?")]


def compact(history: list[dict[str, Any]], share: float, **options: Any) -> Any:
    target = int(ullage.count(history, model=MODEL).tokens * share)
    made = ullage.compact(history, model=MODEL, target_tokens=target, **options)
    assert made.reached
    assert made.after.high <= target
    ullage.validate(list(made.messages))
    return made


def find_results(made: Any) -> list[str]:
    return [str(raw["content"]) for raw in made.messages if raw["role"] == "tool"]


@pytest.mark.parametrize("share", [0.05, 0.1])
def test_the_newest_results_stand_whole_where_messages_had_to_go(share: float) -> None:
    history = work(60)
    made = compact(history, share)
    results = find_results(made)
    whole = [text for text in results if not text.startswith(PLACEHOLDER)]
    assert whole
    assert results[-len(whole) :] == whole == find_results_of(history)[-len(whole) :]
    assert len(whole) < len(results)
    assert made.strategy == "clear+trim_oldest"
    assert "Never open barrel 9" in json.dumps(list(made.messages))


def find_results_of(history: list[dict[str, Any]]) -> list[str]:
    return [str(raw["content"]) for raw in history if raw["role"] == "tool"]


def test_the_files_of_steps_that_made_room_stand_in_the_block() -> None:
    made = compact(work(60), 0.1)
    calls = json.dumps([raw.get("tool_calls") for raw in made.messages])
    gone = [n for n in range(60) if f"shelf{n}.txt" not in calls]
    assert f"- cellar/shelf{gone[-1]}.txt" in json.dumps(list(made.messages))


def test_a_result_that_is_too_large_stays_cleared_and_the_next_ones_do_not() -> None:
    made = compact(work(60, newest=900), 0.1)
    *others, newest = find_results(made)
    assert newest.startswith(PLACEHOLDER)
    assert any(not text.startswith(PLACEHOLDER) for text in others)


def test_a_step_with_a_line_that_is_used_later_makes_no_room() -> None:
    history = work(60)
    place = next(n for n, raw in enumerate(history) if "row 40.0" in str(raw["content"]))
    history[place]["content"] += "\nvalve Q-77 is stuck since May"
    history.insert(-1, said("assistant", "So valve Q-77 it is."))
    assert "valve Q-77 is stuck since May" in json.dumps(list(compact(history, 0.1).messages))


@given(st.lists(st.integers(1, 60), min_size=20, max_size=50), st.sampled_from((0.05, 0.1, 0.2)))
def test_of_steps_of_any_sizes_none_is_both_gone_and_back(rows: list[int], share: float) -> None:
    history = [said("user", "Look through the cellar, shelf by shelf.")]
    for number, size in enumerate(rows):
        text = "\n".join(f"row {number}.{n}: nothing in barrel {n * 7 % 50}" for n in range(size))
        path = json.dumps({"path": f"cellar/shelf{number}.txt"})
        history += tool_step(f"c{number}", text, tool="read_file", arguments=path)
    made = compact([*history, said("user", "And now?")], share)
    places = [m["tool_call_id"] for m in made.messages if m["role"] == "tool"]
    assert places == sorted(set(places), key=lambda name: int(name[1:]))


def test_where_clearing_is_enough_nothing_is_opened_and_nothing_goes() -> None:
    made = compact(work(20), 0.8)
    assert made.strategy == "clear"
    assert len(find_results(made)) == 20


def test_where_no_block_tells_of_the_steps_they_stay() -> None:
    trim = ullage.Policy(rungs=(ullage.Rung(0.9, 0.5, ("clear", "trim_oldest")),), carry_share=0)
    results = find_results(compact(work(60), 0.05, policy=trim))
    assert all(text.startswith(PLACEHOLDER) for text in results)
