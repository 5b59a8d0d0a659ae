"""The laws of compaction over generated histories of the other dialects, judged independently.

What is the same for every dialect (the target, a senseless one) is with `test_laws_hold`.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from anthropic.types import MessageParam
from hypothesis import given
from hypothesis import strategies as st
from openai.types.responses import ResponseInputItemParam
from pydantic import TypeAdapter

import ullage
from tests.laws import bedrock, gemini, judge, ollama
from tests.support import transcripts
from ullage.core.dialects import registry

Strategy = Callable[..., st.SearchStrategy[list[Any]]]
RATIOS = st.floats(0.05, 0.95)
UNCHANGED = ("nothing_to_compact", "would_inflate")
SUMMARIES = st.sampled_from([None, "Goal: keep going.", "", "x " * 5000])


@dataclass(frozen=True)
class Dialect:
    """A dialect, its strategies, its judge and what its own SDK takes."""

    name: str
    histories: Strategy
    broken: Strategy
    faults: Callable[[list[Any]], list[str]]
    accepted: TypeAdapter[Any] | bedrock.Accepted


RESPONSES = Dialect(
    "openai_responses",
    transcripts.responses_histories,
    transcripts.broken_responses,
    judge.responses_faults,
    TypeAdapter(list[ResponseInputItemParam]),
)
ANTHROPIC = Dialect(
    "anthropic",
    transcripts.anthropic_histories,
    transcripts.broken_anthropic,
    judge.anthropic_faults,
    TypeAdapter(list[MessageParam]),
)
OLLAMA = Dialect("ollama_chat", ollama.histories, ollama.broken, ollama.faults, ollama.ACCEPTED)
GEMINI = Dialect("gemini", gemini.histories, gemini.broken, gemini.faults, gemini.ACCEPTED)
BEDROCK = Dialect(
    "bedrock_converse", bedrock.histories, bedrock.broken, bedrock.faults, bedrock.Accepted()
)
ALL = [RESPONSES, ANTHROPIC, OLLAMA, GEMINI, BEDROCK]
EACH = pytest.mark.parametrize("dialect", ALL, ids=lambda d: d.name)


def compacted(
    dialect: Dialect, history: list[Any], ratio: float, **options: Any
) -> ullage.Compaction:
    size = ullage.count(history, model="gpt-4o", dialect=dialect.name).high
    target = max(int(size * ratio), 1)
    options = {"model": "gpt-4o", "dialect": dialect.name, **options}
    return ullage.compact(history, target_tokens=target, **options)


def job(dialect: Dialect, data: st.DataObject) -> tuple[list[Any], float, dict[str, Any]]:
    """Draw a history, a ratio and options: with or without a summariser, good or bad."""
    history, answer = data.draw(dialect.histories()), data.draw(SUMMARIES)
    options = {} if answer is None else {"summarizer": lambda request: answer}
    return history, data.draw(RATIOS), options


def test_the_laws_are_held_to_in_every_dialect_but_chat_which_has_its_own_file() -> None:
    assert {dialect.name for dialect in ALL} == {*registry.DIALECTS} - {registry.DEFAULT}


@EACH
@given(data=st.data())
def test_the_strategies_are_lawful_by_both_judges_and_repair_leaves_them_alone(
    dialect: Dialect, data: st.DataObject
) -> None:
    history = data.draw(dialect.histories())
    assert dialect.faults(history) == []
    ullage.validate(history, dialect=dialect.name)
    dialect.accepted.validate_python(history)
    mended = ullage.repair(history, dialect.name)
    assert mended.repairs == ()
    assert all(a is b for a, b in zip(mended.messages, history, strict=True))


@EACH
@given(data=st.data())
def test_laws_1_to_5_and_7_hold_for_a_compaction(dialect: Dialect, data: st.DataObject) -> None:
    history, ratio, options = job(dialect, data)
    before = copy.deepcopy(history)
    made = compacted(dialect, history, ratio, **options)
    assert history == before
    check_law_1(dialect, made)
    check_laws_2_and_3(dialect, history, made, ratio)
    check_law_4(history, made.messages)
    check_law_5(history, made)
    again = compacted(dialect, before, ratio, runtime=ullage.Runtime(), **options).messages
    assert json.dumps(made.messages) == json.dumps(again), "law 7: not the same bytes again"


def check_law_1(dialect: Dialect, made: ullage.Compaction) -> None:
    """Judge that a result is lawful, and taken by the SDK."""
    assert made.reason != "law_broken", made.violations
    assert dialect.faults(made.messages) == []
    dialect.accepted.validate_python(made.messages)


def check_laws_2_and_3(
    dialect: Dialect, history: list[Any], made: ullage.Compaction, ratio: float
) -> None:
    """Judge that a change is smaller, and that reached means within the target."""
    target = max(int(made.before.high * ratio), 1)
    after = ullage.count(made.messages, model="gpt-4o", dialect=dialect.name).high
    assert after == made.after.high
    if made.changed:
        assert after < made.before.high
    else:
        assert made.messages == history
        assert made.reason is not None
    missed = ("cannot_reach_target", "cannot_compact", *UNCHANGED)
    assert after <= target if made.reached else made.reason in missed


def check_law_4(history: list[Any], made: list[Any]) -> None:
    """Judge that operator text, task and request survive."""
    assert judge.operators(made) == judge.operators(history), "operator text changed"
    turns = [m for m in history if judge.speaks(m)]
    kept = {id(m) for m in made}
    assert not turns or id(turns[-1]) in kept
    first = next((m for m in made if judge.speaks(m)), None)
    assert not turns or first is not None
    if first is not None:
        assert first is turns[0] or judge.said_by(turns[0])[:8] in judge.said_by(first)


def check_law_5(history: list[Any], made: ullage.Compaction) -> None:
    """Judge that messages which no edit touches are the same objects."""
    edited = (ullage.edits.Drop, ullage.edits.Clear)
    touched = {e.message for e in made.edits if isinstance(e, edited)}
    kept = {id(m) for m in made.messages}
    assert all(id(m) in kept for i, m in enumerate(history) if i not in touched)


@EACH
@given(data=st.data())
def test_law_4_declared_pins_survive(dialect: Dialect, data: st.DataObject) -> None:
    history, ratio, options = job(dialect, data)
    pins = [i for i, m in enumerate(history) if judge.speaks(m)]
    made = compacted(dialect, history, ratio, pins=pins, **options)
    kept = {id(m) for m in made.messages}
    assert all(id(history[i]) in kept for i in pins[1:])


@EACH
@given(data=st.data())
def test_law_6_compacting_again_changes_nothing(dialect: Dialect, data: st.DataObject) -> None:
    history, ratio, _ = job(dialect, data)
    first = compacted(dialect, history, ratio)
    target = max(int(first.before.high * ratio), 1)
    again = ullage.compact(
        first.messages, target_tokens=target, model="gpt-4o", dialect=dialect.name
    )
    assert again.messages == first.messages


@EACH
@given(data=st.data())
def test_repair_mends_every_broken_history_once_and_changes_only_what_it_names(
    dialect: Dialect, data: st.DataObject
) -> None:
    history = data.draw(dialect.broken())
    before = copy.deepcopy(history)
    mended = ullage.repair(history, dialect.name)
    assert history == before
    assert dialect.faults(mended.messages) == []
    dialect.accepted.validate_python(mended.messages)
    assert bool(mended.repairs) == bool(dialect.faults(history))
    again = ullage.repair(mended.messages, dialect.name)
    assert (again.repairs, again.messages) == ((), mended.messages)
    check_what_changed(history, mended)


def check_what_changed(history: list[Any], mended: ullage.Repair) -> None:
    """Judge that messages without a fault, nor beside one, are there and in order."""
    assert len(mended.origin) == len(mended.messages)
    places = [old for old in mended.origin if old is not None]
    assert len(set(places)) == len(places)
    changed = {
        i
        for i, old in enumerate(mended.origin)
        if old is None or mended.messages[i] is not history[old]
    }
    assert len(changed) <= 2 * len(mended.repairs)
    gone = set(range(len(history))) - set(places)
    assert len(gone) <= len(mended.repairs)


@EACH
@given(data=st.data())
def test_a_broken_history_is_lawful_after_compaction(dialect: Dialect, data: st.DataObject) -> None:
    history = data.draw(dialect.broken())
    made = compacted(dialect, history, data.draw(RATIOS))
    assert made.reason != "law_broken", made.violations
    assert dialect.faults(made.messages) == []


@EACH
@given(data=st.data(), window=st.integers(150, 2000))
def test_a_guarded_conversation_replays_its_checkpoints(
    dialect: Dialect, data: st.DataObject, window: int
) -> None:
    """Grow a history turn by turn: what was sent once is sent again, never re-planned."""
    history, made = data.draw(dialect.histories(max_turns=6)), list[Any]()
    guard = ullage.Guard(
        "gpt-4o",
        window=window,
        dialect=dialect.name,
        runtime=ullage.Runtime(),
        on_event=made.append,
    )
    for end in [i + 1 for i, m in enumerate(history) if judge.speaks(m)]:
        try:
            first = guard.prepare(history[:end]).messages
        except ullage.ContextTooLargeError:
            continue
        made.clear()
        again = guard.prepare(copy.deepcopy(history[:end])).messages
        assert json.dumps(again) == json.dumps(first)
        assert dialect.faults(first) == []
        assert not [e for e in made if isinstance(e, ullage.events.Compacted)]


def test_a_block_that_is_all_that_could_go_stays_where_the_target_is_out_of_reach() -> None:
    image = {"type": "base64", "media_type": "image/gif", "data": "R0lGODlhAwAFAAAAACwAAAAAAwAFAAACAoRRADs="}  # fmt: skip  # noqa: E501 - a picture

    def step(number: int, content: Any) -> list[dict[str, Any]]:
        name = f"call_{number}"
        call = {"type": "tool_use", "id": name, "name": "read_file", "input": {"path": "src/a.py"}}
        result = {"type": "tool_result", "tool_use_id": name, "content": content}
        return [
            {"role": "assistant", "content": [call]},
            {"role": "user", "content": [result]},
        ]

    history = [{"role": "user", "content": "-"}, *step(0, "ullage")]
    history += [{"role": "user", "content": "12 passed, 0 failed"}]
    history += [message for number in range(1, 9) for message in step(number, "ullage")]
    history += [{"role": "user", "content": "and?"}]
    history += step(9, [{"type": "text", "text": "-"}, {"type": "image", "source": image}])
    given: dict[str, Any] = {"target_tokens": 945, "model": "gpt-4o", "dialect": "anthropic"}
    first = ullage.compact(history, **given)
    assert "12 passed" in str(first.messages[1])
    assert first.after.high > 945
    assert ullage.compact(first.messages, **given).messages == first.messages
