"""The beginning of a new session: one block for a whole earlier session, and its last messages.

Facts are found by rule; prose comes from a summariser if one is given. The replaced messages can be
read back by their name. Like `plan.compact` it is a generator; it starts no session.
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
"""The heading for the last messages of a session when the next session is handed over in turn."""

GOAL_SHARE: Final = 12
"""The first request may take at most a twelfth of the room."""

GOAL_MOST: Final = 4_000
"""Characters of a goal that is carried over."""

SHARE: Final = 3
"""A third of the room goes to the last messages verbatim; the rest is the block's."""


@dataclass(frozen=True, slots=True)
class Handover:
    """The text at the beginning of a new session; `originals` has the replaced messages, by name.

    `originals` is empty if they are too long to be kept again (`HandoverOrder.kept`).

    `reason` says why no model wrote the summary, None if one did; `written` is its record.
    """

    text: str
    messages: int
    originals: Mapping[str, str]
    reason: str | None
    written: Written | None = None


@dataclass(frozen=True, slots=True)
class HandoverOrder:
    """The order of a handover: in `tokens`, with a `summariser` that has this `window`.

    `kept` is the most characters of history to keep with the text, None for all. A longer history
    is not kept, and its content is searched in the old session.
    """

    tokens: int
    count: Callable[[str], int]
    summariser: bool = False
    window: int | None = None
    kept: int | None = None


def hand_over(
    transcript: Transcript, order: HandoverOrder
) -> Generator[tuple[SummaryRequest, ...], Sequence[Answer | None], Handover]:
    """Return the text for a whole history; yields requests for a summariser."""
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
    """Return the summary of a model, None if there is no summariser."""
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
    """Return a person's first request in at most `tokens`, () if nobody asked."""
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
