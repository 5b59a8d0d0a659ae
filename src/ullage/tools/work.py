"""Blocking work of a tool, outside the event loop; it is never left running.

It knows no tool.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

from ullage.threads import Threads, finish

Found = TypeVar("Found")

THREADS: Final = Threads("ullage-tool", 16)


async def beside(work: Callable[[], Found]) -> Found:
    """Do blocking work in a thread; a cancelled caller waits until it is over.

    A thread cannot be stopped, and a file must not change after its call was reported as over.
    """
    return await finish(asyncio.ensure_future(THREADS.run(work)))
