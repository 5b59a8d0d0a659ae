"""Waiting in tests: until a claim comes true, and never longer than a bound.

It knows nothing of what is waited for.
"""

from __future__ import annotations

import time
from collections.abc import Callable

_PAUSE_S = 0.005


def eventually(claim: Callable[[], bool], *, within_s: float = 60.0) -> None:
    """Return as soon as `claim()` is true. Raises AssertionError after `within_s` seconds."""
    deadline = time.monotonic() + within_s
    while not claim():
        if time.monotonic() > deadline:
            raise AssertionError(f"not true within {within_s:g} s: {claim}")
        time.sleep(_PAUSE_S)
