"""Faults in what is done beside a request: nobody's answer hangs on them.

They are counted and logged; where requests go out without the guard, they end there.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

log = logging.getLogger("ullage.proxy")


class FaultsBeside:
    """A `with` for such work: `count` hears of each fault, `ends` says that it goes no further."""

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
        """End it; tell whether its fault goes no further."""
        if not isinstance(error, Exception):
            return False
        self._count()
        if self._ends:
            log.error("a fault outside a request; the request goes on", exc_info=error)
        return self._ends
