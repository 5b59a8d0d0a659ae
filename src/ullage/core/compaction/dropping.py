"""Units that may be dropped from a situation, and the script that drops them.

Pins and the protected tail stay. No text is counted again, so the cost only grows with the number
of messages.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import chain
from typing import TYPE_CHECKING, Final

from ullage.core.compaction.edits import Script
from ullage.core.tokens.counting import prefix_sums

TAILS: Final = (1.0, 0.5, 0.25, 0.0)
"""Shares of the protected tail that are tried in turn: every tail is an upper limit."""

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ullage.core.compaction.laws import Unit
    from ullage.core.compaction.situation import Situation


def oldest(situation: Situation, tokens: int) -> list[Unit]:
    """Return the oldest droppable units: as few as free that many tokens, or all of them."""
    if tokens <= 0:
        return []
    units, sums = free(situation), prefix_sums(situation.sizes)
    freed = prefix_sums([sums[unit.stop] - sums[unit.start] for unit in units])
    return units[: bisect_left(freed, tokens)]


def free(situation: Situation) -> list[Unit]:
    """Return the droppable units, oldest first."""
    before = situation.units[: situation.border()]
    starts = [unit.start for unit in before]
    held = {bisect_left(starts, pin + 1) - 1 for pin in situation.pins}
    return [u for i, u in enumerate(before) if i not in held or _loose(u, situation)]


def _loose(unit: Unit, situation: Situation) -> bool:
    """Tell whether a unit holds no pin after all: a dropped unit leaves a gap after it."""
    return situation.pins.isdisjoint(unit)


def drop(units: Sequence[Unit]) -> Script:
    """Return the drops of whole units."""
    return Script(frozenset(chain.from_iterable(units)))
