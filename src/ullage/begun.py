"""Coroutines that start at once: work that never waits is finished when the call returns.

Most work of a request never waits: a store answers from memory, a client's socket has room. Such
work needs no timer and no task. This module knows nothing of the work.
"""

from __future__ import annotations

import time
from collections.abc import Coroutine
from typing import Any, Generic, TypeVar

Result = TypeVar("Result")


class Begun(Generic[Result]):
    """A coroutine that has run up to its first wait; await it once for the rest.

    The constructor raises what the coroutine raises before it waits.
    """

    __slots__ = ("_first", "_is_waiting", "_work", "is_done", "result")

    result: Result
    """The result of the coroutine, set if `is_done`."""

    def __init__(self, work: Coroutine[Any, Any, Result]) -> None:
        self._work = work
        self.is_done = self._is_waiting = False
        try:
            self._first = work.send(None)
        except StopIteration as done:
            self.is_done, self.result = True, done.value

    def __await__(self) -> Begun[Result]:
        """Continue the coroutine and return its result."""
        return self

    def __iter__(self) -> Begun[Result]:
        return self

    def __next__(self) -> Any:
        return self.send(None)

    def send(self, value: Any) -> Any:
        """Return the next awaited object, first the one that the coroutine already waits for."""
        if self.is_done:
            raise StopIteration(self.result)
        if self._is_waiting:
            return self._work.send(value)
        self._is_waiting = True
        return self._first

    def throw(self, *error: Any) -> Any:
        """Raise an error at the point where the coroutine waits."""
        return self._work.throw(*error)

    def close(self) -> None:
        """End the coroutine at the point where it waits."""
        self._work.close()


async def wait_within(seconds: float | None, work: Coroutine[Any, Any, Result]) -> Result:
    """Return the result of work; raises TimeoutError if it takes longer than `seconds`."""
    before = time.monotonic()
    begun = Begun(work)
    if begun.is_done:
        return begun.result
    import asyncio

    left = None if seconds is None else max(seconds - (time.monotonic() - before), 0.0)
    async with asyncio.timeout(left):
        result: Result = await begun
        return result
