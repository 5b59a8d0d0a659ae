"""The attempts of a turn to make room, and when to stop.

A turn begins with a request of the user. All recoveries from overflow in a turn share one budget.
Compactions that free almost nothing open a breaker. It lets one more through after a while, so that
attempts are neither endless nor stopped forever. This module knows no strategy and holds no
message.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

RECOVERIES: Final = 4
"""Most attempts to recover in one turn, for all causes together (02-decisions 25)."""

FRUITLESS: Final = 3
"""Compactions without progress after which a turn stops compacting."""

HALF_OPEN_S: Final = 60.0
"""Seconds after which one more compaction is allowed: rare enough for a loop of failing calls, soon
enough for a person who waits.
"""

PROGRESS: Final = 0.05
"""Share of the tokens that a compaction must free to count as progress."""


@dataclass(frozen=True, slots=True)
class Effort:
    """The attempts in a turn, which is identified by its `request` and the `bound` of the window.

    `request` is the chain hash of the history up to the user's last message. `fruitless` counts
    consecutive compactions without progress. `since` is the time of the last of them in seconds,
    and `stuck` the chain hash of the history at that time.
    """

    request: str = ""
    bound: int = 0
    recoveries: int = 0
    fruitless: int = 0
    since: float = 0.0
    stuck: str = ""

    def at(self, request: str, bound: int) -> Effort:
        """Return the effort of this turn: a new one if the request or the window changed."""
        if (request, bound) == (self.request, self.bound):
            return self
        return Effort(request, bound)

    def allows(self, now: float) -> bool:
        """Tell whether a compaction may be tried: the breaker is closed, or half open."""
        return self.fruitless < FRUITLESS or now - self.since >= HALF_OPEN_S

    def has_news(self, history: str) -> bool:
        """Tell whether a history, by its chain hash, changed since the last failed compaction."""
        return history != self.stuck

    def after(self, before: int, after: int, now: float, history: str = "") -> Effort:
        """Return the effort after a compaction of a history from `before` to `after` tokens."""
        if after <= before * (1 - PROGRESS):
            return replace(self, fruitless=0, stuck="")
        return replace(self, fruitless=self.fruitless + 1, since=now, stuck=history)
