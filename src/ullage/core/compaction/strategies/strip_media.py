"""strip_media: images, recordings and files make way for a line that says so.

For a server that refuses them, or a body that is too large in bytes. What is pinned keeps its
media: the request of the user is about them. It knows no other strategy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ullage.core.compaction.edits import Clear, Script
from ullage.core.compaction.strategy import Strategy

if TYPE_CHECKING:
    from ullage.core.compaction.situation import Situation

MARK: Final = "[ullage: {kind} left out]"


def plan(situation: Situation) -> Script:
    """Return the clears of all media outside the pins."""
    return Script.of(
        Clear(index, position, -1, MARK.format(kind=part.kind))
        for index, message in enumerate(situation.transcript.messages)
        if index not in situation.pins
        for position, part in enumerate(message.parts)
        if part.media is not None
    )


STRATEGY: Final = Strategy("strip_media", plan, drops=False, always=True)
