"""A session through the guard: what is reckoned is what would have been prepared."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.replay.recording import presets, read, small, talk
from ullage import importers
from ullage.core.compaction.policy import Policy
from ullage.core.dialects.usage import Usage
from ullage.core.tokens.cost import Price
from ullage.importers.session import ImportedSession, ModelTurn
from ullage.replay.history import read_history
from ullage.replay.totals import ReplayTotals
from ullage.replay.walk import ReadHistory, walk_session


def walk(
    found: ReadHistory, policy: Policy, window: int, *, thorough: bool = False
) -> ReplayTotals:
    return replace(walk_session(found, policy, window, thorough=thorough), own_ms=0)


@given(
    messages=st.integers(20, 240), seed=st.integers(1, 10**6),
    window=st.sampled_from([3_000, 8_000, 20_000, 50_000]),
    asked=st.sampled_from([None, 500, 4_000]),
)  # fmt: skip
@settings(max_examples=12)
def test_turns_that_are_not_prepared_come_to_the_same(
    messages: int, seed: int, window: int, asked: int | None
) -> None:
    found = read(talk(messages, seed, max_tokens=asked))
    for policy in (*presets().values(), small()):
        assert walk(found, policy, window) == walk(found, policy, window, thorough=True)


@pytest.mark.parametrize("window", [20_000, 30_000])
def test_a_session_with_thoughts_and_its_own_compaction_comes_to_the_same(window: int) -> None:
    session = importers.load(importers.SAMPLE)
    found = replace(
        read(session), history=read_history(session), prices=(Price(0, 3, 15, 0.3, 3.75),)
    )
    for policy in presets().values():
        totals = walk(found, policy, window)
        assert totals == walk(found, policy, window, thorough=True)
        assert totals.turns == 26
        assert totals.dollars is not None


def test_what_never_fits_is_refused_and_the_rest_is_counted() -> None:
    found = read(talk(200))
    off, ladder = walk(found, Policy.off(), 8_000), walk(found, Policy.ladder(), 8_000)
    assert off.refused > 0
    assert off.compactions == 0
    assert off.peak_tokens <= 8_000
    assert ladder.compactions > 0
    assert ladder.refused < off.refused
    assert ladder.carried_tokens > off.carried_tokens


def test_a_later_use_of_what_went_is_a_loss_and_a_fault() -> None:
    filler = "barrels and cellars and casks again. " * 60
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Look at the gauge."}]
    call = {
        "id": "c",
        "type": "function",
        "function": {"name": "read", "arguments": '{"at":"gauge"}'},
    }
    messages += [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "the gauge reads 881244 " + filler},
    ]
    for _ in range(12):
        messages += [
            {"role": "assistant", "content": filler},
            {"role": "user", "content": "Go on."},
        ]
    messages += [{"role": "assistant", "content": "It read 881244."}]
    session = ImportedSession("chat", "openai_chat", tuple(messages), model="gpt-4o")
    bare = replace(small(), carry_share=0.0)
    lost, whole = walk(read(session), bare, 6_000), walk(read(session), bare, 100_000)
    assert (whole.lost_values, whole.faults, whole.compactions) == (0, 0, 0)
    assert lost.lost_values == 1
    assert lost.faults >= 1
    assert whole.left_out == 0
    assert 0 < lost.fault_rate <= 1  # type: ignore[operator]
    assert lost.left_out >= lost.faults
    assert lost.fault_tokens > 100
    assert lost.taken_values == whole.taken_values >= 1


def test_images_and_repaired_histories_are_prepared_turn_by_turn() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    seen = {"role": "user", "content": [{"type": "text", "text": "See."}, image]}
    answer = {"role": "assistant", "content": "Yes."}
    assert not read(ImportedSession("chat", "openai_chat", (seen, answer, seen, answer))).is_plain
    call = {"id": "c", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    torn = (
        {"role": "user", "content": "x"},
        {"role": "assistant", "tool_calls": [call]},
        seen,
        answer,
    )
    assert not read(ImportedSession("chat", "openai_chat", torn)).is_plain
    assert read(talk(20)).is_plain


def test_reports_say_what_stands_beside_the_messages() -> None:
    talked = talk(60)
    plain = read(talked).sizes
    turns = tuple(
        ModelTurn(n + 1, 0, turn.stop, usage=Usage(9_000 + 2 * plain.best[turn.stop]))
        for n, turn in enumerate(read_history(talked).turns)
    )
    told = read(replace(talked, turns=turns)).sizes
    last = turns[-1].stop
    assert told.meter.scale.best == pytest.approx(2, abs=0.01)
    assert told.count(told.fixed.best + told.best[last]) == pytest.approx(
        9_000 + 2 * plain.best[last], abs=8
    )
    one = read(replace(talked, turns=turns[:1])).sizes
    assert one.meter.scale == plain.meter.scale
    assert one.count(one.fixed.best + one.best[turns[0].stop]) == turns[0].usage.prompt_tokens  # type: ignore[union-attr]
