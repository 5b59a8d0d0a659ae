"""knowledge: retrieved text goes before the conversation, oldest first.

The caller marks the messages that are knowledge (`sections=` of a guard). A retrieved text can be
fetched again; a conversation cannot. It knows no other strategy.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from ullage.core.compaction.edits import Clear, Drop, Edit, Script
from ullage.core.compaction.strategy import Strategy

if TYPE_CHECKING:
    from ullage.core.compaction.situation import Situation

MARK: Final = "[ullage: knowledge left out, {tokens:,} tokens]"


def leave_out(positions: frozenset[int], surplus: int = 0) -> Strategy:
    """Return the strategy that drops these messages first.

    `surplus` are the tokens over their share: they go whatever the target is.
    """
    return Strategy("knowledge", partial(plan, positions, surplus), silent=True)


def plan(positions: frozenset[int], surplus: int, situation: Situation) -> Script:
    """Return drops of single messages, and clears of results, until the target is met."""
    if not positions:
        return Script()
    over = max(situation.total - situation.target, surplus)
    alone = {unit.start for unit in situation.units if unit.stop - unit.start == 1}
    edits: list[Edit] = []
    for index in sorted(positions - situation.pins):
        if over <= 0:
            break
        if index in alone:
            edits.append(Drop(index))
            over -= situation.sizes[index]
            continue
        for position, part in enumerate(situation.transcript.messages[index].parts):
            if part.kind != "result":
                continue
            tokens = situation.tokens(index, position)
            text = situation.referring(MARK.format(tokens=tokens), part.text)
            freed = tokens - situation.count(text, index)
            if freed > 0:
                edits.append(Clear(index, position, -1, text))
                over -= freed
    return Script.of(edits)
