"""Threads beside an event loop: bounded, ended when idle, and what becomes of cancelled work."""

from __future__ import annotations

import asyncio
import threading

import pytest

from tests.support.waiting import eventually
from ullage import threads
from ullage.threads import AtOnce, Threads, finish


def test_no_more_threads_than_its_most_work_at_once() -> None:
    pool, free, names = Threads("test-most", 2), threading.Event(), set()

    def work() -> None:
        names.add(threading.get_ident())
        assert free.wait(20)

    futures = [pool.submit(work) for _ in range(5)]
    eventually(lambda: len(names) == 2)
    assert sum(thread.name == "test-most" for thread in threading.enumerate()) == 2
    free.set()
    for future in futures:
        future.result(20)
    assert len(names) == 2


def test_a_thread_without_work_ends_and_the_next_work_has_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(threads, "IDLE_S", 0.01)
    pool = Threads("test-idle", 1)
    assert pool.submit(lambda: 1).result(20) == 1
    eventually(lambda: all(t.name != "test-idle" for t in threading.enumerate()))
    assert pool.submit(lambda: 2).result(20) == 2


def test_an_error_comes_out_where_the_result_is_waited_for() -> None:
    def fail() -> None:
        raise LookupError("gone")

    async def scene() -> None:
        for pool in (Threads("test-error", 1), AtOnce()):
            with pytest.raises(LookupError, match="gone"):
                await pool.run(fail)

    asyncio.run(scene())


def test_work_that_was_given_up_before_it_began_is_never_done() -> None:
    pool, free, done = Threads("test-cancel", 1), threading.Event(), list[int]()

    async def scene() -> None:
        first = asyncio.create_task(pool.run(free.wait, 20))
        second = asyncio.create_task(pool.run(done.append, 2))
        await asyncio.sleep(0)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        free.set()
        assert await first
        assert await pool.run(len, done) == 0

    asyncio.run(scene())


def test_work_that_must_not_be_broken_off_is_waited_for_and_at_most_its_grace() -> None:
    async def scene() -> None:
        loop = asyncio.get_running_loop()
        for grace_s in (None, 20.0):
            work: asyncio.Future[int] = loop.create_future()
            waiting = asyncio.create_task(finish(work, grace_s))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.sleep(0)
            assert not waiting.done()
            work.set_result(1)
            with pytest.raises(asyncio.CancelledError):
                await waiting
        never: asyncio.Future[int] = loop.create_future()
        waiting = asyncio.create_task(finish(never, 0.0))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        never.set_exception(LookupError("nobody waits for it"))

    asyncio.run(scene())
