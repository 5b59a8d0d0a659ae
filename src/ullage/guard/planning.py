"""The choice of where to prepare requests: small ones in the event loop, large ones in threads.

This module knows no guard.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ullage.core.dialects import registry
from ullage.threads import Threads

if TYPE_CHECKING:
    from collections.abc import Callable

    from ullage.core.guard.request import Request

Result = TypeVar("Result")

THREADS: Final = Threads("ullage-planning", 2)
"""Two threads: they share the interpreter's lock with the loop, so more would stall the loop."""


def load_dialects() -> None:
    """Load the planner and every dialect, so that the first request need not wait for them."""
    import_module("ullage.core.compaction.plan")
    import_module("ullage.guard.given")
    registry.load_all()


MANY: Final = 500
"""Number of messages above which a request is prepared in a thread."""

LONG: Final = 100_000
"""Characters of text above which a request is prepared in a thread."""


def is_large(request: Request) -> bool:
    """Tell whether preparing a request would block the event loop for too long."""
    return is_long(request.messages, request.system or "")


async def run_beside(messages: Any, work: Callable[[], Result]) -> Result:
    """Return the result of `work` on these messages; if they are long, run it in a thread."""
    return await THREADS.run(work) if is_long(messages) else work()


def is_long(messages: Any, system: str = "") -> bool:
    """Tell whether reading or planning these messages, or a text, would block an event loop."""
    left = LONG - len(system)
    if not isinstance(messages, list | tuple):
        return isinstance(messages, str) and len(messages) > left
    if len(messages) > MANY:
        return True
    for message in messages:
        left -= _size(message, left, _DEEPEST)
        if left < 0:
            return True
    return False


_DEEPEST: Final = 6
"""Depth to which lists and mappings are searched: a result in a block in a message."""


def _size(value: Any, most: int, depth: int) -> int:
    """Return the characters in a value's texts, in any dialect; stop soon after `most`."""
    kind = type(value)
    if kind is str or isinstance(value, str | bytes):
        return len(value)
    if depth == 0 or value is None or isinstance(value, int | float):
        return 0
    if kind is dict or isinstance(value, Mapping):
        items: Iterable[Any] = value.values()
    elif isinstance(value, list | tuple):
        items = value
    else:  # an SDK's object
        items = getattr(value, "__dict__", {}).values()
    size = 0
    for item in items:
        size += len(item) if type(item) is str else _size(item, most - size, depth - 1)
        if size > most:
            break
    return size
