"""The laws of compaction over generated conversations, judged independently."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ullage
from tests.laws import judge
from tests.support.transcripts import broken_histories, histories

UNCHANGED = ("nothing_to_compact", "would_inflate")
RATIOS = st.floats(0.05, 0.95)
SUMMARIES = st.sampled_from([None, "Goal: keep going.", "", "x " * 5000])


def compacted(history: list[Any], ratio: float, **options: Any) -> ullage.Compaction:
    target = max(int(ullage.count(history, model="gpt-4o").high * ratio), 1)
    return ullage.compact(history, target_tokens=target, model="gpt-4o", **options)


@st.composite
def jobs(draw: st.DrawFn) -> tuple[list[Any], float, dict[str, Any]]:
    """Draw a history, a ratio and options: with or without a summariser, good or bad."""
    history = draw(histories())
    answer = draw(SUMMARIES)
    options: dict[str, Any] = {}
    if answer is not None:
        options["summarizer"] = lambda request: answer
    return history, draw(RATIOS), options


@given(jobs())
def test_law_1_every_result_is_lawful(job: tuple[list[Any], float, dict[str, Any]]) -> None:
    history, ratio, options = job
    assert judge.pairing_faults(compacted(history, ratio, **options).messages) == []


@given(jobs())
def test_law_2_a_change_makes_it_smaller(job: tuple[list[Any], float, dict[str, Any]]) -> None:
    history, ratio, options = job
    made = compacted(history, ratio, **options)
    if made.changed:
        assert made.after.high < made.before.high
    else:
        assert made.messages == history
        assert made.reason is not None


@given(jobs())
def test_law_3_reached_means_within_the_target(
    job: tuple[list[Any], float, dict[str, Any]],
) -> None:
    history, ratio, options = job
    made = compacted(history, ratio, **options)
    target = max(int(made.before.high * ratio), 1)
    if made.reached:
        assert judge.size(made.messages) <= target
    else:
        missed = ("cannot_reach_target", "cannot_compact")
        assert made.reason in (missed if made.changed else (*missed, *UNCHANGED))


@given(jobs())
def test_law_4_operator_text_task_and_request_survive(
    job: tuple[list[Any], float, dict[str, Any]],
) -> None:
    history, ratio, options = job
    made = compacted(history, ratio, **options).messages
    assert judge.operators(made) == judge.operators(history)
    task, request = judge.first_user(history), judge.last_user(history)
    kept = {id(m) for m in made}
    assert request is None or id(request) in kept
    if task is not None:
        first = judge.first_user(made)
        assert first is not None
        assert first is task or judge.text_of(task)[:8] in judge.text_of(first)


@given(jobs())
def test_law_4_declared_pins_survive(job: tuple[list[Any], float, dict[str, Any]]) -> None:
    history, ratio, options = job
    pins = [i for i, m in enumerate(history) if m["role"] == "user"]
    made = compacted(history, ratio, pins=pins, **options)
    kept = {id(m) for m in made.messages}
    task = next(iter(pins), None)
    assert all(id(history[i]) in kept for i in pins if i != task)


@given(jobs())
def test_law_5_untouched_messages_are_the_same_objects(
    job: tuple[list[Any], float, dict[str, Any]],
) -> None:
    history, ratio, options = job
    before = copy.deepcopy(history)
    made = compacted(history, ratio, **options)
    touched = {
        e.message for e in made.edits if isinstance(e, ullage.edits.Drop | ullage.edits.Clear)
    }
    kept = {id(m) for m in made.messages}
    assert all(id(m) in kept for i, m in enumerate(history) if i not in touched)
    assert history == before


@given(jobs())
def test_law_6_compacting_again_changes_nothing(
    job: tuple[list[Any], float, dict[str, Any]],
) -> None:
    history, ratio, _ = job
    first = compacted(history, ratio)
    target = max(int(first.before.high * ratio), 1)
    again = ullage.compact(first.messages, target_tokens=target, model="gpt-4o")
    assert again.messages == first.messages


@given(jobs())
def test_law_7_the_same_input_gives_the_same_bytes(
    job: tuple[list[Any], float, dict[str, Any]],
) -> None:
    history, ratio, options = job
    one = compacted(history, ratio, **options).messages
    two = compacted(copy.deepcopy(history), ratio, runtime=ullage.Runtime(), **options).messages
    assert json.dumps(one) == json.dumps(two)


@given(histories(single_user=True, end="tool"), st.floats(0.2, 0.9))
def test_an_autonomous_run_keeps_its_task(history: list[Any], ratio: float) -> None:
    made = compacted(history, ratio).messages
    assert judge.first_user(made) is judge.first_user(history)


@given(broken_histories())
def test_repair_mends_every_broken_history(history: list[Any]) -> None:
    mended = ullage.repair(history)
    assert judge.pairing_faults(mended.messages) == []
    if judge.pairing_faults(history):
        assert mended.repairs


@given(broken_histories(), RATIOS)
def test_a_broken_history_is_lawful_after_compaction(history: list[Any], ratio: float) -> None:
    assert judge.pairing_faults(compacted(history, ratio).messages) == []


@given(histories())
def test_repair_leaves_a_lawful_history_alone(history: list[Any]) -> None:
    mended = ullage.repair(history)
    assert mended.repairs == ()
    assert all(a is b for a, b in zip(mended.messages, history, strict=True))


@given(histories(max_turns=10), st.integers(150, 2000))
def test_a_guarded_conversation_replays_its_checkpoints(history: list[Any], window: int) -> None:
    """Grow a history message by message: what was sent once is sent again, never re-planned."""
    made: list[Any] = []
    runtime = ullage.Runtime()
    guard = ullage.Guard("gpt-4o", window=window, runtime=runtime, on_event=made.append)
    ends = [i + 1 for i, m in enumerate(history) if m["role"] == "user"]
    for end in ends:
        try:
            first = guard.prepare(history[:end]).messages
        except ullage.ContextTooLargeError:
            continue
        made.clear()
        again = guard.prepare(copy.deepcopy(history[:end])).messages
        assert json.dumps(again) == json.dumps(first)
        assert judge.pairing_faults(first) == []
        assert judge.size(first) <= window
        assert not [e for e in made if isinstance(e, ullage.events.Compacted)]


@pytest.mark.parametrize("target", [0, -1, 1.5, True, "9"])
def test_a_senseless_target_is_refused(target: Any) -> None:
    with pytest.raises(ullage.CompactionError, match="target_tokens must be a positive integer"):
        ullage.compact([{"role": "user", "content": "hi"}], target_tokens=target)
