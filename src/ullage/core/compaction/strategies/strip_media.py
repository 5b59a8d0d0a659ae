"""strip_media: replace images, recordings and files with one line.

For a server that refuses media, or a body that is too large in bytes. Pinned messages keep their
media: the user's request is about them. It knows no other strategy.
"""

from __future__ import annotations

from dataclasses import replace
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


def keep_newest(images: int, size: int) -> Strategy:
    """Return a strategy that keeps at most so many images and bytes of media, the newest ones."""

    def plan_oldest(situation: Situation) -> Script:
        left, room, edits = images, size, []
        for edit in reversed(plan(situation).clears):
            held = situation.transcript.messages[edit.message].parts[edit.part].media
            assert held is not None  # noqa: S101 - the plan clears media alone
            left -= held.kind == "image"
            room -= held.size or 0
            if left < 0 or room < 0:
                edits.append(edit)
        return Script.of(edits)

    return replace(STRATEGY, plan=plan_oldest)


STRATEGY: Final = Strategy("strip_media", plan, drops=False, always=True)
