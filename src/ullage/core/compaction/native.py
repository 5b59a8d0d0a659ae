"""A compaction by the provider instead of ours: requested, inserted, proved by the laws.

The provider summarises everything before the protected tail, and its answer replaces the dropped
messages. Operator text, the task, pins and, if the provider keeps them, the user's messages stay
after it. This module calls no provider: it yields the request and receives the answer.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from ullage.core.compaction import laws
from ullage.core.compaction.binding import unbind
from ullage.core.compaction.edits import NATIVE, Insert, Script, apply
from ullage.core.compaction.plan import Outcome, make_situation
from ullage.core.messages.fields import json_text
from ullage.core.messages.transcript import asks
from ullage.core.tokens import counting

if TYPE_CHECKING:
    from ullage.core.compaction.plan import Order
    from ullage.core.messages.transcript import Codec, Raw, Transcript
    from ullage.core.tokens.counting import Measure, Meter

NAME: Final = "native"


@dataclass(frozen=True, slots=True)
class NativeRequest:
    """The request to a provider: the first messages of a history, to be compacted."""

    messages: tuple[Raw, ...]


Asking = Generator[NativeRequest, "Raw | None", "Outcome | None"]


def compact_natively(
    transcript: Transcript, measured: Measure, meter: Meter, codec: Codec, order: Order
) -> Asking:
    """Yield the provider's request; return the outcome, None if our own strategies should try."""
    start = make_situation(transcript, measured, meter, order)
    border = start.border()
    always = {i for i in (transcript.task(), transcript.request()) if i is not None}
    pins = laws.find_operator_text(transcript.messages) | always | order.pins
    stop = start.units[border - 1].stop if border else 0
    keeps = transcript.rules.keeps_requests
    gone = frozenset(
        i
        for unit in start.units[:border]
        if pins.isdisjoint(unit)
        for i in unit
        if not (keeps and asks(transcript.messages[i]))
    )
    left = (m for i, m in enumerate(transcript.messages) if i not in gone)
    if not gone or any(m.is_compaction for m in left):
        return None
    made = yield NativeRequest(transcript.raws[:stop])
    if made is None:
        return None
    place = next(i for i, m in enumerate(transcript.messages) if not m.is_system)
    written = Script(drops=gone, inserts=(Insert(place, NATIVE, json_text(made, place)),))
    script = unbind(transcript, written)
    edited = apply(transcript, script, codec)
    before = replace(measured, anchor=None).count()
    after = measured.of(edited.transcript, meter).count()
    broken = laws.prove(transcript, script, edited, pins, order.pins)
    broken += laws.prove_bound(transcript, script, edited)
    broken += laws.prove_size(before.high, after.high, order.target, reached=True)
    if broken:
        return None
    return Outcome(
        edited,
        script,
        measured.count(),
        after,
        reached=True,
        strategy=NAME,
        steps=((NAME, script),),
        was=transcript,
        edges=(start.sizes, counting.upper_edges(edited.transcript, meter)),
    )
