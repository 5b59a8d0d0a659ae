"""How much memory this process holds now: resident, rubbish collected, freed pages given back.

It knows nothing of what is measured.
"""

from __future__ import annotations

import ctypes
import gc
import resource
import sys
from pathlib import Path

STATM = Path("/proc/self/statm")


def held_mb() -> float:
    """Return resident megabytes; where the system tells no more, the most that there ever were."""
    gc.collect()
    if not STATM.exists():
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak / (1e6 if sys.platform == "darwin" else 1e3)
    library = ctypes.CDLL(None)
    if hasattr(library, "malloc_trim"):  # glibc alone keeps what was freed unless told
        library.malloc_trim(0)
    return int(STATM.read_text().split()[1]) * resource.getpagesize() / 1e6
