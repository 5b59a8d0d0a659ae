"""One request for many who ask, over threads and event loops, and nobody left waiting."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.clock import FakeClock
from ullage.windows.flights import MOST, Flights, Landed


def test_an_answer_is_kept_until_it_expires() -> None:
    clock, asked = FakeClock(100.0), []
    flights: Flights[int] = Flights(clock)

    def work() -> Landed[int]:
        asked.append(1)
        return Landed(len(asked), clock() + 10)

    assert [flights.get("k", work), flights.get("k", work)] == [1, 1]
    clock.advance(10)
    assert flights.get("k", work) == 2
    assert flights.get("other", work) == 3


def test_the_answers_that_landed_longest_ago_make_way() -> None:
    flights: Flights[int] = Flights(FakeClock(100.0))
    for key in range(MOST):
        flights.get(key, lambda: Landed(1, 200.0))
    flights.get(0, lambda: Landed(2, 200.0))  # kept
    flights.get(MOST, lambda: Landed(1, 200.0))
    assert [flights.peek(key) for key in (0, 1, MOST)] == [None, 1, 1]
    assert flights.get(0, lambda: Landed(3, 200.0)) == 3


def test_a_thousand_threads_make_one_request() -> None:
    flights: Flights[int] = Flights(FakeClock())
    asked: list[int] = []
    gate = threading.Event()

    def work() -> Landed[int]:
        asked.append(1)
        gate.wait(10)
        return Landed(7, 1.0)

    with ThreadPoolExecutor(64) as pool:
        waiting = [pool.submit(flights.get, "k", work) for _ in range(1000)]
        gate.set()
        assert {f.result(10) for f in waiting} == {7}
    assert len(asked) == 1


def test_a_thousand_coroutines_make_one_request() -> None:
    flights: Flights[int] = Flights(FakeClock())
    asked: list[int] = []

    async def work() -> Landed[int]:
        asked.append(1)
        await asyncio.sleep(0)
        return Landed(7, 1.0)

    async def many() -> set[int]:
        return set(await asyncio.gather(*(flights.aget("k", work) for _ in range(1000))))

    assert asyncio.run(many()) == {7}
    assert len(asked) == 1
    assert asyncio.run(many()) == {7}
    assert len(asked) == 1


def test_a_coroutine_waits_for_a_thread() -> None:
    flights: Flights[int] = Flights(FakeClock())
    under_way, gate = threading.Event(), threading.Event()

    def slow() -> Landed[int]:
        under_way.set()
        gate.wait(10)
        return Landed(1, 1.0)

    async def never() -> Landed[int]:
        raise AssertionError("asked twice")

    async def wait() -> int:
        asyncio.get_running_loop().call_soon(gate.set)
        return await flights.aget("k", never)

    with ThreadPoolExecutor(1) as pool:
        leader = pool.submit(flights.get, "k", slow)
        assert under_way.wait(10)
        assert asyncio.run(wait()) == 1
        assert leader.result(10) == 1


def test_a_thread_inside_the_loop_never_waits_for_that_loop() -> None:
    flights: Flights[int] = Flights(FakeClock())

    async def slow() -> Landed[int]:
        await asyncio.sleep(0)
        return Landed(1, 1.0)

    async def mixed() -> tuple[int, int]:
        under_way = asyncio.ensure_future(flights.aget("k", slow))
        await asyncio.sleep(0)
        return flights.get("k", lambda: Landed(2, 1.0)), await under_way

    assert asyncio.run(mixed()) == (2, 1)


def test_after_a_failed_leader_another_asks() -> None:
    flights: Flights[int] = Flights(FakeClock())
    under_way, gate, tries = threading.Event(), threading.Event(), []

    def work() -> Landed[int]:
        tries.append(1)
        if len(tries) == 1:
            under_way.set()
            gate.wait(10)
            raise RuntimeError("lost")
        return Landed(5, 1.0)

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(flights.get, "k", work)
        assert under_way.wait(10)
        second = pool.submit(flights.get, "k", work)
        gate.set()
        assert second.result(10) == 5
        with pytest.raises(RuntimeError, match="lost"):
            first.result(10)


def test_who_is_cancelled_in_the_same_moment_as_the_leader_asks_nothing() -> None:
    flights: Flights[int] = Flights(FakeClock())
    asked: list[int] = []

    async def hang() -> Landed[int]:
        asked.append(1)
        await asyncio.Event().wait()
        raise AssertionError

    async def run() -> list[bool]:
        all_of_them = [asyncio.ensure_future(flights.aget("k", hang)) for _ in range(3)]
        await asyncio.sleep(0)
        for one in all_of_them:
            one.cancel()
        await asyncio.wait(all_of_them, timeout=5)
        return [one.cancelled() for one in all_of_them]

    assert asyncio.run(run()) == [True] * 3
    assert len(asked) == 1


def test_a_cancelled_leader_leaves_the_others_an_answer() -> None:
    flights: Flights[int] = Flights(FakeClock())

    async def hang() -> Landed[int]:
        await asyncio.Event().wait()
        raise AssertionError

    async def work() -> Landed[int]:
        return Landed(3, 1.0)

    async def run() -> int:
        leader = asyncio.ensure_future(flights.aget("k", hang))
        await asyncio.sleep(0)
        follower = asyncio.ensure_future(flights.aget("k", work))
        await asyncio.sleep(0)
        leader.cancel()
        return await follower

    assert asyncio.run(run()) == 3


def test_one_who_stops_waiting_cancels_nobody() -> None:
    flights: Flights[int] = Flights(FakeClock())

    async def run() -> tuple[bool, int]:
        gate = asyncio.Event()

        async def work() -> Landed[int]:
            await gate.wait()
            return Landed(4, 1.0)

        leader = asyncio.ensure_future(flights.aget("k", work))
        await asyncio.sleep(0)
        follower = asyncio.ensure_future(flights.aget("k", work))
        await asyncio.sleep(0)
        follower.cancel()
        gate.set()
        await asyncio.gather(follower, return_exceptions=True)
        return follower.cancelled(), await leader

    assert asyncio.run(run()) == (True, 4)


def test_answers_can_be_peeked_dropped_and_cleared() -> None:
    flights: Flights[int] = Flights(FakeClock())
    flights.get("a", lambda: Landed(1, 1.0))
    flights.get("b", lambda: Landed(2, -1.0))
    assert (flights.peek("a"), flights.peek("b"), flights.peek("c")) == (1, 2, None)
    flights.drop("a")
    assert flights.peek("a") is None
    flights.clear()
    assert flights.peek("b") is None
