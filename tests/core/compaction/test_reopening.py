"""The newest results stand as they were where old steps without results make room for them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ullage
from tests.core.compaction.situations import said, tool_step
from ullage.core.compaction.edits import Clear, Script

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


def test_what_a_person_wrote_beside_a_result_stays() -> None:
    history: list[dict[str, Any]] = [{"role": "user", "content": "Look through the cellar."}]
    for number in range(40):
        use: dict[str, Any] = {"type": "tool_use", "id": f"c{number}", "name": "read_file"}
        use["input"] = {"path": f"cellar/shelf{number}.txt"}
        rows = "\n".join(f"row {number}.{n}: nothing in barrel {n * 7 % 50}" for n in range(20))
        result = {"type": "tool_result", "tool_use_id": f"c{number}", "content": rows}
        name = f"{'BCDFGHKLMN'[number % 10]}{'aeio'[number // 10]}lta"
        note = {"type": "text", "text": f"Rack {number} was given to {name}."}
        history += [
            {"role": "assistant", "content": [use]},
            {"role": "user", "content": [result, note]},
        ]
    history.append({"role": "assistant", "content": "Done."})
    target = ullage.count(history, dialect="anthropic").tokens // 3
    told = json.dumps(list(ullage.compact(history, target_tokens=target).messages))
    assert [n for n in range(40) if f"Rack {n} was" not in told] == []


def test_a_picture_that_a_person_sent_makes_no_room() -> None:
    history = work(60)
    picture = {"type": "image_url", "image_url": {"url": "https://cellar.example/barrel.png"}}
    history.insert(-3, {"role": "user", "content": [picture]})
    made = compact(history, 0.15)
    assert any(not text.startswith(PLACEHOLDER) for text in find_results(made))
    assert history[-4] in list(made.messages)


def test_what_a_later_call_made_worthless_stays_cleared() -> None:
    history = work(50)
    for number in range(4):
        path = json.dumps({"path": "cellar/plan.txt"})
        text = f"version {number}\n" + "shelf and barrel " * 60
        history[-1:-1] = tool_step(f"p{number}", text, tool="read_file", arguments=path)
    told = json.dumps(list(compact(history, 0.15).messages))
    whole = [n for n in range(4) if f"version {n}\\nshelf" in told]
    assert whole == [2, 3]  # the tail of the policy


def test_a_call_that_does_more_than_read_makes_no_room() -> None:
    history = work(60)
    for raw in history:
        for call in raw.get("tool_calls", ()):
            call["function"]["name"] = "refund"
            number = call["id"][1:]
            call["function"]["arguments"] = json.dumps({"customer": f"Nr. {number}"})
    assert len(find_results(compact(history, 0.1))) > 2 * len(find_results(compact(work(60), 0.1)))


def test_what_a_strategy_of_the_caller_took_out_stays_out() -> None:
    def redact(situation: ullage.Situation) -> Script:
        places = [
            (index, place)
            for index, message in enumerate(situation.transcript.messages)
            for place, part in enumerate(message.parts)
            if part.kind == "result" and "SECRET" in part.text
        ]
        return Script.of(Clear(index, place, -1, "redacted") for index, place in places)

    history = work(60)
    for raw in history:
        if raw["role"] == "tool":
            raw["content"] += "\nSECRET"
    rung = ullage.Rung(0.9, 0.5, (ullage.Strategy("redact", redact, drops=False), "trim_oldest"))
    made = compact(history, 0.2, policy=ullage.Policy(rungs=(rung,)))
    assert find_results(made)
    assert "SECRET" not in json.dumps(list(made.messages))


def test_an_early_pin_changes_nothing_of_it() -> None:
    history = work(60)
    results = [find_results(compact(history, 0.1, pins=pins)) for pins in ((), (1,))]
    whole = [[text for text in each if not text.startswith(PLACEHOLDER)] for each in results]
    assert whole[0]
    assert whole[1][-len(whole[0]) :] == whole[0]


def test_where_clearing_is_enough_nothing_is_opened_and_nothing_goes() -> None:
    made = compact(work(20), 0.8)
    assert made.strategy == "clear"
    assert len(find_results(made)) == 20


def test_where_no_block_tells_of_the_steps_they_stay() -> None:
    trim = ullage.Policy(rungs=(ullage.Rung(0.9, 0.5, ("clear", "trim_oldest")),), carry_share=0)
    results = find_results(compact(work(60), 0.05, policy=trim))
    assert all(text.startswith(PLACEHOLDER) for text in results)
