"""A conversation handed over to a new session: what is known of it is replayed, then summarised.

It begins no session and stores nothing.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from ullage.core.compaction.handover import Handover, HandoverOrder, hand_over
from ullage.core.guard.machine import open_request
from ullage.core.guard.request import Need, NeedSummariserWindow, NeedWindow
from ullage.core.guard.stages.compact import ask_summaries

if TYPE_CHECKING:
    from ullage.core.guard.request import Request, Setup


def hand_over_request(
    setup: Setup, request: Request, tokens: int
) -> Generator[Need, Any, Handover]:
    """Return what a new session begins with, in at most `tokens`."""
    measured = yield from open_request(setup, request, NeedWindow())
    room: int | None = (yield NeedSummariserWindow()) if setup.summariser else None
    transcript = measured.edited.transcript
    order = HandoverOrder(tokens, setup.meter.counter.count, setup.summariser, room)
    return (yield from ask_summaries(hand_over(transcript, order), transcript.rules.dialect))
