"""native: let the provider compact everything before the tail.

It plans nothing by itself: `core.compaction.native` asks, if the guard can reach the provider.
Otherwise the strategies after it do all the work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ullage.core.compaction.edits import Script
from ullage.core.compaction.strategy import Strategy

if TYPE_CHECKING:
    from ullage.core.compaction.situation import Situation


def plan(_: Situation) -> Script:
    """Return no edits."""
    return Script()


STRATEGY: Final = Strategy("native", plan, drops=False)
