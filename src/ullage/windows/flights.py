"""One answer per question: the first caller does the work, the others wait for it.

This works across threads and event loops. Answers are kept until they expire. If the leader fails
or is cancelled, one of the waiting callers takes over. It knows nothing of the questions.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import Future

MOST: Final = 2_000
"""Most answers kept: with a proxy, clients choose the names of models."""

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Landed(Generic[Value]):
    """An answer and its expiry (seconds since the epoch; in the past: it is not kept)."""

    value: Value
    until: float


class Flights(Generic[Value]):
    """Answers by key. `now` returns seconds since the epoch.

    A coroutine waits for any leader. A thread waits only for threads: a coroutine may belong to the
    loop that this thread blocks, so in that case the thread asks for itself.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._landed: dict[Hashable, Landed[Value]] = {}
        self._threads: dict[Hashable, Future[Value]] = {}
        self._loops: dict[Hashable, Future[Value]] = {}
        self._lock = threading.Lock()

    def get(self, key: Hashable, work: Callable[[], Landed[Value]]) -> Value:
        """Return the answer; do `work` unless it is kept or another thread is doing it."""
        with self._lock:
            held = self._find_held(key)
        if held is not None:
            return held.value
        from concurrent.futures import CancelledError, Future

        mine: Future[Value] = Future()
        while True:
            with self._lock:
                held = self._find_held(key)
                ahead = self._threads.get(key)
                if held is None and ahead is None:
                    self._threads[key] = mine
            if held is not None:
                return held.value
            if ahead is None:
                break
            try:
                return ahead.result()
            except CancelledError:
                continue
        try:
            return self._land(key, self._threads, mine, work())
        except BaseException:
            self._crash(key, self._threads, mine)
            raise

    async def aget(self, key: Hashable, work: Callable[[], Awaitable[Landed[Value]]]) -> Value:
        """Do as `get`, without blocking the event loop."""
        with self._lock:
            kept = self._find_held(key)
        if kept is not None:
            return kept.value
        import asyncio
        from concurrent.futures import Future

        mine: Future[Value] = Future()
        while True:
            with self._lock:
                held = self._find_held(key)
                ahead = self._threads.get(key) or self._loops.get(key)
                if held is None and ahead is None:
                    self._loops[key] = mine
            if held is not None:
                return held.value
            if ahead is None:
                break
            waiting = asyncio.current_task()
            assert waiting is not None  # noqa: S101 - this is a coroutine, and some task runs it
            before = waiting.cancelling()
            try:
                # Shielded: a caller that stops waiting must not cancel the flight for the others.
                return await asyncio.shield(asyncio.wrap_future(ahead))
            except asyncio.CancelledError:
                if not ahead.cancelled() or waiting.cancelling() > before:
                    raise  # a waiting caller may be cancelled at the same moment as the leader
        try:
            return self._land(key, self._loops, mine, await work())
        except BaseException:
            self._crash(key, self._loops, mine)
            raise

    def peek(self, key: Hashable) -> Value | None:
        """Return the last answer, expired or not, or None."""
        held = self._landed.get(key)
        return held.value if held is not None else None

    def drop(self, key: Hashable) -> None:
        """Forget one answer."""
        with self._lock:
            self._landed.pop(key, None)

    def expire(self, begins: str, wants: Callable[[Value], bool]) -> None:
        """Expire the answers whose keys start with `begins` and that `wants` accepts.

        Until they are asked for again, `peek` still returns them.
        """
        with self._lock:
            for key, held in self._landed.items():
                if isinstance(key, str) and key.startswith(begins) and wants(held.value):
                    self._landed[key] = Landed(held.value, 0.0)

    def clear(self) -> None:
        """Forget every answer."""
        with self._lock:
            self._landed.clear()

    def _find_held(self, key: Hashable) -> Landed[Value] | None:
        held = self._landed.get(key)
        return held if held is not None and held.until > self._now() else None

    def _land(
        self,
        key: Hashable,
        flights: dict[Hashable, Future[Value]],
        mine: Future[Value],
        landed: Landed[Value],
    ) -> Value:
        with self._lock:
            self._landed.pop(key, None)
            self._landed[key] = landed
            if len(self._landed) > MOST:  # the oldest answer is asked for again
                del self._landed[next(iter(self._landed))]
            flights.pop(key, None)
        mine.set_result(landed.value)
        return landed.value

    def _crash(
        self, key: Hashable, flights: dict[Hashable, Future[Value]], mine: Future[Value]
    ) -> None:
        """Let another caller lead."""
        with self._lock:
            flights.pop(key, None)
        mine.cancel()
