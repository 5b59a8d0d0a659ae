"""summarise_middle: the oldest units go in one piece, and a summary replaces them.

It also makes room for the summary, under the largest tail with which the target is met. It writes
no summary and knows no other strategy.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ullage.core.compaction.dropping import TAILS, drop, oldest
from ullage.core.compaction.edits import Script
from ullage.core.compaction.strategy import Strategy

if TYPE_CHECKING:
    from ullage.core.compaction.laws import Unit
    from ullage.core.compaction.situation import Situation


def plan(situation: Situation) -> Script:
    """Return the drops, empty if a summary would not pay."""
    over = situation.total + situation.block - situation.target
    chosen: list[Unit] = []
    for share in TAILS:
        units = oldest(replace(situation, tail=int(situation.tail * share)), over)
        saved = sum(sum(situation.sizes[unit.start : unit.stop]) for unit in units)
        if saved > 2 * situation.block:
            chosen = units
            if saved >= over:
                break
    return drop(chosen) if chosen else Script()


STRATEGY: Final = Strategy("summarise_middle", plan, prose=True)
