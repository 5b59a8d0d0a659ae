"""Threads for blocking work, so that event loops do not block: few, and one pool per purpose.

The default pool of asyncio is shared by all: a store that hangs would block everything else. These
threads are daemons, so that a store that hangs does not keep a program alive. This module knows
nothing of the work.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

if TYPE_CHECKING:
    import asyncio
    from concurrent.futures import Future

IDLE_S: Final = 10.0
"""Seconds after which a thread without work ends."""

Args = ParamSpec("Args")
Result = TypeVar("Result")


class Threads:
    """Up to `most` threads, started on demand. Safe to share between loops and threads."""

    def __init__(self, name: str, most: int) -> None:
        self._name, self._most = name, most
        self._begin_anew()

    async def run(
        self, work: Callable[Args, Result], /, *args: Args.args, **kwargs: Args.kwargs
    ) -> Result:
        """Do blocking work in a thread and return its result, or raise its error.

        If the wait is cancelled, work that has not started never will. Started work runs to its
        end, and its result is dropped.
        """
        import asyncio

        bound: Callable[[], Result] = partial(copy_context().run, partial(work, *args, **kwargs))
        return await asyncio.wrap_future(self.submit(bound))

    def submit(self, work: Callable[[], Result]) -> Future[Result]:
        """Queue work for a thread; return the future of its result."""
        if self._pid != os.getpid():  # after a fork: the threads stayed with the parent
            self._begin_anew()
        from concurrent.futures import Future

        future: Future[Result] = Future()
        with self._gate:
            self._waiting.append((future, work))
            if self._idle >= len(self._waiting):
                self._gate.notify()
            elif self._begun < self._most:
                self._begun += 1
                threading.Thread(target=self._work, name=self._name, daemon=True).start()
        return future

    def _begin_anew(self) -> None:
        self._pid = os.getpid()
        self._gate = threading.Condition()
        self._waiting: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._begun = self._idle = 0

    def _work(self) -> None:
        while (found := self._next()) is not None:
            future, work = found
            if future.set_running_or_notify_cancel():
                settle(future, work)
            del found, future, work  # an idle thread holds nothing

    def _next(self) -> tuple[Future[Any], Callable[[], Any]] | None:
        """Return the next work, or None if there was none for `IDLE_S` seconds."""
        with self._gate:
            self._idle += 1
            there = self._gate.wait_for(lambda: self._waiting, IDLE_S)
            self._idle -= 1
            if there:
                return self._waiting.popleft()
            self._begun -= 1
            return None


class AtOnce(Threads):
    """A pool without threads: work that never waits is done by the caller."""

    def __init__(self) -> None:
        super().__init__("ullage-none", 0)

    async def run(
        self, work: Callable[Args, Result], /, *args: Args.args, **kwargs: Args.kwargs
    ) -> Result:
        """Do work at once and return its result, or raise its error."""
        return work(*args, **kwargs)


def settle(future: Future[Any], work: Callable[[], Any]) -> None:
    """Do work, and set its result or error on a future."""
    try:
        result = work()
    except BaseException as error:  # noqa: BLE001 - it is raised to the waiter
        future.set_exception(error)
    else:
        future.set_result(result)


async def acquire_lock(lock: threading.Lock, threads: Threads) -> None:
    """Acquire a lock that another thread or task may hold, without blocking the event loop.

    If the wait is cancelled, the lock is not held.
    """
    import asyncio

    if lock.acquire(blocking=False):
        return
    future = threads.submit(lock.acquire)

    def give_back(done: Future[bool]) -> None:
        if not done.cancelled():
            lock.release()

    try:
        await asyncio.wrap_future(future)
    except asyncio.CancelledError:
        future.add_done_callback(give_back)
        raise


async def finish(work: asyncio.Future[Result], grace_s: float | None = None) -> Result:
    """Return the result of work that must not be interrupted.

    If the wait is cancelled, it continues until the work is done, or for `grace_s` more seconds.
    Then CancelledError is raised, and an error of the work is dropped.
    """
    import asyncio

    cancelled: asyncio.CancelledError | None = None
    loop = asyncio.get_running_loop()
    until: float | None = None
    while not work.done():
        left = None if until is None else until - loop.time()
        if left is not None and left <= 0:
            break
        try:
            await asyncio.wait({work}, timeout=left)
        except asyncio.CancelledError as error:
            cancelled = error
            if until is None and grace_s is not None:
                until = loop.time() + grace_s
    if cancelled is None:
        return work.result()
    work.add_done_callback(_drop_error)
    raise cancelled


def _drop_error(work: asyncio.Future[Any]) -> None:
    if not work.cancelled():
        work.exception()  # retrieved, because asyncio warns of unretrieved errors
