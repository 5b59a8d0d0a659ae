"""Limits how long an event loop waits for a store's answer. It knows no store and no outage."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    import asyncio

Result = TypeVar("Result")

ANSWER_S: Final = 1.0
"""Seconds that an event loop waits for a store's answer. A call from a thread takes as long as the
store's own waits."""

PIECES: Final = 10
"""Pieces of that time. If the loop is blocked, or gets too little of the processor, each piece
takes longer. Without them such a loop would see the timeout before an answer that has long arrived.
"""


async def wait_for_answer(asked: Awaitable[Result]) -> Result:
    """Return the answer of a store; raises TimeoutError after `ANSWER_S`, or the store's error."""
    import asyncio

    task = asyncio.ensure_future(asked)
    try:
        for _ in range(PIECES):
            done, _ = await asyncio.wait({task}, timeout=ANSWER_S / PIECES)
            if done:
                return task.result()
        raise TimeoutError
    finally:
        task.cancel()


class _Patience:
    """Cancels a task when all pieces of the time are over."""

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self._task, self._loop = task, task.get_loop()
        self._left = PIECES
        self.is_over = False
        self._begin_piece()

    def _begin_piece(self) -> None:
        self._timer = self._loop.call_later(ANSWER_S / PIECES, self._end_piece)

    def _end_piece(self) -> None:
        self._left -= 1
        if self._left:
            self._begin_piece()
        else:
            self.is_over = True
            self._task.cancel()

    def end(self) -> None:
        """Stop watching the task."""
        self._timer.cancel()


async def wait_for_thread(asked: Awaitable[Result]) -> Result:
    """Do as `wait_for_answer`, without a task: for calls that end at once when cancelled."""
    import asyncio

    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - this is a coroutine, and some task runs it
    others, patience = task.cancelling(), _Patience(task)
    try:
        return await asked
    except asyncio.CancelledError:
        if patience.is_over and task.uncancel() <= others:
            raise TimeoutError from None
        raise
    finally:
        patience.end()
