"""trim_oldest: drop whole units, from the oldest, until the target is met.

It knows no other strategy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ullage.core.compaction.dropping import drop, oldest
from ullage.core.compaction.strategy import Strategy

if TYPE_CHECKING:
    from ullage.core.compaction.edits import Script
    from ullage.core.compaction.situation import Situation


def plan(situation: Situation) -> Script:
    """Return drops of the oldest units: as few as meet the target, or all droppable ones."""
    return drop(oldest(situation, situation.total - situation.target))


STRATEGY: Final = Strategy("trim_oldest", plan)
