"""What a turn has spent on making room, and when to stop trying.

A turn is what follows one request of the user. Recoveries from overflow share one budget, whatever
their cause; compactions that lead nowhere open a breaker, which lets one through again after a
while, so that it is neither endless nor permanent. It knows no strategy and holds no message.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

RECOVERIES: Final = 4
"""Attempts to recover in one turn, whatever the causes (02-decisions 25)."""

FRUITLESS: Final = 3
"""Compactions without progress after which a turn stops compacting."""

HALF_OPEN_S: Final = 60.0
"""Seconds after which one more compaction is let through: long enough that a loop of failing calls
does no work to speak of, short enough for a person who waits."""

PROGRESS: Final = 0.05
"""Share of the tokens that a compaction must free to count as progress."""


@dataclass(frozen=True, slots=True)
class Effort:
    """What was tried in a turn, which is known by its `request` and the `bound` of the window.

    `request` is the chain hash of the history up to the user's last message. `fruitless` counts
    compactions in a row that led nowhere; `since` is when the last of them was, in seconds, and
    `stuck` the chain hash of the history then.
    """

    request: str = ""
    bound: int = 0
    recoveries: int = 0
    fruitless: int = 0
    since: float = 0.0
    stuck: str = ""

    def at(self, request: str, bound: int) -> Effort:
        """Return the effort of this turn: a new one where the user spoke or the window changed."""
        if (request, bound) == (self.request, self.bound):
            return self
        return Effort(request, bound)

    def allows(self, now: float) -> bool:
        """Tell whether a compaction may be tried: the breaker is closed, or half open."""
        return self.fruitless < FRUITLESS or now - self.since >= HALF_OPEN_S

    def has_news(self, history: str) -> bool:
        """Tell whether a history, by its chain hash, has grown since a compaction led nowhere."""
        return history != self.stuck

    def after(self, before: int, after: int, now: float, history: str = "") -> Effort:
        """Return the effort after a compaction of a history from `before` to `after` tokens."""
        if after <= before * (1 - PROGRESS):
            return replace(self, fruitless=0, stuck="")
        return replace(self, fruitless=self.fruitless + 1, since=now, stuck=history)
