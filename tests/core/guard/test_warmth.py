"""What a provider's cache holds, and which answers show that it was lost, and why."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.core.guard.driving import World, setup, talk, window
from ullage.core.guard import machine as guard
from ullage.core.guard.conversation import Conversation
from ullage.core.guard.events import CacheBust
from ullage.core.guard.learning import Observation
from ullage.core.guard.request import Request, Setup
from ullage.core.guard.warmth import LEAST, LIFE_S

TURNS, WORDS = 20, 40


def answer(
    world: World, given: Setup, turns: int, read: int, tokens: int | None = None, **more: Any
) -> Observation:
    """Send a request of so many turns, and observe that so much of it was read from a cache."""
    history = more.pop("messages", talk(turns, WORDS))
    made = world.drive(guard.prepare(given, Request(history, **more)))
    total = tokens or made.measured.total.best
    report = {"prompt_tokens": total, "prompt_tokens_details": {"cached_tokens": read}}
    return world.observe(given, made, {"usage": {**report, "completion_tokens": 3}})


def busts(seen: Observation) -> list[CacheBust]:
    return [event for event in seen.events if isinstance(event, CacheBust)]


def warmed(given: Setup, **more: Any) -> tuple[World, int]:
    """Return a world whose cache holds a conversation, and the tokens that it holds."""
    world = World(window(100_000))
    seen = answer(world, given, TURNS, 100, **more)
    assert busts(seen) == []
    assert seen.conversation.warm is not None
    return world, seen.conversation.warm.tokens


def test_a_cache_that_is_read_is_not_lost() -> None:
    world, held = warmed(setup())
    assert held > LEAST
    assert busts(answer(world, setup(), TURNS + 1, held - held % 128)) == []


@pytest.mark.parametrize(
    ("changed", "more", "kind"),
    [
        ({"now": LIFE_S - 1}, {}, "unknown"),
        ({"now": LIFE_S}, {}, "expired"),
        ({}, {"tools": [{"type": "function", "function": {"name": "ls"}}]}, "edited"),
    ],
)
def test_a_cache_that_is_lost_is_told_with_its_cause(
    changed: dict[str, Any], more: dict[str, Any], kind: str
) -> None:
    world, held = warmed(setup())
    seen = answer(world, setup(**changed), TURNS + 1, 10, **more)
    assert busts(seen) == [CacheBust(kind, held - 10)]  # type: ignore[arg-type]
    other = answer(world, setup(model="another"), TURNS + 2, 0)
    assert busts(other) == []  # it has a cache of its own


def test_system_text_that_changes_edits_what_was_cached() -> None:
    world, _ = warmed(setup())
    history = [{"role": "system", "content": "Be long."}, *talk(TURNS + 1, WORDS)[1:]]
    (found,) = busts(answer(world, setup(), 0, 0, messages=history))
    assert found.kind == "edited"


def test_messages_that_are_gone_edit_what_was_cached() -> None:
    world, _ = warmed(setup())
    shorter = answer(world, setup(), TURNS - 1, 0, messages=talk(TURNS, WORDS)[:-1])
    assert busts(shorter) == []  # another branch: nothing is known of it
    found = shorter.conversation
    assert found.warm is None


def test_a_compaction_loses_a_cache_and_is_expected_to() -> None:
    world, held = warmed(setup())
    world.window = window(held)
    made = answer(world, setup(), TURNS + 1, 0)
    assert made.checkpoint is not None
    assert busts(made) == []


@pytest.mark.parametrize(("tokens", "read"), [(LEAST - 1, 100), (None, 0)])
def test_nothing_is_lost_where_little_or_nothing_was_cached(tokens: int | None, read: int) -> None:
    world = World(window(100_000))
    answer(world, setup(), TURNS, read, tokens)
    assert busts(answer(world, setup(), TURNS + 1, 0)) == []


def test_a_request_without_messages_holds_no_cache() -> None:
    world = World(window(100_000))
    seen = answer(world, setup(), 0, 2_000, 3_000, messages=[], system="Hi.")
    assert seen.conversation.warm is None


def test_what_a_cache_holds_is_remembered_with_the_conversation() -> None:
    world, held = warmed(setup())
    (kept,) = [c for c in world.talks.values() if c.warm is not None]
    again = Conversation.from_dict(json.loads(json.dumps(kept.to_dict())))
    assert again == kept
    assert again.warm is not None
    assert again.warm.tokens == held
