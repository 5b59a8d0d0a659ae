"""trim_oldest: whole units go, from the oldest, until the target is met.

Pins and the protected tail stay. The number of units is found by bisection over prefix sums:
nothing is counted again, so the cost grows with the number of messages only. It knows no other
strategy.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import chain
from typing import TYPE_CHECKING

from ullage.core.compaction.edits import Script
from ullage.core.tokens.counting import prefix_sums

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ullage.core.compaction.laws import Unit
    from ullage.core.compaction.situation import Situation


def plan(situation: Situation) -> Script:
    """Return drops of the oldest units: as few as meet the target, or all that may go."""
    return dropping(oldest(situation, situation.total - situation.target))


def oldest(situation: Situation, tokens: int) -> list[Unit]:
    """Return the oldest units that may go: as few as free that many tokens, or all of them."""
    if tokens <= 0:
        return []
    units, sums = free(situation), prefix_sums(situation.sizes)
    freed = prefix_sums([sums[unit.stop] - sums[unit.start] for unit in units])
    return units[: bisect_left(freed, tokens)]


def free(situation: Situation) -> list[Unit]:
    """Return the units that may go, oldest first."""
    before = situation.units[: situation.border()]
    starts = [unit.start for unit in before]
    held = {bisect_left(starts, pin + 1) - 1 for pin in situation.pins}
    return [u for i, u in enumerate(before) if i not in held or _loose(u, situation)]


def _loose(unit: Unit, situation: Situation) -> bool:
    """Tell whether a unit holds no pin after all: a unit that is gone leaves a gap behind it."""
    return situation.pins.isdisjoint(unit)


def dropping(units: Sequence[Unit]) -> Script:
    """Return the drops of whole units."""
    return Script(frozenset(chain.from_iterable(units)))
