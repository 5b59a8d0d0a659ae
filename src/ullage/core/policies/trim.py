"""trim_oldest: whole units go, from the oldest, until the target is met.

Pins and the protected tail stay. The number of units is found by bisection over prefix sums:
nothing is counted again, so the cost grows with the number of messages only. It knows no other
strategy.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from ullage.core.counting import prefix_sums
from ullage.core.edits import Drop, Edit

if TYPE_CHECKING:
    from ullage.core.policies.situation import Situation


def plan(situation: Situation) -> list[Edit]:
    """Return drops of the oldest units: as few as meet the target, or all that may go."""
    over = situation.total - situation.target
    if over <= 0:
        return []
    pins, sums = situation.pins, prefix_sums(situation.sizes)
    free = [
        unit
        for unit in situation.units[: situation.border()]
        if pins.isdisjoint(range(unit.start, unit.stop))
    ]
    freed = prefix_sums([sums[unit.stop] - sums[unit.start] for unit in free])
    gone = free[: bisect_left(freed, over)]
    return [Drop(i) for unit in gone for i in range(unit.start, unit.stop)]
