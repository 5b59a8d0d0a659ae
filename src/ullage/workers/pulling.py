"""The loop of a worker with a pulled engine: take, run, settle, and heartbeats in parallel.

Steps that fail in the engine are tried again: a database that is away for a while costs time, not
jobs. It knows no engine and no turn.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from ullage.core.errors import StoreError
from ullage.workers.engine import Perform, Post, PulledEngine, Running, Taken
from ullage.workers.job import JobOutcome

log = logging.getLogger("ullage.workers")

POLL_S: Final = 0.5
"""Seconds between two checks if no news arrive."""

BEATS: Final = 4
"""Heartbeats per lease."""

LONGEST_BEAT_S: Final = 1.0
"""Most seconds between two checks for dead workers."""

CLOSING_S: Final = 12.0
"""Seconds for jobs to end after they were released: a turn waits that long for its log."""

PAUSE_S: Final = 0.2
"""Seconds before another try after the engine failed."""

Result = TypeVar("Result")


class PullLoop:
    """One worker of an engine. `run` may be called once."""

    def __init__(self, engine: PulledEngine, post: Post, perform: Perform) -> None:
        self._engine, self._post, self._perform = engine, post, perform
        self._worker = 0
        self._under_way: dict[tuple[int, int], Running] = {}  # by number and attempt
        self._tasks: set[asyncio.Task[None]] = set()
        self._freed = asyncio.Event()
        self._taking = False

    async def run(self) -> None:
        """Work until the post drains and no job runs."""
        self._worker = await self._insist(lambda: self._engine.enlist(self._post))
        keeping = asyncio.create_task(self._keep())
        try:
            while not self._post.draining.is_set():
                self._freed.clear()
                if not await self._fill():
                    await self._wait()
            await self._drain()
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
            for running in self._under_way.values():
                running.let_go()
            if self._tasks:
                await asyncio.wait(set(self._tasks), timeout=CLOSING_S)
            await self._insist(lambda: self._engine.resign(self._worker), tries=3)

    async def _fill(self) -> bool:
        """Take one job if a slot is free; tell whether there was one."""
        if len(self._under_way) >= self._post.slots:
            return False
        self._taking = True
        try:
            taken = await self._engine.take(self._worker)
        except StoreError as error:
            await self._rest(error)
            return False
        finally:
            self._taking = False
        if taken is None:
            return False
        running = self._perform(taken.job, taken.deaths)
        self._under_way[taken.number, taken.attempt] = running
        task = asyncio.create_task(self._work_off(taken, running))
        self._tasks.add(task)
        task.add_done_callback(self._forget)
        return True

    async def _wait(self) -> None:
        """Wait for a free slot, for news, or for the end."""
        waits = [
            asyncio.create_task(self._freed.wait()),
            asyncio.create_task(self._post.draining.wait()),
            asyncio.create_task(self._hear_news()),
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    async def _hear_news(self) -> None:
        await self._engine.wait(POLL_S)
        try:
            await self._look_after_loans()
        except StoreError as error:
            await self._rest(error)

    async def _work_off(self, taken: Taken, running: Running) -> None:
        """Run a job to its end, and settle it, however long the engine is away."""
        try:
            try:
                await self._settle(taken, await running.run())
            except Exception as error:
                said = f"the worker failed: {type(error).__name__}: {error}"
                where = taken.job.session
                failed = JobOutcome(state="failed", session=where, reason="crashed", error=said)
                await self._settle(taken, failed)
                raise
        finally:
            del self._under_way[taken.number, taken.attempt]
            self._freed.set()

    async def _settle(self, taken: Taken, outcome: JobOutcome | None) -> None:
        await self._insist(
            lambda: self._engine.settle(self._worker, taken.number, taken.attempt, outcome)
        )

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a job failed in its worker", exc_info=error)

    async def _keep(self) -> None:
        """Send heartbeats and check for dead workers, until cancelled."""
        every = min(self._post.lease_s / BEATS, LONGEST_BEAT_S)
        while True:
            try:
                draining = self._post.draining.is_set()
                if not await self._engine.beat(self._worker, draining=draining):
                    self._leave_all()
                    self._worker = await self._engine.enlist(self._post)
                if await self._engine.reap():
                    self._freed.set()
                await self._look_after_loans()
            except StoreError as error:
                log.warning("no sign of life could be given: %s", error)
            await asyncio.sleep(every)

    async def _look_after_loans(self) -> None:
        """Cancel jobs on request; give back assigned jobs that are unknown here.

        A lost answer leaves such a job, and no other worker would run it while this one sends
        heartbeats. A job that is being taken, or that ended since the check, does not count.
        """
        known = dict(self._under_way)
        for each in await self._engine.list_lent(self._worker):
            key = (each.number, each.attempt)
            running = known.get(key)
            if running is not None and each.cancelled:
                running.cancel()
            if key not in known and key not in self._under_way and not self._taking:
                log.warning(
                    "job %s was taken here and gave no sign of life: it is given back", key[0]
                )
                await self._engine.settle(self._worker, *key, None)

    def _leave_all(self) -> None:
        """Release all jobs: they were given to others when this worker was declared dead."""
        for running in self._under_way.values():
            running.let_go()

    async def _drain(self) -> None:
        """Give running jobs their time to end."""
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=self._post.drain_s)

    async def _insist(self, work: Callable[[], Awaitable[Result]], tries: int = -1) -> Result:
        """Return the result of work on the engine; try again while the engine is away."""
        while True:
            try:
                return await work()
            except StoreError as error:
                tries -= 1
                if not tries:
                    raise
                await self._rest(error)

    async def _rest(self, error: StoreError) -> None:
        log.warning("the queue is away, trying again: %s", error)
        await asyncio.sleep(PAUSE_S)
