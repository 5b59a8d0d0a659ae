"""Reasoning that is bound to system text and tools, and what a refusal of it leads to."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests import presets
from tests.core.guard.driving import World, setup, window
from tests.core.guard.test_recovery import first, recover, thinking
from ullage.core.dialects.anthropic.codec import Anthropic
from ullage.core.errors import ErrorKind
from ullage.core.guard import machine
from ullage.core.guard.recovery import is_recoverable
from ullage.core.guard.request import NeedSave, Prepared, Request
from ullage.core.guard.stages.bind import STRATEGY

GIVEN = replace(setup(presets.trim()), codec=Anthropic())
BOUND = GIVEN.with_laws({"bound_thinking"})
BINDING = ErrorKind("malformed_history", about="binding")
TOOL = {"name": "read", "input_schema": {"type": "object"}}
MARKED = {**TOOL, "cache_control": {"type": "ephemeral"}}


def prepare(world: World, request: Request, given: Any = BOUND) -> Prepared:
    made = world.drive(machine.prepare(given, request))
    talk = made.conversation
    world.talks[talk.scope, talk.prefix] = talk
    return made


def thoughts(messages: list[Any]) -> int:
    blocks = [b for m in messages if isinstance(m["content"], list) for b in m["content"]]
    return sum(block["type"] == "thinking" for block in blocks)


def test_laws_are_put_into_the_setup_under_scopes_of_their_own() -> None:
    assert GIVEN.with_laws(frozenset()) is GIVEN
    both = GIVEN.with_laws({"bound_thinking", "whole_loops"})
    assert (both.loops, both.bound) == (True, True)
    assert both.checkpoint_scope == f"{GIVEN.scope}|loops|bound"
    assert both.conversation_scope == GIVEN.conversation_scope


@pytest.mark.parametrize(
    "changed",
    [
        {"system": "Be long."},
        {"tools": [TOOL, {**TOOL, "name": "write"}]},
        {"tools": {"tools": [TOOL]}},
        {"tools": ["an object of a client"]},
    ],
)
def test_other_system_text_or_tools_leave_the_reasoning_out_and_what_comes_later_stays(
    changed: dict[str, Any],
) -> None:
    world, history = World(window(100_000)), thinking(3)
    before: dict[str, Any] = {"system": "Be brief.", "tools": [TOOL]}
    assert thoughts(prepare(world, Request(history, **before)).messages) == 6
    made = prepare(world, Request(history, **before | changed))
    assert thoughts(made.messages) == 0
    assert made.replayed is not None
    assert made.replayed.strategy == STRATEGY
    assert made.replayed.tokens_after < made.replayed.tokens_before
    later = [*history, *thinking(1)[1:2], *thinking(1)[2:3]]
    later[-2] = {**later[-2], "content": [later[-2]["content"][0], use("last")]}
    later[-1] = {**later[-1], "content": [{**later[-1]["content"][0], "tool_use_id": "last"}]}
    again = prepare(world, Request(later, **before | changed))
    assert thoughts(again.messages) == 1
    assert again.messages[: len(made.messages)] == made.messages


def use(name: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": name, "name": "read", "input": {}}


def test_a_cache_mark_that_moves_is_no_change() -> None:
    world, history = World(window(100_000)), thinking(2)
    prepare(world, Request(history, tools=[TOOL]))
    assert thoughts(prepare(world, Request(history, tools=[MARKED])).messages) == 4


def test_a_history_without_reasoning_needs_no_checkpoint() -> None:
    world, history = World(window(100_000)), [{"role": "user", "content": "hello"}]
    prepare(world, Request(history, system="a"))
    assert prepare(world, Request(history, system="b")).replayed is None


def test_a_change_after_a_compaction_builds_on_its_checkpoint() -> None:
    world, history = World(window(1900)), thinking(12)
    compacted = prepare(world, Request(history, system="a"))
    assert compacted.checkpoint is not None
    grown = [*history, {"role": "assistant", "content": [thought("last"), said("Done.")]},
             {"role": "user", "content": "and?"}]  # fmt: skip
    assert thoughts(prepare(world, Request(grown, system="a")).messages) == 1
    made = prepare(world, Request(grown, system="b"))
    assert thoughts(made.messages) == 0
    assert made.replayed is not None
    assert made.replayed.summary == compacted.checkpoint.summary
    assert made.replayed.generation == 1


def thought(text: str) -> dict[str, Any]:
    return {"type": "thinking", "thinking": text, "signature": "c2ln"}


def said(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def test_a_compaction_leaves_no_bound_reasoning_behind_its_edits() -> None:
    world, history = World(window(1900)), thinking(12)
    made = prepare(world, Request(history))
    assert made.checkpoint is not None
    assert thoughts(made.messages) == 0
    assert thoughts(prepare(World(window(1900)), Request(history), GIVEN).messages) > 0
    again = prepare(world, Request(history))
    assert again.messages == made.messages


@pytest.mark.parametrize("given", [GIVEN, BOUND], ids=["unknown", "known"])
def test_a_refusal_of_bound_reasoning_is_followed_by_a_request_without_any(given: Any) -> None:
    world, request = World(window(100_000)), Request(thinking(3))
    sent = first(world, request, given)
    assert is_recoverable(BINDING, sent)
    made = recover(world, sent, BINDING, request, given=given)
    assert thoughts(made.messages) == 0
    assert len(made.messages) == len(request.messages)
    assert not is_recoverable(BINDING, made)
    (saved,) = [need for need in world.needs if isinstance(need, NeedSave)]
    assert saved.checkpoint.scope == BOUND.checkpoint_scope
    assert saved.checkpoint.trigger == "unbound_reasoning"


def test_tool_loops_are_wanted_whole_once_only_by_the_scope() -> None:
    world, request = World(window(1900)), Request(thinking(12))
    given = GIVEN.with_laws({"whole_loops"})
    sent = first(world, request, given)
    made = recover(world, sent, ErrorKind("malformed_history", about="thinking"), request,
                   given=given)  # fmt: skip
    assert made.checkpoint is None or made.checkpoint.scope == given.checkpoint_scope
