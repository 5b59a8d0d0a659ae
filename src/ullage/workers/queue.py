"""The queue for a program: submit jobs, await them, listen to them, cancel them.

Usable from any thread and any event loop: its engine has a loop in its own thread. It runs no job.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from ullage.agent.continuing import read_link
from ullage.agent.session import Live
from ullage.core.errors import ConfigurationError, UnknownSession
from ullage.core.session.log.event import EPHEMERAL, Event
from ullage.core.values.pickling import Unpicklable
from ullage.storage.opening import open_log
from ullage.storage.postgres_url import hide_password
from ullage.storage.threaded import SHARED
from ullage.workers.engine import QueueEngine
from ullage.workers.job import (
    ENDED,
    JobOutcome,
    JobRow,
    QueueReport,
    TenantLimits,
    TurnJob,
    make_job,
)
from ullage.workers.opening import choose_engine, open_engine

if TYPE_CHECKING:
    from ullage.agent.session import Told
    from ullage.storage.log import EventLog

Result = TypeVar("Result")

LONGEST_WAIT_S: Final = 3600.0 * 24 * 365


class Ticket(Unpicklable):
    """A submitted job: `id` is its id, and the id of its turn in the log of `session`."""

    instead = "pass its id; there, queue.ticket(queue.find(id)) is the same"

    def __init__(self, queue: JobQueue, job: str, session: str) -> None:
        self._queue = queue
        self.id = job
        self.session = session

    def __repr__(self) -> str:
        return f"Ticket({self.id!r} of session {self.session!r})"

    async def aresult(self, timeout_s: float | None = None) -> JobOutcome:
        """Wait for the job's end and return the outcome. Raises TimeoutError after `timeout_s`."""
        return await asyncio.wrap_future(self._queue.spawn(self._wait(timeout_s)))

    def result(self, timeout_s: float | None = None) -> JobOutcome:
        """Do as `aresult`, blocking."""
        return self._queue.spawn(self._wait(timeout_s)).result()

    async def acancel(self) -> bool:
        """Cancel it; False if it has ended."""
        return await self._queue.acancel(self.id)

    def cancel(self) -> bool:
        """Do as `acancel`, blocking."""
        return self._queue.cancel(self.id)

    async def events(self) -> AsyncIterator[Told]:
        """Yield the events of its turn, from beginning to end, wherever it runs.

        Recorded events come from the log, each once and in order. Live pieces (`Live`) come if the
        engine sends them, and only from this call on.
        """
        found: asyncio.Queue[Told | None] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def pass_on(told: Told | None) -> None:
            loop.call_soon_threadsafe(found.put_nowait, told)

        following = self._queue.spawn(self._follow(pass_on))
        following.add_done_callback(lambda _: pass_on(None))
        try:
            while (told := await found.get()) is not None:
                yield told
            await asyncio.wrap_future(following)
        finally:
            following.cancel()

    async def _wait(self, timeout_s: float | None) -> JobOutcome:
        engine = self._queue.engine
        async with (
            asyncio.timeout(LONGEST_WAIT_S if timeout_s is None else timeout_s),
            engine.listen(self.id) as news,
        ):
            while (outcome := await self._find_end(engine)) is None:
                while (each := await anext(news)) is not None:
                    if each.get("type") in ("ended", "cancelled"):
                        break
        return outcome

    async def _find_end(self, engine: QueueEngine) -> JobOutcome | None:
        row = await engine.find(self.id)
        if row is None:
            raise ConfigurationError(f"there is no job {self.id} in {engine.url}: check its id")
        return row.outcome if row.state in ENDED else None

    async def _follow(self, tell: Any) -> None:
        engine = self._queue.engine
        reader = _TurnReader(self._queue.log, self.session, self.id)
        async with engine.listen(self.id) as news:
            async for each in news:
                if each is not None and each.get("type") in EPHEMERAL:
                    tell(Live(str(each["session"]), str(each["type"]), each["data"]))
                    continue
                ended = await self._find_end(engine) is not None
                for event in await SHARED.reads.run(reader.read_on):
                    tell(event)
                if ended:
                    return


class _TurnReader:
    """Reads the events of one turn as they arrive, also in sessions that continue its own."""

    def __init__(self, log: EventLog, session: str, turn: str) -> None:
        self._log, self._session, self._turn = log, session, turn
        self._after = 0
        self._begun = False

    def read_on(self) -> list[Event]:
        """Return the new events in the log."""
        made: list[Event] = []
        onward: str | None = self._session
        while onward is not None:
            self._after = self._after if onward == self._session else 0
            self._session, onward = onward, None
            try:
                found = self._log.read(self._session, self._after)
            except UnknownSession:  # the worker creates it
                return made
            for event in found:
                self._after = event.seq
                onward = read_link(event) or onward
                mine = event.type == "turn_started" and event.data.get("turn") == self._turn
                self._begun = self._begun or mine
                if self._begun:
                    made.append(event)
        return made


class JobQueue(Unpicklable):
    """The queue of the log in `store`; close it, or use it in a `with` block.

    ::

        with ullage.JobQueue("postgresql://...") as queue:
            ticket = queue.submit("cellar", "What is in the cellar?", tenant="house")
            print(ticket.result().text)

    `engine` is procrastinate or dbos for PostgreSQL, sqlite for a file; the default is the first
    that fits. Raises ConfigurationError for an invalid store or engine.
    """

    instead = "open one in the other process: ullage.JobQueue(store)"

    def __init__(self, store: str, engine: str | None = None) -> None:
        self._store, self._name = store, choose_engine(store, engine)
        self.store = hide_password(store)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._gate = threading.Lock()
        self._engine: QueueEngine | None = None
        self._log: EventLog | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def engine(self) -> QueueEngine:
        """The engine, on the queue's own loop."""
        if self._engine is None:
            self._engine = open_engine(self._store, self._name)
        return self._engine

    @property
    def log(self) -> EventLog:
        """The log that the workers write."""
        if self._log is None:
            self._log = open_log(self._store)
        return self._log

    async def asubmit(self, session: str, text: str, **options: Any) -> Ticket:
        """Let a worker run a turn; return a ticket for the job.

        `options` are those of `TurnJob`: tenant, priority, key, agent, mode, permission,
        max_iterations, options. Raises QueueFull if the maximum number of the tenant's jobs are
        waiting, ConfigurationError for an invalid job, StoreError if the queue cannot be used.
        """
        return await asyncio.wrap_future(
            self.spawn(self._submit(make_job(session, text, **options)))
        )

    def submit(self, session: str, text: str, **options: Any) -> Ticket:
        """Do as `asubmit`, blocking."""
        return self.spawn(self._submit(make_job(session, text, **options))).result()

    async def acancel(self, job: str) -> bool:
        """Cancel a waiting or running job; False if it has ended or does not exist."""
        return await asyncio.wrap_future(self.spawn(self._cancel(job)))

    def cancel(self, job: str) -> bool:
        """Do as `acancel`, blocking."""
        return self.spawn(self._cancel(job)).result()

    async def afind(self, job: str) -> JobRow | None:
        """Return the current state of a job, or None if it does not exist."""
        return await asyncio.wrap_future(self.spawn(self._find(job)))

    def find(self, job: str) -> JobRow | None:
        """Do as `afind`, blocking."""
        return self.spawn(self._find(job)).result()

    def report(self, most: int = 100) -> QueueReport:
        """Return the contents of the queue, with up to `most` jobs, newest first; blocks."""
        return self.spawn(self._report(most)).result()

    def set_limits(self, tenant: str, limits: TenantLimits) -> None:
        """Set a tenant's limits, for all users of the queue from now on; blocks."""
        self.spawn(self._set_limits(tenant, limits)).result()

    def ticket(self, row: JobRow) -> Ticket:
        """Return the ticket of a job that was submitted before."""
        return Ticket(self, row.job.id, row.job.session)

    def close(self) -> None:
        """Close connections. A second call does nothing."""
        with self._gate:
            loop, self._loop = self._loop, None
        if loop is None:
            return
        asyncio.run_coroutine_threadsafe(self._end(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        self._thread.join()
        if self._log is not None:
            self._log.close()

    def spawn(self, work: Coroutine[Any, Any, Result]) -> Future[Result]:
        """Run work on the queue's own loop."""
        with self._gate:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=_run_loop, args=(self._loop,), name="ullage-queue", daemon=True
                )
                self._thread.start()
            return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def _end(self) -> None:
        """Close the engine, then cancel all remaining tasks."""
        left = asyncio.all_tasks() - {asyncio.current_task()}
        if self._engine is not None:
            await self._engine.aclose()
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    async def _submit(self, job: TurnJob) -> Ticket:
        told = await self.engine.submit(job)
        held = None if told == job.id else await self.engine.find(told)
        # A job found by its key may belong to another session.
        return Ticket(self, told, job.session if held is None else held.job.session)

    async def _cancel(self, job: str) -> bool:
        return await self.engine.cancel(job)

    async def _find(self, job: str) -> JobRow | None:
        return await self.engine.find(job)

    async def _report(self, most: int) -> QueueReport:
        return await self.engine.report(most)

    async def _set_limits(self, tenant: str, limits: TenantLimits) -> None:
        await self.engine.set_limits(tenant, limits)


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        loop.close()
