"""The async functions on long histories: the event loop goes on with its other work meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import ullage
from ullage.guard.planning import LONG, MANY, is_long

HISTORY: list[dict[str, Any]] = [
    {
        "role": ("user", "assistant")[n % 2],
        "content": f"Number {n}: the cask holds {n} litres. " * 9,
    }
    for n in range(1_201)
]


@pytest.mark.parametrize(
    "ask",
    [
        lambda: ullage.acount(HISTORY, model="gpt-4o", runtime=ullage.Runtime()),
        lambda: ullage.acompact(
            HISTORY, model="gpt-4o", target_tokens=5_000, runtime=ullage.Runtime()
        ),
    ],
    ids=["acount", "acompact"],
)
def test_other_work_goes_on_beside_a_long_history(ask: Callable[[], Awaitable[object]]) -> None:
    async def run() -> tuple[int, object]:
        turns = 0

        async def turn() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        beside = asyncio.create_task(turn())
        await asyncio.sleep(0)
        before = turns
        found = await ask()
        beside.cancel()
        return turns - before, found

    turns, found = asyncio.run(run())
    assert turns > 10  # none at all where the loop is held up
    if isinstance(found, ullage.Compaction):
        same = ullage.compact(HISTORY, model="gpt-4o", target_tokens=5_000)
        assert found.messages == same.messages


def test_what_is_long_is_told_by_messages_and_by_text() -> None:
    assert not is_long([{"role": "user", "content": "x"}] * MANY)
    assert is_long([{"role": "user", "content": "x"}] * (MANY + 1))
    assert is_long([{"role": "user", "content": "x" * (LONG + 1)}])
    assert is_long([{"role": "user", "content": "x"}], "s" * (LONG + 1))
    assert is_long("x" * (LONG + 1))
    assert not is_long("x" * LONG)
    assert not is_long(None)
