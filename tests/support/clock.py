"""A clock that stands still until a test moves it.

It knows nothing of real time; it stands in wherever a callable returning seconds is asked for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(slots=True)
class FakeClock:
    """Return `now`, in seconds, when called; only `advance` moves it."""

    now: float = 0.0

    def __call__(self) -> float:
        """Return the seconds that were set."""
        return self.now

    def advance(self, seconds: float) -> None:
        """Move the clock forward. Raises ValueError for a negative or infinite step."""
        if not (seconds >= 0 and math.isfinite(seconds)):
            raise ValueError(f"a clock cannot advance by {seconds} s")
        self.now += seconds
