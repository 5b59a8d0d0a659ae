"""The handover of a conversation to a new session: replay its checkpoint, then summarise it.

This module starts no session and stores nothing.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Final

from ullage.core.compaction.handover import Handover, HandoverOrder, hand_over
from ullage.core.guard.machine import open_request
from ullage.core.guard.request import Need, NeedSummariserWindow, NeedWindow
from ullage.core.guard.stages.compact import ask_summaries

LEAST: Final = 256
"""Fewest tokens of a summary: its frame, and a rule or two."""

if TYPE_CHECKING:
    from ullage.core.guard.request import Request, Setup
    from ullage.core.guard.stages.measure import Measured


def hand_over_request(
    setup: Setup, request: Request, tokens: int, kept: int | None = None
) -> Generator[Need, Any, Handover]:
    """Return the start of a new session, in at most `tokens`.

    At most `kept` characters of history are kept with it, by default all. At least half of the
    window that instructions and tools leave free stays for the new session's work.
    """
    measured = yield from open_request(setup, request, NeedWindow())
    room: int | None = (yield NeedSummariserWindow()) if setup.summariser else None
    transcript, size, bound = measured.edited.transcript, measured.size, measured.window
    if bound.working_tokens is not None:
        left = (bound.working_tokens - _count_beside(measured)) // 2
        tokens = max(min(tokens, left), LEAST)
    tokens = size.ceiling(tokens + size.extra)
    order = HandoverOrder(tokens, setup.meter.counter.count, setup.summariser, room, kept)
    return (yield from ask_summaries(hand_over(transcript, order), transcript.rules.dialect))


def _count_beside(measured: Measured) -> int:
    """Return the tokens at the start of every request: instructions, tools and framing."""
    system = measured.edited.transcript.messages
    sizes = measured.count.by_message
    spoken = sum(tokens for message, tokens in zip(system, sizes, strict=True) if message.is_system)
    return measured.size.outside().high + spoken
