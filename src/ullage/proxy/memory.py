"""The memory of a process: its size, and settings that return freed memory to the system.

glibc gives each thread its own arena, never returns the free space inside it, and puts larger and
larger blocks there the longer it runs. On other systems all this does nothing. The module does not
know caches.
"""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

ARENAS: Final = -8, 1
"""M_ARENA_MAX: threads share one arena, since Python's lock keeps them apart anyway."""

MAPPED: Final = -3, 128 * 1024
"""M_MMAP_THRESHOLD: larger blocks are mapped, and so returned when freed. If it is not set, it
grows with each such block (mallopt(3))."""

TRIMMED: Final = -1, 1024 * 1024
"""M_TRIM_THRESHOLD: free bytes allowed at the end of an arena."""


def bound_arenas() -> None:
    """Make the C library keep little freed memory; call it before threads begin."""
    set_option: Any = _find_function("mallopt")
    if set_option is not None:
        for number, value in (ARENAS, MAPPED, TRIMMED):
            set_option(number, value)


def give_back() -> None:
    """Make the C library return free memory, if it can."""
    trim: Any = _find_function("malloc_trim")
    if trim is not None:
        trim(0)


def measure(process: int) -> int:
    """Return the bytes that a process holds (RSS), or 0 without /proc."""
    with suppress(OSError, IndexError):
        held = int(Path(f"/proc/{process}/statm").read_text("ascii").split()[1])
        return held * os.sysconf("SC_PAGE_SIZE")
    return 0


def _find_function(name: str) -> Any:
    return getattr(ctypes.CDLL(None), name, None) if os.name == "posix" else None
