"""The fifth stage: make the request smaller, and store the result as a checkpoint.

It tightens a plan by the server's count, and discards a result that is not smaller by the same
measure. It decides neither when to compact nor to what size. The planner is loaded on first use,
because most requests fit.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from ullage.core.compaction.aside import find_aside, read_aside
from ullage.core.compaction.checkpoint import Checkpoint
from ullage.core.compaction.edits import Script, apply, compose
from ullage.core.compaction.faults import find_recent_faults, list_faulted
from ullage.core.compaction.strategies import names, wants_prose
from ullage.core.facts.sheet import UNKNOWN
from ullage.core.guard.effort import PROGRESS
from ullage.core.guard.events import (
    Compacted,
    CompactionFailed,
    CompactionFault,
    Event,
    Notice,
    Repaired,
    SummaryFailed,
)
from ullage.core.guard.request import (
    Need,
    NeedKeep,
    NeedNative,
    NeedSave,
    NeedSummaries,
    NeedSummariserWindow,
)
from ullage.core.guard.stages.decide import Due, review_last
from ullage.core.guard.stages.measure import Measured, ask_server, explain_immovable, measure_surely
from ullage.core.guard.stages.room import has_room
from ullage.core.summary.flaws import explain_written
from ullage.core.tokens.budget import SOON
from ullage.core.tokens.counting import text_size

if TYPE_CHECKING:
    from ullage.core.compaction.plan import Order, Outcome
    from ullage.core.guard.conversation import Conversation
    from ullage.core.guard.request import Request, Setup
    from ullage.core.guard.stages.replay import Replayed
    from ullage.core.messages.transcript import DialectName
    from ullage.core.summary.question import Answer, SummaryRequest
    from ullage.core.tokens.counting import Measure

Result = TypeVar("Result")

ROUNDS: Final = 3
"""How often a plan made on estimates is tightened if the server's count is over the target."""


@dataclass(frozen=True, slots=True)
class Made:
    """The request to send, after compaction or as it was.

    `outcome` and `checkpoint` are those of a compaction that changed something. `is_short` says
    that a compaction was due and could not reach its target.
    """

    measured: Measured
    conversation: Conversation
    outcome: Outcome | None = None
    checkpoint: Checkpoint | None = None
    is_short: bool = False
    events: tuple[Event, ...] = ()


def leave(measured: Measured) -> Made:
    """Return the measured request as it is."""
    replayed = measured.replayed
    repairs = replayed.read.repairs
    mended = (Repaired(repairs),) if repairs else ()
    faults = (CompactionFault(*fault) for fault in replayed.faults)
    return Made(measured, replayed.conversation, events=(*mended, *faults))


def compact_if_allowed(
    setup: Setup, request: Request, measured: Measured, due: Due
) -> Generator[Need, Any, Made]:
    """Compact, unless that was fruitless too often in this turn.

    A request that does not fit at all is compacted anyway, if anything was added since the last
    try.
    """
    effort, whole = measured.replayed.conversation.effort, measured.replayed.read.whole
    if effort.allows(setup.now) or (measured.is_beyond and effort.has_news(whole)):
        return (yield from compact_request(setup, request, measured, due))
    tried = f"breaker_open: {effort.fruitless} compactions in this turn freed next to nothing"
    made = leave(measured)
    failed = report_failure(due, f"{tried}; the next try is in a minute")
    return replace(made, events=(*made.events, failed))


def compact_request(
    setup: Setup, request: Request, measured: Measured, due: Due
) -> Generator[Need, Any, Made]:
    """Compact the measured request, tighten it by the server's count, and store the checkpoint.

    A result that is not smaller by the same measure is discarded. A compaction that may wait, and
    does not reach its target, is not made while the request fits: it would be due again at once.
    """
    was = yield from measure_surely(request, measured)
    asks = setup.summariser and any(map(wants_prose, due.strategies))
    room: int | None = (yield NeedSummariserWindow()) if asks else None
    fits = due.waits and not due.surplus and has_room(setup, request, was)
    order = _order(setup, was, due, room)
    native = NATIVE in due.strategies
    found = (yield from _compact_natively(setup, request, was, order)) if native else None
    if found is None:
        soon = is_soon(was.replayed, due) and not asks
        found = yield from _find_outcome(setup, request, was, order, fits=fits, soon=soon)
    outcome, now = found
    untold = map(SummaryFailed, explain_written(outcome.written))
    flaws = (*map(Notice, outcome.flaws), *untold)
    short = due.waits and not outcome.reached
    if outcome.changed:
        outcome = _compare(outcome, was, now, due)
    now = now if outcome.changed else was
    made = leave(now)
    conversation = made.conversation
    if outcome.reason != "would_not_last":
        # both by the counter: the size before may come from a report, the size after cannot
        shrunk = was.size.raw().best, now.size.raw().best
        effort = conversation.effort.after(*shrunk, setup.now, was.replayed.read.whole)
        conversation = replace(conversation, effort=effort)
    made = replace(made, conversation=conversation, is_short=short, events=(*made.events, *flaws))
    if not outcome.changed:
        failed = report_failure(due, _explain(outcome, was))
        return replace(made, events=(*made.events, failed))
    planned = _record(setup, request, was, due, outcome)
    return (yield from _store(setup, made, planned, outcome))


NATIVE: Final = "native"
"""The strategy that asks the provider."""


def _compact_natively(
    setup: Setup, request: Request, was: Measured, order: Order
) -> Generator[Need, Any, tuple[Outcome, Measured] | None]:
    """Return the outcome of a compaction by the provider, or None if it makes none that fits."""
    from ullage.core.compaction.native import compact_natively

    meter = replace(setup.meter, scale=was.size.scale)
    asking = compact_natively(was.edited.transcript, was.size, meter, setup.codec, order)
    try:
        wanted = next(asking)
        system = request.system if request.apart is None else request.apart
        dialect = was.edited.transcript.rules.dialect
        made = yield NeedNative(list(wanted.messages), request.tools, system, dialect)
        asking.send(made)
    except StopIteration as done:
        outcome: Outcome | None = done.value
        if outcome is None:
            return None
        return outcome, replace(was, edited=outcome.edited, size=_resize(was.size, outcome))
    raise AssertionError("one question is asked")  # pragma: no cover


def report_failure(due: Due, reason: str) -> CompactionFailed:
    """Return the event of a compaction that was due and did nothing."""
    known = (*(strategy.name for strategy in due.first), *names(due.strategies))
    return CompactionFailed(reason, "+".join(known), due.trigger)


def _explain(outcome: Outcome, was: Measured) -> str:
    """Return why nothing was changed, with the numbers or the law."""
    reason: str = outcome.reason or "nothing_to_compact"
    if outcome.violations:
        return f"{reason}: {outcome.violations[0].law}: {outcome.violations[0].detail}"
    return f"{reason}: {explain_immovable(was)}" if reason == "cannot_compact" else reason


def _find_bound(was: Measured, due: Due) -> int:
    """Return the window in tokens; an unknown one counts as twice the target."""
    return was.window.working_tokens or due.target * 2


def _order(setup: Setup, was: Measured, due: Due, room: int | None) -> Order:
    """Return the order for a compaction; `room` is the summariser's window."""
    from ullage.core.compaction.plan import Order
    from ullage.core.compaction.strategies.knowledge import leave_out

    policy, read, known = setup.policy, was.replayed.read, was.replayed.checkpoint
    looked_up = {index for index, name in read.sections.items() if name == "knowledge"}
    surplus = ceil(due.surplus / was.size.scale.high)
    looked_up_first = leave_out(was.places(looked_up), surplus)
    history = read.history
    faulted = list_faulted(history, find_recent_faults(history, was.replayed.script))
    return Order(
        target=due.target,
        tail=min(policy.tail_tokens, int(policy.tail_share * _find_bound(was, due))),
        strategies=tuple(s for s in due.strategies if s != NATIVE),
        pins=was.places(read.wanted),
        faulted=was.places(faulted),
        summariser=setup.summariser,
        first=(looked_up_first, *due.first),
        keep=due.keep,
        carry=policy.carry_share,
        traits=policy.results,
        window=room,
        named=setup.keeps,
        tries=not was.replayed.script and bool(due.strategies) and was.is_beyond,
        most=due.most,
        aside=UNKNOWN if known is None else read_aside(known.aside),
        beyond=was.is_beyond,
    )


DEEPER: Final = 0.7
"""Share of its target that a compaction aims at if the last one was too recent."""


def is_soon(replayed: Replayed, due: Due) -> bool:
    """Tell whether the last compaction was so few answers ago that the policy runs in circles.

    A compaction by hand does not count, and neither does one for a section over its share.
    """
    known = replayed.checkpoint
    if known is None or known.trigger == "manual" or due.surplus:
        return False
    behind = replayed.read.history.messages[known.planned_size :]
    return sum(message.role == "assistant" for message in behind) <= SOON


def _find_outcome(
    setup: Setup, request: Request, was: Measured, order: Order, *, fits: bool, soon: bool
) -> Generator[Need, Any, tuple[Outcome, Measured]]:
    """Return the outcome of an order; one that comes too soon goes deeper, if it can.

    If a summary is asked for, the target stays, because a summary is not paid for twice.
    """
    if soon:
        deeper = replace(order, target=int(order.target * DEEPER))
        found = yield from _tighten(setup, request, was, deeper, fits=fits)
        if found[0].changed and found[0].reached:
            return found
    found = yield from _tighten(setup, request, was, order, fits=fits)
    return (yield from _cut_block(setup, request, was, order, found))


def _cut_block(
    setup: Setup, request: Request, was: Measured, order: Order, found: tuple[Outcome, Measured]
) -> Generator[Need, Any, tuple[Outcome, Measured]]:
    """Return an outcome with a smaller block, if the block alone keeps the request from fitting.

    No summary is asked for, and only strategies of the policy are used.
    """
    outcome, bound = found[0], was.window.likely_tokens
    if bound is None or not outcome.block or outcome.after.high < bound:
        return found
    size = ceil(text_size(outcome.block, setup.meter) * was.size.scale.high)
    room = bound - 1 - (outcome.after.high - size)
    unpaid = tuple(strategy for strategy in order.strategies if not wants_prose(strategy))
    if room < 1 or not unpaid:
        return found
    carry = min(order.carry, room / order.target)
    small = replace(order, carry=carry, strategies=unpaid, summariser=False, most=0)
    cut = yield from _tighten(setup, request, was, small, fits=False)
    return cut if cut[0].block and cut[0].after.high < bound else found


def _tighten(
    setup: Setup, request: Request, was: Measured, order: Order, *, fits: bool
) -> Generator[Need, Any, tuple[Outcome, Measured]]:
    """Return the outcome that meets the target by the best available count, and its measure.

    If the request `fits` as it is, an outcome that misses the target is discarded.
    """
    from ullage.core.compaction.plan import compact

    wanted, size, before = order.target, was.size, was.edited.transcript
    meter = replace(setup.meter, scale=size.scale)
    outcome = yield from ask_summaries(
        compact(before, size, meter, setup.codec, order), before.rules.dialect
    )
    if outcome.target > wanted:  # raised for rules, which would have been lost
        wanted = order.most
    now, left = was, ROUNDS
    while outcome.changed and not (fits and not outcome.reached):
        now = replace(now, edited=outcome.edited, size=_resize(now.size, outcome))
        if not was.is_counted:
            break
        now = yield from ask_server(request, now)
        after = now.count
        outcome = replace(outcome, after=after, reached=after.high <= wanted)
        if outcome.reached or outcome.reason is not None or not left:
            break
        left -= 1
        target = min(order.target * wanted // after.high, order.target - (after.high - wanted))
        order = _keep_prose(replace(order, target=max(target, 1)), outcome)
        again = yield from ask_summaries(
            compact(before, size, meter, setup.codec, order), before.rules.dialect
        )
        if again.script == outcome.script:
            break
        outcome = again
    if fits and outcome.changed and not outcome.reached:
        outcome = replace(outcome, script=Script(), reason="would_not_last")
    return outcome, now


def _keep_prose(order: Order, outcome: Outcome) -> Order:
    """Return an order that reuses a summary already made: it is not paid for twice."""
    from ullage.core.compaction.plan import PaidProse

    if outcome.written is None or not outcome.written.requests or order.paid is not None:
        return order
    return replace(order, paid=PaidProse(outcome.written, outcome.room))


def _resize(size: Measure, outcome: Outcome) -> Measure:
    """Return the measure of an outcome, counted when it was made, with the ratios of `size`."""
    made = cast("Measure", outcome.after.measured)
    return replace(size, total=made.total, messages=made.messages, key=made.key, anchor=None)


def ask_summaries(
    asking: Generator[tuple[SummaryRequest, ...], Sequence[Answer | None], Result],
    dialect: DialectName,
) -> Generator[Need, Any, Result]:
    """Run a generator that asks for summaries, turning its questions into needs."""
    try:
        questions = next(asking)
        while True:
            questions = asking.send((yield NeedSummaries(questions, dialect)))
    except StopIteration as done:
        outcome: Result = done.value
        return outcome


def _compare(outcome: Outcome, was: Measured, now: Measured, due: Due) -> Outcome:
    """Return the outcome, or a failure if it is not smaller by the same count."""
    before, after = was.count, now.count
    if after.basis != "server":
        before = replace(was.size, anchor=None).count()
        outcome = replace(outcome, before=before)
    if after.tokens >= before.tokens:
        return replace(outcome, script=Script(), reached=False, reason="would_inflate")
    waits = due.waits and not due.surplus and not outcome.reached
    inside = was.window.input_tokens is not None and not was.is_beyond
    if waits and inside and after.tokens > before.tokens * (1 - PROGRESS):
        return replace(outcome, script=Script(), reason="would_not_last")
    return outcome


def _record(
    setup: Setup, request: Request, was: Measured, due: Due, outcome: Outcome
) -> Checkpoint:
    """Return the checkpoint of an outcome: one script over the whole history."""
    from ullage.core.compaction.plan import make_checkpoint

    replayed, bound, past = was.replayed, _find_bound(was, due), review_last(was)
    known, carried = replayed.checkpoint, outcome.carried
    aside = known.aside if carried is None and known is not None else {}
    return make_checkpoint(
        replayed.read.history,
        compose(replayed.script, was.edited, outcome.script),
        outcome,
        scope=setup.checkpoint_scope,
        trigger=request.trigger or due.trigger,
        policy=setup.policy.identity,
        generation=replayed.generation,
        bound=bound,
        resolved=was.window.working_tokens or 0,
        room=due.room,
        raw_after=_count_raw(outcome),
        high_after=outcome.after.high,
        since=past.to_dict() if past is not None else None,
        window=f"{bound:,} tokens, {was.window.name_source()}",
        aside=aside if carried is None else find_aside(carried.facts, outcome.block),
    )


def _count_raw(outcome: Outcome) -> int:
    """Return the size after an outcome by the counter, or 0 if it was not measured."""
    measured = outcome.after.measured
    return measured.raw().best if measured is not None else 0


def _store(
    setup: Setup, made: Made, planned: Checkpoint, outcome: Outcome
) -> Generator[Need, Any, Made]:
    """Store originals and checkpoint; a plan that is already stored for this history wins."""
    if outcome.originals:
        yield NeedKeep(outcome.originals)
    kept: Checkpoint = yield NeedSave(planned)
    now, replayed = made.measured, made.measured.replayed
    if replayed.script or kept.script != planned.script:  # exactly what later requests replay
        same = now.size.anchor if kept.script == planned.script else None
        edited = apply(replayed.read.history, kept.script, setup.codec)
        size = replace(now.size.of(edited.transcript, setup.meter), anchor=same)
        now = replace(now, edited=edited, size=size)
    events = (*made.events, Compacted(kept, outcome.reached))
    return replace(made, measured=now, outcome=outcome, checkpoint=kept, events=events)
