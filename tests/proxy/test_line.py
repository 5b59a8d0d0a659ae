"""The line in which requests wait: fair to clients, and nobody waits for ever."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.proxy.line import FairLine


def test_a_place_that_is_free_is_taken_at_once() -> None:
    async def scene() -> None:
        line = FairLine(2)
        await line.enter("a", 1)
        await line.enter("a", 1)
        assert line.length == 0
        with pytest.raises(TimeoutError):
            await line.enter("a", 0.01)
        assert line.length == 0
        line.leave()
        await line.enter("b", 1)

    asyncio.run(scene())


def test_a_client_with_one_request_does_not_wait_behind_all_of_another() -> None:
    async def scene() -> list[str]:
        line, order = FairLine(1), list[str]()
        await line.enter("first", 1)

        async def ask(client: str, name: str) -> None:
            await line.enter(client, 5)
            order.append(name)
            line.leave()

        waiting = [asyncio.create_task(ask("greedy", f"g{n}")) for n in range(5)]
        await asyncio.sleep(0)
        waiting.append(asyncio.create_task(ask("honest", "h")))
        await asyncio.sleep(0)
        assert line.length == 6
        line.leave()
        await asyncio.gather(*waiting)
        return order

    assert asyncio.run(scene()) == ["g0", "h", "g1", "g2", "g3", "g4"]


def test_who_stops_waiting_costs_nobody_a_turn() -> None:
    async def scene() -> None:
        line = FairLine(1)
        await line.enter("a", 1)
        gone = asyncio.create_task(line.enter("b", 5))
        there = asyncio.create_task(line.enter("c", 5))
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        assert line.length == 1
        line.leave()
        await there
        late = asyncio.create_task(line.enter("d", 5))
        await asyncio.sleep(0)
        line.leave()
        late.cancel()  # in the same moment as its turn comes
        await asyncio.gather(late, return_exceptions=True)
        await line.enter("e", 1)

    asyncio.run(scene())


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=30), st.integers(1, 3))
def test_never_more_than_its_places_and_every_turn_comes(
    asked: list[tuple[str, bool]], places: int
) -> None:
    async def scene() -> None:
        line, inside, most, done = FairLine(places), 0, 0, 0

        async def ask(client: str) -> None:
            nonlocal inside, most, done
            await line.enter(client, 10)
            inside += 1
            most = max(most, inside)
            try:
                await asyncio.sleep(0)
                done += 1
            finally:
                inside -= 1
                line.leave()

        tasks = [asyncio.create_task(ask(client)) for client, _ in asked]
        await asyncio.sleep(0)
        for task, (_, gives_up) in zip(tasks, asked, strict=True):
            if gives_up:
                task.cancel()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        assert most <= places
        assert done == sum(end is None for end in ends)
        assert line.length == 0
        for _ in range(places):
            await line.enter("x", 1)  # no place was lost

    asyncio.run(scene())
