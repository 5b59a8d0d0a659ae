"""The memory of a process: how much it holds, and that what is freed goes back to the system.

glibc gives each thread an arena of its own, of which what is free in between is never returned, and
takes larger blocks from them the longer it runs. On other systems all this does nothing. It knows
no caches.
"""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

ARENAS: Final = -8, 1
"""M_ARENA_MAX: threads share one, since one lock of Python's keeps them apart anyway."""

MAPPED: Final = -3, 128 * 1024
"""M_MMAP_THRESHOLD: larger blocks are mapped, and so returned when freed. Where nobody sets it, it
grows with each such block (mallopt(3))."""

TRIMMED: Final = -1, 1024 * 1024
"""M_TRIM_THRESHOLD: bytes that may lie free at the end of an arena."""


def bound_arenas() -> None:
    """Have the C library keep little of what is freed; before threads begin."""
    set_option: Any = _find_function("mallopt")
    if set_option is not None:
        for number, value in (ARENAS, MAPPED, TRIMMED):
            set_option(number, value)


def give_back() -> None:
    """Have the C library return what lies free, where it can."""
    trim: Any = _find_function("malloc_trim")
    if trim is not None:
        trim(0)


def measure(process: int) -> int:
    """Return the bytes that a process holds (RSS); 0 where there is no /proc."""
    with suppress(OSError, IndexError):
        held = int(Path(f"/proc/{process}/statm").read_text("ascii").split()[1])
        return held * os.sysconf("SC_PAGE_SIZE")
    return 0


def _find_function(name: str) -> Any:
    return getattr(ctypes.CDLL(None), name, None) if os.name == "posix" else None
