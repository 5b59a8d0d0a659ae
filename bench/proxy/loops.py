"""The event loop of the bench's own programs: uvloop's where it is installed, else asyncio's."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a program to its end."""
    if importlib.util.find_spec("uvloop") is None:
        return asyncio.run(main)
    with asyncio.Runner(loop_factory=importlib.import_module("uvloop").new_event_loop) as runner:
        return runner.run(main)
