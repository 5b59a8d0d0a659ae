"""Measures the resident memory of this process, after collecting garbage and freeing pages.

It does not depend on what is measured.
"""

from __future__ import annotations

import ctypes
import gc
import resource
import sys
from pathlib import Path

STATM = Path("/proc/self/statm")


def held_mb() -> float:
    """Return resident megabytes; without /proc/self/statm, the peak so far."""
    gc.collect()
    if not STATM.exists():
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak / (1e6 if sys.platform == "darwin" else 1e3)
    library = ctypes.CDLL(None)
    if hasattr(library, "malloc_trim"):  # only glibc keeps freed memory until told
        library.malloc_trim(0)
    return int(STATM.read_text().split()[1]) * resource.getpagesize() / 1e6
