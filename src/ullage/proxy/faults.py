"""Faults in side work of a request, on which no answer depends.

They are counted and logged. If requests may go out without the guard, the faults are not raised.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

log = logging.getLogger("ullage.proxy")


class FaultsBeside:
    """A context manager for such work: it calls `count` for each fault; `ends` stops the fault."""

    __slots__ = ("_count", "_ends")

    def __init__(self, count: Callable[[], None], *, ends: bool) -> None:
        self._count, self._ends = count, ends

    def __enter__(self) -> None:
        """Begin the work."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        """End the work; tell whether its fault is stopped here."""
        if not isinstance(error, Exception):
            return False
        self._count()
        if self._ends:
            log.error("a fault outside a request; the request goes on", exc_info=error)
        return self._ends
