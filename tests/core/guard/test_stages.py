"""The steps of a request: what is kept in a store, under which names, and what is replayed."""

from __future__ import annotations

import json
import re
from collections.abc import Generator
from dataclasses import replace
from typing import Any

import pytest

from tests import presets
from tests.core.guard.driving import World, setup, talk, window
from ullage.core.compaction.checkpoint import chain
from ullage.core.compaction.edits import reference
from ullage.core.compaction.policy import Policy
from ullage.core.dialects.openai_chat.codec import OpenAIChat
from ullage.core.guard import machine as guard
from ullage.core.guard.events import Compacted, CompactionFailed
from ullage.core.guard.request import Need, NeedKeep, NeedSave, Prepared, Request, Setup
from ullage.core.guard.stages.read import read_history
from ullage.core.guard.stages.replay import find_checkpoint

KEEPING = setup(keeps=True)
NAME = re.compile(r"recall (u:[0-9a-f]{16})")


def prepare(world: World, messages: Any, given: Setup | None = None, **options: Any) -> Prepared:
    return world.drive(guard.prepare(given or setup(), Request(messages, **options)))


def made_of(needs: list[Need], kind: type[Any]) -> list[int]:
    return [place for place, need in enumerate(needs) if isinstance(need, kind)]


# --- originals ------------------------------------------------------------------------------------


def test_originals_are_kept_before_the_checkpoint_that_names_them() -> None:
    world = World(window(1500))
    made = prepare(world, talk(24), KEEPING)
    (kept,), (saved,) = made_of(world.needs, NeedKeep), made_of(world.needs, NeedSave)
    assert kept < saved
    names = NAME.findall(json.dumps(made.messages))
    assert names
    assert set(names) <= world.originals.keys()


def test_without_a_store_nothing_is_kept_and_nothing_named() -> None:
    world = World(window(1500))
    made = prepare(world, talk(24))
    assert made.outcome is not None
    assert made_of(world.needs, NeedKeep) == []
    assert NAME.findall(json.dumps(made.messages)) == []


def read_back(text: str, originals: dict[str, str]) -> list[Any]:
    """Return every message that a block stands for, those of the blocks in it too, oldest first."""
    (name,) = NAME.findall(text.split("\n", maxsplit=1)[0])
    found: list[Any] = []
    for message in json.loads(originals[name]):
        content = message["content"]
        inner = isinstance(content, str) and content.startswith("[ullage: summary of")
        found += read_back(content, originals) if inner else [message]
    return found


@pytest.mark.parametrize("policy", [Policy.ladder(), presets.trim(), presets.summarise()])
def test_over_three_checkpoints_everything_can_be_read_back(policy: Policy) -> None:
    given = setup(policy, keeps=True, summariser=True)
    world = World(window(1500), summary="Goal:\n- count.")
    history, generations = talk(24), []
    made = prepare(world, talk(1), given)
    for _ in range(3):
        made = prepare(world, history, given)
        assert made.checkpoint is not None
        generations.append(made.checkpoint.generation)
        history = [*history, *talk(24)[2:]]
    assert generations == [0, 1, 2]
    kept = {id(m) for m in made.messages}
    (block,) = [m["content"] for m in made.messages if "summary of" in m["content"]]
    gone = [m for m in history[: len(history) - len(talk(24)[2:])] if id(m) not in kept]
    assert read_back(block, world.originals) == gone
    assert all(reference(text) == name for name, text in world.originals.items())


# --- why, and what is told ------------------------------------------------------------------------


def test_a_caller_may_say_why_it_wants_less() -> None:
    made = prepare(World(window(1500)), talk(24), trigger="model_switch")
    assert made.checkpoint is not None
    assert made.checkpoint.trigger == "model_switch"


def test_a_smaller_window_than_the_checkpoints_is_a_switch_of_models() -> None:
    world, history = World(window(1500)), talk(24)
    prepare(world, history)
    world.window = window(700)
    made = prepare(world, history)
    assert made.checkpoint is not None
    assert made.checkpoint.trigger == "model_switch"
    assert made.checkpoint.bound == 700
    assert made.count.high <= 0.6 * 700
    world.window = window(1500)
    assert prepare(world, history).checkpoint is None


def test_the_rules_of_the_tools_come_from_the_policy() -> None:
    history: list[dict[str, Any]] = [{"role": "user", "content": "go"}]
    for n, tool in enumerate(["pop", "read", "read"]):
        call = {"id": f"c{n}", "function": {"name": tool, "arguments": f'{{"n": {n}}}'}}
        history.append({"role": "assistant", "content": None, "tool_calls": [call]})
        history.append({"role": "tool", "tool_call_id": f"c{n}", "content": "w " * 300})
    history.append({"role": "user", "content": "and?"})
    policy = replace(Policy.ladder(), results={"pop": "once"})
    made = prepare(World(window(1180)), history, setup(policy))
    assert made.outcome is not None
    assert [clear.message for clear in made.outcome.script.clears] == [4, 6]


def test_every_compaction_is_told_whether_it_changed_anything_or_not() -> None:
    made = prepare(World(window(1500)), talk(24))
    (told,) = [e for e in made.events if isinstance(e, Compacted)]
    assert (told.checkpoint, told.reached) == (made.checkpoint, True)
    history = [{"role": "user", "content": "w " * 1500}]
    stuck = prepare(World(window(1500, source="table")), history)
    (failed,) = [e for e in stuck.events if isinstance(e, CompactionFailed)]
    assert failed.reason.startswith("cannot_compact: ")
    assert "the largest message is user at position 0" in failed.reason


# --- old rules ------------------------------------------------------------------------------------


def stepped(steps: int) -> list[dict[str, Any]]:
    history: list[dict[str, Any]] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Mend the leak."},
    ]
    for n in range(steps):
        call = {"id": f"c{n}", "function": {"name": "read", "arguments": f'{{"n": {n}}}'}}
        history.append({"role": "assistant", "content": None, "tool_calls": [call]})
        history.append({"role": "tool", "tool_call_id": f"c{n}", "content": f"{n} " + "w " * 20})
    return history


@pytest.mark.parametrize(
    ("policy", "keep"),
    [
        (presets.trim(), 10),
        (presets.trim(3), 4),
        (presets.summarise(), 6),
        (presets.summarise(1), 2),
    ],
)
def test_an_old_rule_keeps_its_last_messages_widened_to_whole_units(
    policy: Policy, keep: int
) -> None:
    rung = replace(policy.rungs[0], target=0.2)
    roomy = replace(policy, rungs=(rung,), tail_share=1.0, carry_share=0.0)
    history = stepped(60)
    made = prepare(World(window(2100)), history, setup(roomy))
    kept = {id(m) for m in made.messages}
    assert made.outcome is not None
    assert all(id(m) in kept for m in history[:2])
    assert all(id(m) in kept for m in history[-keep:])
    assert made.count.high <= 0.2 * 2100


# --- what would be replayed, and marks on a history that was repaired -----------------------------


@pytest.mark.parametrize("broken", [False, True])
def test_what_would_be_replayed_is_the_checkpoint_of_the_longest_prefix(broken: bool) -> None:
    world, history = World(window(1500)), talk(24)
    if broken:
        history.insert(1, {"role": "tool", "tool_call_id": "x", "content": "orphan"})
    assert ask(world, find_checkpoint(setup(), Request(history))) is None
    made = prepare(world, history)
    assert made.checkpoint is not None
    longer = [*history, {"role": "assistant", "content": "ok"}]
    assert ask(world, find_checkpoint(setup(), Request(longer))) == made.checkpoint


def ask(world: World, asking: Generator[Need, Any, Any]) -> Any:
    try:
        need = next(asking)
        while True:
            need = asking.send(world.answer(need))
    except StopIteration as done:
        return done.value


def test_marks_on_messages_go_along_when_a_history_is_repaired() -> None:
    orphan = {"role": "tool", "tool_call_id": "x", "content": "orphan"}
    page = {"role": "user", "content": "page " + "k " * 900}
    history = [*talk(1), orphan, page, *talk(1)[2:]]
    given = setup(shares=SHARES)
    made = prepare(World(window(1500)), history, given, sections={5: "knowledge"})
    assert page not in made.messages
    assert made.messages == [m for m in history if m not in (orphan, page)]


SHARES = {
    "system_prompt": 0.1,
    "tools": 0.1,
    "knowledge": 0.1,
    "conversation": 0.6,
    "output_buffer": 0.1,
}


# --- from one request to the next -----------------------------------------------------------------


@pytest.mark.parametrize("given", [setup(), setup().with_laws(frozenset({"whole_loops"}))])
def test_of_a_history_that_grew_only_what_is_new_is_derived(given: Setup) -> None:
    history, whole = talk(20), talk(40)
    prepare(World(window(100_000)), history, given)
    marked = [*whole[:-1], {**whole[-1], "cache_control": {"type": "ephemeral"}}]
    for grown in (whole, marked, [*marked[:-1], whole[-1], whole[1]]):
        read, _ = read_history(given, grown)
        memo = read.memo.items()  # a task that was found stays
        known = [count for key, (count, _) in memo if key not in ("applied", "task")]
        assert known
        assert min(known) >= len(history)
        world = World(window(100_000))
        again = prepare(world, grown, given)
        scratch = prepare(World(window(100_000)), grown, replace(given, codec=OpenAIChat()))
        assert chain(again.sent) == chain(scratch.sent)
        assert again.count == scratch.count
        history = grown
