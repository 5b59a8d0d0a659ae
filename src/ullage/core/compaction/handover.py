"""What a new session begins with: one block that stands for a whole session, and its last messages.

Facts are found by rule, prose is a summariser's where one is asked. What the block stands for can
be read back by its name. It is a generator as `plan.compact` is; it begins no session.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from ullage.core.compaction import block
from ullage.core.compaction.edits import reference
from ullage.core.compaction.prose import LEAST_PROSE, make_job, settle_prose
from ullage.core.compaction.situation import shorten
from ullage.core.messages.fields import json_text
from ullage.core.messages.transcript import asks, summarises
from ullage.core.search.names import SEARCH
from ullage.core.summary import request as summary
from ullage.core.summary.pieces import line, scraps

if TYPE_CHECKING:
    from ullage.core.compaction.block import Carried
    from ullage.core.messages.transcript import Message, Transcript
    from ullage.core.summary.question import Answer, SummaryRequest
    from ullage.core.summary.request import Written

LAST: Final = "Last messages:"
EARLIER: Final = "Earlier messages:"
"""What the last messages of a session become where the one behind it is handed over in turn."""

GOAL_SHARE: Final = 12
"""A twelfth of the room at most goes to what was asked for first."""

GOAL_MOST: Final = 4_000
"""Characters of a goal that is carried on."""

SHARE: Final = 3
"""A third of the room goes to the last messages as they were; the rest is the block's."""


@dataclass(frozen=True, slots=True)
class Handover:
    """The text that a new session begins with; `originals` has what it stands for, by name.

    They are empty where that is too long to be kept once more (`HandoverOrder.kept`).

    `reason` says why no model wrote the summary, None where one did; `written` how it came about.
    """

    text: str
    messages: int
    originals: Mapping[str, str]
    reason: str | None
    written: Written | None = None


@dataclass(frozen=True, slots=True)
class HandoverOrder:
    """How a session is handed over: in `tokens`, with a `summariser` of so large a `window`.

    `kept` are the most characters of history that are kept beside the text, None for all: of a
    longer one nothing is, and what it says is found in the old session.
    """

    tokens: int
    count: Callable[[str], int]
    summariser: bool = False
    window: int | None = None
    kept: int | None = None


def hand_over(
    transcript: Transcript, order: HandoverOrder
) -> Generator[tuple[SummaryRequest, ...], Sequence[Answer | None], Handover]:
    """Return what stands for a whole history; yields requests for a summariser."""
    places = [i for i, message in enumerate(transcript.messages) if not message.is_system]
    said = [transcript.messages[i] for i in places]
    whole = json_text([transcript.raws[i] for i in places], places[0])
    is_kept = order.kept is None or len(whole) <= order.kept
    originals = {reference(whole): whole} if is_kept else {}
    named = f"; recall {next(iter(originals))}" if is_kept else f"; {SEARCH} finds the rest"
    kept = block.gather(said)
    kept = replace(kept, prose=kept.prose.replace(LAST, EARLIER))
    if not kept.facts.goal:
        goal = _find_goal(said, order.tokens // GOAL_SHARE, order.count)
        kept = replace(kept, facts=replace(kept.facts, goal=goal))
    last = _quote_last(said, order.tokens // SHARE, order.count)
    room = order.tokens - order.count(last)
    written = yield from _write(said, kept, order, (room, named))
    prose = None if written is None else written.prose
    made = block.write_block(kept, room, order.count, prose=prose, named=named)
    reason: str | None = "no_summariser"
    if written is not None:
        written = settle_prose(written, made)
        reason = None if written.prose is not None else written.flaw
    texts = "\n".join(filter(None, (made.text, last)))
    return Handover(texts, len(said), originals, reason, written)


def _write(
    said: Sequence[Message], kept: Carried, order: HandoverOrder, place: tuple[int, str]
) -> Generator[tuple[SummaryRequest, ...], Sequence[Answer | None], Written | None]:
    """Return the summary of a model, None where there is none to ask."""
    if not order.summariser:
        return None
    tokens = block.find_prose_room(kept, place[0], order.count, place[1])
    if tokens < LEAST_PROSE:
        return summary.make_unasked("no_room")
    job = make_job(
        said, kept, range(len(said)), tokens=tokens, window=order.window, count=order.count
    )
    return (yield from summary.write(job))


def _find_goal(
    said: Sequence[Message], tokens: int, count: Callable[[str], int]
) -> tuple[str, ...]:
    """Return what a person asked for first in at most `tokens`; () where nobody asked."""
    asked = (" ".join(m.text.split()) for m in said if asks(m))
    goal = shorten(next(filter(None, asked), ""), tokens, count)
    return (goal[:GOAL_MOST],) if goal else ()


def _quote_last(said: Sequence[Message], tokens: int, count: Callable[[str], int]) -> str:
    """Return the last messages as quoted lines in at most `tokens`; a longer one is cut."""
    lines: list[str] = []
    left = tokens - count(LAST)
    for message in reversed(said):
        if summarises(message):
            break
        quoted = "\n".join(map(line, scraps([message])))
        short = shorten(quoted, left, count) if not lines else quoted
        left -= count(short) + 1
        if left < 0:
            break
        lines.insert(0, short)
    return "\n".join([LAST, *lines]) if lines else ""
