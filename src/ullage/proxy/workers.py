"""The processes that read and plan large requests: started, called, and killed at the deadline.

A request goes to the worker that had its conversation last, and waits there in a line that is fair
to clients. A worker that shows no progress is killed, and the next request gets a new one. The
module knows jobs by name, and decides nothing about requests.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
import logging
import sys
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import Context, copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ullage.proxy import memory
from ullage.proxy.body import RequestRefused
from ullage.proxy.frames import Done, ProxyReply, Tell, WorkerAsk, WorkerJob, aread, pack
from ullage.proxy.line import FairLine
from ullage.threads import settle

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from ullage.proxy.asked import Doors

log = logging.getLogger("ullage.proxy")

QUEUE_S: Final = 60.0
"""Seconds that a request waits for its turn; then its client is told to try again later."""

AGAIN_S: Final = 10
"""Seconds after which it may try again."""

LIGHT_S: Final = 20.0
"""Seconds that a job without a turn may take."""

SILENT_S: Final = 20.0
"""Seconds without a sign of life after which a worker with work is killed."""

IDLE_S: Final = 600.0
"""Seconds after which a worker without requests ends, which frees its memory. People think for
minutes between two prompts, and a new worker takes half a second to start."""

TIDY_S: Final = 10.0
"""Seconds between two looks for workers without work."""

LOOK_S: Final = 1.0
"""Seconds between two looks at a worker that has work."""

KNOWN: Final = 4_096
"""Conversations with a known last worker."""

BEGINNING: Final = 4_096
"""Bytes of a body that identify its conversation; a wrong guess costs some time."""

LONGEST_FRAME: Final = 1 << 20
"""Bytes that are read ahead from a worker."""


COMMAND: Final = (sys.executable, "-P", "-c", "from ullage.proxy import worker; worker.main()")
"""The command that starts a worker. It avoids `-m`, which would make its classes those of
`__main__`. `-P` keeps modules of the current folder out."""


class WorkerLost(Exception):  # noqa: N818 - named for what happened
    """Report a worker that ended, or was ended, before its job was done."""


class Worker:
    """One process. `doors` are the calls that it may make; `tell` is called if it is killed."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        doors: Doors,
        tell: Callable[[], None],
        turns: int,
    ) -> None:
        self.line = FairLine(turns)
        self._tell = tell
        self.tickets: set[int] = set()
        self.is_lost = False
        self.used = time.monotonic()
        self._process, self._doors = process, doors
        self._numbers = itertools.count(1)
        self._jobs: dict[int, tuple[asyncio.Future[Any], Context]] = {}
        self._heard = time.monotonic()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._keep(self._listen())

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def is_idle(self) -> bool:
        """True if it has no running request."""
        return not (self._jobs or self.tickets or self.line.length)

    async def run(self, name: str, *arguments: Any) -> Any:
        """Return the result of a job that needs no turn; raises its error, and WorkerLost."""
        async with asyncio.timeout(LIGHT_S):
            return await self._begin(name, arguments)

    async def take_turn(self, client: str, patience_s: float, name: str, *arguments: Any) -> Any:
        """Return the result of a job that takes time, once it is its client's turn.

        Raises the error of the job, RequestRefused if its turn does not come, TimeoutError after
        `patience_s` seconds of work, and WorkerLost.
        """
        try:
            await self.line.enter(client, QUEUE_S)
        except TimeoutError as error:
            raise refuse_busy(AGAIN_S) from error
        until = time.monotonic() + patience_s
        try:
            future = self._begin(name, arguments)
        except BaseException:
            self.line.leave()
            raise
        waiting = self._keep(self._watch(future, until))
        waiting.add_done_callback(lambda _: self.line.leave())  # also if nobody waits any more
        return await asyncio.shield(waiting)

    def note(self, name: str, *arguments: Any) -> None:
        """Start a job without waiting for its end."""
        if not self.is_lost:
            self._begin(name, arguments).add_done_callback(_drop_error)

    def send(self, frame: Any) -> None:
        """Send a frame; frames to a lost worker are dropped."""
        assert self._process.stdin is not None  # noqa: S101 - it was begun with a pipe
        if self.is_lost:
            return
        try:
            self._process.stdin.write(pack(frame))
        except (OSError, RuntimeError):  # it ended just now, and its pipe is closed (uvloop)
            self.kill()

    def retire(self) -> None:
        """Let it end when its work is done."""
        assert self._process.stdin is not None  # noqa: S101 - the same
        self._process.stdin.close()

    def kill(self) -> None:
        """Kill it at once; its jobs raise WorkerLost."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        self._lose()

    async def wait(self) -> None:
        """Wait until it is gone."""
        await self._process.wait()

    def _begin(self, name: str, arguments: tuple[Any, ...]) -> asyncio.Future[Any]:
        if self.is_lost:
            raise WorkerLost
        number, future = next(self._numbers), asyncio.get_running_loop().create_future()
        if not self._jobs:
            self._heard = time.monotonic()
        self._jobs[number] = (future, copy_context())
        self.used = time.monotonic()
        self.send(WorkerJob(number, name, arguments))
        return future

    async def _watch(self, future: asyncio.Future[Any], until: float) -> Any:
        """Return the result of a job; kill a worker that is late or gives no sign of life."""
        while not future.done():
            now = time.monotonic()
            if now >= until or now - self._heard > SILENT_S:
                log.warning("a worker was ended: its work took too long")
                self._tell()
                self.kill()
                raise TimeoutError
            await asyncio.wait({future}, timeout=min(until - now, LOOK_S))
        return future.result()

    async def _listen(self) -> None:
        assert self._process.stdout is not None  # noqa: S101 - it was begun with a pipe
        try:
            while (frame := await aread(self._process.stdout)) is not None:
                self._heard = time.monotonic()
                if isinstance(frame, Done):
                    self._end(frame)
                elif isinstance(frame, WorkerAsk):
                    self._answer(frame)
                elif isinstance(frame, Tell):
                    self._note(frame)
        except Exception:
            log.exception("what a worker said cannot be read: it is ended")
            raise
        finally:
            self.kill()
        await self._process.wait()

    def _end(self, done: Done) -> None:
        future, _ = self._jobs.pop(done.number, (None, None))
        self.used = time.monotonic()
        if future is None or future.done():
            return
        if done.error is not None:
            future.set_exception(done.error)
        else:
            future.set_result(done.value)

    def _answer(self, asked: WorkerAsk) -> None:
        """Answer at once if the result is ready; a coroutine gets a task of its own."""
        end = self._call(asked)
        failed = end.exception()  # the worker raises it
        value = end.result() if failed is None else None
        if asyncio.iscoroutine(value):
            self._keep(self._answer_later(asked.number, value))
        else:
            self.send(ProxyReply(asked.number, value, failed))

    async def _answer_later(self, number: int, work: Coroutine[Any, Any, Any]) -> None:
        ends = await asyncio.gather(work, return_exceptions=True)
        end = ends[0]
        failed = isinstance(end, BaseException)
        self.send(ProxyReply(number, error=end) if failed else ProxyReply(number, end))

    def _note(self, told: Tell) -> None:
        """Handle a worker's notice at once, in the context of its job."""
        context = self._jobs[told.job][1] if told.job in self._jobs else Context()
        failed = context.copy().run(self._call, told).exception()
        if failed is not None:
            what = "what a worker told could not be done: %s.%s"
            log.error(what, told.door, told.method, exc_info=failed)

    def _call(self, what: WorkerAsk | Tell) -> Future[Any]:
        """Return the end of a door's call: its value, its coroutine, or its error."""
        end = Future[Any]()
        settle(end, partial(self._doors[what.door, what.method], *what.arguments))
        return end

    def _lose(self) -> None:
        self.is_lost = True
        self.retire()
        jobs, self._jobs = self._jobs, {}
        for future, _ in jobs.values():
            if not future.done():
                future.set_exception(WorkerLost("a worker ended before its job was done"))
                future.exception()  # some have no waiter

    def _keep(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        _drop_error(task)


class Workers:
    """Up to `most` workers, started when there is work for them. For one event loop.

    `setup` returns the setup of a worker, `tell` is called if one had to be killed. `turns` is the
    number of jobs that a worker runs at once: more than one if they wait for models.
    """

    def __init__(
        self,
        most: int,
        setup: Callable[[], Any],
        doors: Doors,
        tell: Callable[[], None],
        *,
        turns: int = 1,
    ) -> None:
        self._most, self._setup, self._turns = most, setup, turns
        self._are_old = False
        self._doors, self._tell = doors, tell
        self._workers: list[Worker] = []
        self._ends: dict[Worker, asyncio.Task[None]] = {}
        self._had: OrderedDict[bytes, Worker] = OrderedDict()
        self._gate = asyncio.Lock()
        self._preparing: asyncio.Task[None] | None = None
        self._tidying: asyncio.TimerHandle | None = None

    @property
    def pids(self) -> list[int]:
        """The process ids of the living workers."""
        return [worker.pid for worker in self._ends if not worker.is_lost]

    @property
    def waiting(self) -> int:
        """Number of requests that wait for their turn."""
        return sum(worker.line.length for worker in self._workers)

    async def find(self, client: str, raw: bytes) -> Worker:
        """Return the worker for a body: the last one of its conversation, else the freest."""
        said = hashlib.blake2b(raw[:BEGINNING], key=client.encode()[:64]).digest()
        async with self._gate:
            self._retire_old()
            had = self._had.pop(said, None)
            there = had is not None and had in self._workers and not had.is_lost
            worker = had if had is not None and there else await self._find_free()
            self._had[said] = worker
            if len(self._had) > KNOWN:
                self._had.popitem(last=False)
        return worker

    def prepare(self) -> None:
        """Start a worker if none lives: a large request will come soon, and would wait for it."""
        begins = self._preparing is not None and not self._preparing.done()
        if not begins and all(worker.is_lost for worker in self._workers):
            self._preparing = asyncio.get_running_loop().create_task(self._prepare())
            self._preparing.add_done_callback(_drop_error)  # the user of a worker gets the error

    async def _prepare(self) -> None:
        async with self._gate:
            self._retire_old()
            await self._find_free()

    async def aclose(self) -> None:
        """End all workers."""
        if self._tidying is not None:
            self._tidying.cancel()
        if self._preparing is not None:
            self._preparing.cancel()
            await asyncio.gather(self._preparing, return_exceptions=True)
        self._workers.clear()
        ends = [*self._ends.values()]
        for worker in tuple(self._ends):
            worker.kill()
        await asyncio.gather(*ends)

    def renew(self, most: int, turns: int) -> None:
        """Let all workers end when their work is done: the next request gets a new one.

        From any thread.
        """
        self._most, self._turns, self._are_old = most, turns, True

    def _retire_old(self) -> None:
        if self._are_old:
            self._are_old = False
            self._had.clear()
            for worker in tuple(self._workers):
                self._retire(worker)

    def _retire(self, worker: Worker) -> None:
        self._workers.remove(worker)
        if worker.is_idle:
            worker.retire()

    async def _find_free(self) -> Worker:
        self._workers = [worker for worker in self._workers if not worker.is_lost]
        idle = next((worker for worker in self._workers if worker.is_idle), None)
        if idle is not None:
            return idle
        if len(self._workers) < self._most:
            self._workers.append(await self._begin())
            return self._workers[-1]
        return min(self._workers, key=lambda worker: (worker.line.length, len(worker.tickets)))

    async def _begin(self) -> Worker:
        setup, pipe = self._setup(), asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *COMMAND, stdin=pipe, stdout=pipe, limit=LONGEST_FRAME
        )
        worker = Worker(process, self._doors, self._tell, self._turns)
        worker.send(setup)
        self._ends[worker] = asyncio.create_task(self._bury(worker))
        self._tidy_later()
        return worker

    async def _bury(self, worker: Worker) -> None:
        await worker.wait()
        del self._ends[worker]

    def _tidy_later(self) -> None:
        if self._tidying is None:
            loop = asyncio.get_running_loop()
            self._tidying = loop.call_later(min(IDLE_S / 4, TIDY_S), self._tidy)

    def _tidy(self) -> None:
        """End workers that had no work for a while, and retired ones that are idle."""
        self._tidying = None
        self._retire_old()
        now = time.monotonic()
        for worker in tuple(self._workers):
            if worker.is_lost or (worker.is_idle and now - worker.used > IDLE_S):
                self._retire(worker)
        for worker in self._ends:
            if worker not in self._workers and worker.is_idle:
                worker.retire()
        if self._ends:
            self._tidy_later()
        else:
            memory.give_back()


def _drop_error(future: asyncio.Future[Any]) -> None:
    if not future.cancelled():
        future.exception()  # retrieved, since asyncio warns of errors that nobody retrieves


def refuse_busy(again_s: int, bound: str = "") -> RequestRefused:
    """Return the refusal of a client that is over the named bound, or had no turn in time."""
    why = f"over the bound `{bound}` of this proxy" if bound else "the proxy is busy"
    refused = RequestRefused(429, "proxy_busy", f"{why}: come again in {again_s} seconds")
    refused.again_s = again_s
    return refused
