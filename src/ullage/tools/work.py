"""Blocking work of a tool beside the event loop, never left behind.

It knows no tool.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

Found = TypeVar("Found")


async def beside(work: Callable[[], Found]) -> Found:
    """Do blocking work in a thread; who cancels it waits until it is over.

    A thread cannot be stopped, and a file must not change after its call was said to be over.
    """
    task = asyncio.ensure_future(asyncio.to_thread(work))
    await over(task)
    return task.result()


async def over(task: asyncio.Future[Any]) -> None:
    """Wait until a task is over, however often the wait is cancelled; then that goes on."""
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        task.exception()  # asked for, so that nobody complains that it was not
        raise cancelled
