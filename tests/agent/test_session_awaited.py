"""Sessions over a log that can be awaited: no thread, one step at a time, no deadlock."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from functools import wraps
from typing import Any, ParamSpec

import pytest

from ullage.agent.session import Session
from ullage.core.errors import ConfigurationError, Fenced, StoreError
from ullage.core.session.log.event import Draft, Event
from ullage.storage import check_log
from ullage.storage.log import AsyncEventLog, EventLog, Owner
from ullage.storage.log_memory import MemoryLog
from ullage.storage.threaded import (
    AT_ONCE,
    SHARED,
    ThreadedLog,
    is_awaited,
    log_of,
    make_immediate,
    run_at_once,
)
from ullage.threads import acquire_lock

WAIT_S = 20.0

Args = ParamSpec("Args")


def run_on_loop(test: Callable[Args, Coroutine[Any, Any, None]]) -> Callable[Args, None]:
    """Run a test on an event loop of its own."""

    @wraps(test)
    def run(*args: Args.args, **kwargs: Args.kwargs) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


class AwaitedLog(ThreadedLog, MemoryLog):
    """A log in memory that can be awaited, and whose appends wait for a gate."""

    def __init__(self) -> None:
        MemoryLog.__init__(self)
        ThreadedLog.__init__(self, self, AT_ONCE)
        self.gate, self.begun = asyncio.Event(), asyncio.Event()
        self.threads: set[int] = set()

    async def aappend(
        self, session: str, epoch: int, expected_head: int, drafts: Sequence[Draft], now: float
    ) -> list[Event]:
        self.threads.add(threading.get_ident())
        self.begun.set()
        await self.gate.wait()
        return await super().aappend(session, epoch, expected_head, drafts, now)


class HalfLog(MemoryLog):
    """A log with one `a...` method only."""

    async def aappend(self) -> None:
        """Do nothing."""


def user(text: str) -> Draft:
    return Draft("user_message", {"text": text})


@run_on_loop
async def test_a_log_with_a_methods_is_awaited_on_the_loop_and_one_step_comes_after_another():
    log = AwaitedLog()
    session = Session.create(check_log(log), "s")
    heard: list[object] = []
    session.hear(heard.append)
    many = [asyncio.ensure_future(session.arecord([user(str(i))])) for i in range(5)]
    await asyncio.wait_for(log.begun.wait(), WAIT_S)
    log.gate.set()
    await asyncio.wait_for(asyncio.gather(*many), WAIT_S)
    assert log.threads == {threading.get_ident()}
    assert [event.seq for event in log.read("s")] == [1, 2, 3, 4, 5, 6]
    assert len(heard) == 5
    assert (await session.afold()).head == 6
    await session.aheartbeat()
    await session.arenew()
    await session.aclose()
    assert log.leases("s")[-1].released is not None
    await session.aacquire()
    assert [lease.epoch for lease in log.leases("s")] == [1, 2]


@run_on_loop
async def test_a_call_that_would_block_the_loop_that_it_waits_for_is_refused():
    log = AwaitedLog()
    session = Session.create(log, "s")
    recording = asyncio.ensure_future(session.arecord([user("a")]))
    await asyncio.wait_for(log.begun.wait(), WAIT_S)
    with pytest.raises(StoreError, match="await the method"):
        session.record([user("b")])
    in_thread = SHARED.writes.submit(lambda: session.record([user("c")]))
    log.gate.set()
    await recording
    await asyncio.wait_for(asyncio.wrap_future(in_thread), WAIT_S)
    session.record([user("d")])
    assert [event.data.get("text") for event in log.read("s")] == [None, "a", "c", "d"]


@run_on_loop
async def test_a_cancelled_write_to_an_awaited_log_is_waited_for():
    log = AwaitedLog()
    session = Session.create(log, "s")
    recording = asyncio.ensure_future(session.arecord([user("a")]))
    await asyncio.wait_for(log.begun.wait(), WAIT_S)
    recording.cancel()
    await asyncio.sleep(0)
    assert not recording.done()
    log.gate.set()
    await asyncio.wait_for(asyncio.wait({recording}), WAIT_S)
    assert [event.data.get("text") for event in log.read("s")] == [None, "a"]
    session.record([user("b")])


@run_on_loop
async def test_a_take_over_is_noticed_by_an_awaited_step():
    log = AwaitedLog()
    log.gate.set()
    session = Session.create(log, "s")
    log.release("s", 1, 0.0)
    log.acquire("s", Owner.here("another"), 0.0)
    with pytest.raises(Fenced):
        await session.arecord([user("a")])


@run_on_loop
async def test_a_cancelled_wait_for_a_lock_leaves_it_free():
    lock = threading.Lock()
    lock.acquire()
    entered = threading.Event()
    waiting = asyncio.ensure_future(acquire_lock(lock, SHARED.writes))
    await asyncio.sleep(0)
    SHARED.writes.submit(entered.set)
    assert await SHARED.writes.run(entered.wait, WAIT_S)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    lock.release()
    assert await SHARED.writes.run(lock.acquire, timeout=WAIT_S)
    lock.release()
    await acquire_lock(lock, SHARED.writes)
    assert lock.locked()


@pytest.mark.parametrize("ways", [log_of, make_immediate])
@run_on_loop
async def test_every_log_can_be_asked_by_a_methods(ways: Callable[[EventLog], AsyncEventLog]):
    blocking = MemoryLog()
    log = ways(blocking)
    owner = Owner.here()
    assert not is_awaited(blocking)
    assert await log.acreate("s", 1.0) == blocking.head("s")
    lease = await log.aacquire("s", owner, 1.0)
    (event,) = await log.aappend("s", lease.epoch, 0, [Draft("session_created", {})], 1.0)
    assert await log.aread("s") == [event]
    assert await log.aread_stamped("s") == [(1, event)]
    assert (await log.aheartbeat("s", 1, 2.0)).seen == 2.0
    await log.arelease("s", 1, 3.0)
    assert [lease.released for lease in await log.aleases("s")] == [3.0]
    assert [head.session for head in await log.asessions()] == ["s"]
    again = log_of(MemoryLog())
    assert (await again.arestore([event], 4.0)).seq == (await log.ahead("s")).seq == 1


def test_a_coroutine_that_waits_is_not_run_at_once():
    with pytest.raises(RuntimeError, match="event loop"):
        run_at_once(asyncio.sleep(0))


def test_a_log_that_can_be_awaited_in_part_is_refused():
    with pytest.raises(ConfigurationError, match=r"HalfLog lacks acreate\(session: str"):
        check_log(HalfLog())


def test_a_log_that_is_awaited_already_stays_as_it_is():
    log = AwaitedLog()
    assert log_of(log) is log
