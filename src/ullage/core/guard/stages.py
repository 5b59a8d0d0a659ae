"""The steps of a request on its way: read and repair, replay, measure, compact, check.

`core.guard` (before the send) and `core.recovery` (after a refusal) are made of them. Each step
that needs the outside yields a need. It decides neither when to compact nor to what size.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, cast

from ullage.core.compaction import laws
from ullage.core.compaction import pins as pinned
from ullage.core.compaction.checkpoint import Checkpoint, Trigger, chain
from ullage.core.compaction.edits import Edited, Script, apply, compose
from ullage.core.compaction.plan import Asking, Order, Outcome, compact, recorded
from ullage.core.errors import ConfigurationError, ContextTooLargeError
from ullage.core.guard.conversation import Conversation
from ullage.core.guard.effort import PROGRESS
from ullage.core.guard.events import (
    Compacted,
    CompactionFailed,
    Event,
    Notice,
    Repaired,
    WindowCramped,
)
from ullage.core.guard.learning import show
from ullage.core.guard.request import (
    Need,
    NeedKeep,
    NeedLoad,
    NeedRecall,
    NeedSave,
    NeedServerCount,
    NeedSummaries,
    NeedSummariserWindow,
    Prepared,
    Preparing,
    Request,
    Setup,
)
from ullage.core.tokens.budget import Cramped, cramped
from ullage.core.tokens.calibration import ENOUGH, SANE
from ullage.core.tokens.counting import Anchor, Measure, Scale, measure
from ullage.core.tokens.gauge import assess

if TYPE_CHECKING:
    from ullage.core.compaction.policy import Policy, StrategyName
    from ullage.core.messages.transcript import Raw, Transcript
    from ullage.core.tokens.window import Window

ROUNDS: Final = 3
"""How often a plan made on estimates is tightened when the server's count is over the target."""

DRIFT: Final = 0.10
"""Half-width of the band around a ratio taken from one server count: sessions of 40 chunks counted
by one ratio were off by at most 6.4 % at p95 (docs/design/counting.md)."""


@dataclass(slots=True)
class State:
    """The request on its way: the repaired history, the script so far, and its result.

    `pins` and `sections` are the request's, by positions in the repaired history, and `wanted` has
    the caller's own position of each pin; `counted` tells whether the server counts requests,
    `surplus` by how many tokens knowledge is over its share, `short` that a compaction was due
    and its target is out of reach.
    """

    history: Transcript
    pins: frozenset[int]
    prefixes: tuple[str, ...]
    script: Script
    edited: Edited
    measured: Measure
    window: Window
    conversation: Conversation
    replayed: Checkpoint | None = None
    generation: int = 0
    outcome: Outcome | None = None
    checkpoint: Checkpoint | None = None
    counted: bool = False
    sections: dict[int, str] = field(default_factory=dict)
    surplus: int = 0
    wanted: dict[int, int] = field(default_factory=dict)
    short: bool = False
    ahead: bool = False
    events: list[Event] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Due:
    """A compaction that is due: to how many tokens of the model, how, and why.

    `keep` and `widen` bound the tail in messages; `alone` lets knowledge down to its share and
    touches nothing else, `media` strips media and nothing else. One that `waits` is not made
    where its target is out of reach, as long as the request fits.
    """

    target: int
    strategies: tuple[StrategyName, ...]
    trigger: Trigger
    keep: int | None = None
    widen: bool = False
    alone: bool = False
    media: bool = False
    waits: bool = False


def scaled(reported: int, measured: Measure) -> Scale:
    """Return the scale that the server's count of what was measured gives."""
    ratio = reported / max(measured.raw().best, 1)
    return Scale(ratio * (1 - DRIFT), ratio, ratio * (1 + DRIFT))


def check(request: Request) -> None:
    """Raise ConfigurationError for pins, sections and max_tokens that cannot be."""
    size = len(request.messages) if hasattr(request.messages, "__len__") else 0
    pinned.read_pins(request.pins, size)
    if request.sections:
        from ullage.core.tokens import sections

        sections.checked(request.sections, size)
    asked = request.max_tokens
    if asked is not None and (type(asked) is not int or asked < 1):
        raise ConfigurationError(f"max_tokens must be a positive number of tokens, not {asked!r}")


def begin(setup: Setup, request: Request, window: Window) -> Generator[Need, Any, State]:
    """Read, repair, find the known prefix, re-apply its checkpoint, measure."""
    arrived = _read(setup, request.messages)
    mended = laws.repair(arrived, setup.codec) if setup.repairs else laws.unrepaired(arrived)
    history = _read(setup, mended.messages) if mended.repairs else arrived
    prefixes = chain(history)
    known: Checkpoint | None = yield NeedLoad(setup.scope, prefixes[::-1])
    pinned.check_mended(request.pins, mended, request.messages)
    pins = mended.moved(request.pins)
    generation = known.generation + 1 if known is not None else 0
    if known is not None and known.script.touches(pins):
        known = None  # pinned since: what the checkpoint left out comes back, and is planned anew
    script = known.script if known is not None else Script()
    edited = apply(history, script, setup.codec)
    measured = measure(edited.transcript, setup.meter, system=request.system, tools=request.tools)
    scope = f"{setup.scope}|{setup.model}"
    recalled: Conversation | None = yield NeedRecall(scope, prefixes[::-1])
    if recalled is not None:
        measured = recalled.applied(measured, edited.transcript)
    asked, bound = history.request(), window.input_tokens or 0
    conversation = recalled or Conversation(scope, "")
    conversation = replace(
        conversation,
        prefix=prefixes[-1] if prefixes else "",
        effort=conversation.effort.at(prefixes[asked] if asked is not None else "", bound),
    )
    state = State(history, pins, prefixes, script, edited, measured, window, conversation, known)
    state.generation = generation
    state.wanted = {now: old for now, old in enumerate(mended.origin) if old in request.pins}
    if request.sections:
        state.sections = {
            new: request.sections[old]
            for new, old in enumerate(mended.origin)
            if old is not None and old in request.sections
        }
    if mended.repairs:
        state.events.append(Repaired(mended.repairs))
    if _matters(setup, request, state):
        state.measured = yield from _server_count(request, state)
    return state


def replayed(setup: Setup, request: Request) -> Generator[Need, Any, Checkpoint | None]:
    """Return the checkpoint that would be re-applied to a request, or None."""
    arrived = setup.codec.read(request.messages)
    mended = laws.repair(arrived, setup.codec) if setup.repairs else laws.unrepaired(arrived)
    history = setup.codec.read(mended.messages) if mended.repairs else arrived
    known: Checkpoint | None = yield NeedLoad(setup.scope, chain(history)[::-1])
    return known


def _read(setup: Setup, messages: Sequence[Raw]) -> Transcript:
    """Read messages under the rules of the setup; what other rules made of them is forgotten."""
    found = setup.codec.read(messages)
    if not setup.loops:
        return found
    return replace(found, rules=replace(found.rules, loops=True), memo={})


def _matters(setup: Setup, request: Request, state: State) -> bool:
    """Tell whether an estimate is so near to acting on something that a real count is wanted.

    Where the last report carries the size, that is: whether its two edges call for two things.
    """
    bound = state.window.input_tokens
    if setup.meter.basis == "exact" or bound is None:
        return False
    count, tier = state.measured.count(), setup.policy.thresholds.tier
    asked, total = request.max_tokens or 0, state.window.total_tokens or bound
    over = count.high + asked > total
    if state.measured.anchor is not None:
        return tier(count.low / bound) != tier(count.high / bound) or over != (
            count.low + asked > total
        )
    return count.high >= setup.policy.thresholds.lowest * bound or over


def _server_count(request: Request, state: State) -> Generator[Need, Any, Measure]:
    """Return the measure with the server's own count of the whole, where it gives one."""
    reported: int | None = yield _counting(request, state.edited.transcript)
    if reported is None:
        return state.measured
    state.counted = True
    return state.measured.told(reported).corrected(Anchor(reported, state.measured.raw()), DRIFT)


def _counting(request: Request, sent: Transcript) -> NeedServerCount:
    system = request.system if request.apart is None else request.apart
    return NeedServerCount(list(sent.raws), request.tools, system, sent.rules.dialect)


def _informed(request: Request, state: State) -> Generator[Need, Any, Measure]:
    """Return the measure by the server's word: its count, else what it reported last.

    What it reports settles little where the estimate agrees with it: then it stays as it is.
    """
    if state.measured.count().basis == "exact":
        return state.measured
    if not state.counted:
        state.measured = yield from _server_count(request, state)
    measured, anchor = state.measured, state.measured.anchor
    if anchor is None or (state.counted and measured.rest is None and not request.tools):
        return measured
    if state.counted:
        return (yield from _parted(request, state, measured, anchor))
    expected = replace(measured, anchor=None).count()
    since = measured.count().tokens - anchor.tokens
    if expected.low <= anchor.tokens + since <= expected.high:
        return measured
    return measured.corrected(anchor, DRIFT)


def _parted(
    request: Request, state: State, measured: Measure, anchor: Anchor
) -> Generator[Need, Any, Measure]:
    """Tell messages and the rest apart by a second count: of the current request alone."""
    sent = state.edited.transcript
    least = sorted(laws.pinned(sent.messages) | {i for i in (sent.request(),) if i is not None})
    few = replace(sent, raws=tuple(sent.raws[i] for i in least), messages=(), memo={})
    sizes = measured.sizes
    grown = measured.total.best - sum(sizes[i].best for i in least)
    reported: int | None = yield _counting(request, few)
    slope = (anchor.tokens - reported) / grown if reported is not None and grown > 0 else 0.0
    sane = grown >= ENOUGH and SANE[0] <= slope <= SANE[1]
    return measured.parted(anchor, slope, DRIFT) if sane else measured


def min_output(policy: Policy, total: int) -> int:
    """Return how low `max_tokens` may be clamped under a window of `total` tokens."""
    return policy.min_output if policy.min_output is not None else min(1024, total // 8)


def room_needed(policy: Policy, request: Request, total: int) -> int:
    """Return the tokens that an answer needs, at the least, under a window of `total` tokens."""
    least = min_output(policy, total)
    return least if request.max_tokens is None else min(request.max_tokens, least)


def _fits(setup: Setup, request: Request, state: State) -> bool:
    """Tell whether the request fits as it is, with room for the answer that it asks for.

    An answer of any length, or a very long one, gets what is above the critical pressure.
    """
    high, window = state.measured.count().high, state.window
    total, bound = window.total_tokens, window.input_tokens
    spare = int((1 - setup.policy.thresholds.critical) * (total or 0))
    room = max(min_output(setup.policy, total or 0), spare)
    if total is not None and high + min(request.max_tokens or room, room) > total:
        return False
    return bound is None or high < bound


def run(setup: Setup, request: Request, state: State, due: Due) -> Generator[Need, Any, None]:
    """Compact what the state holds, tighten by the server's count, and store the checkpoint.

    What is not smaller by the same measure is thrown away. A compaction that may wait, and does
    not reach its target, is not made as long as the request fits: it would be due again at once.
    """
    bound = state.window.input_tokens or due.target * 2
    state.measured = yield from _informed(request, state)
    asks = setup.summariser and "summarise_middle" in due.strategies
    room: int | None = (yield NeedSummariserWindow()) if asks else None
    base, was = state.edited, state.measured
    fits = due.waits and not state.surplus and _fits(setup, request, state)
    outcome = yield from _tightened(
        setup, request, state, _order(setup, state, due, room), fits=fits
    )
    state.short = due.waits and not outcome.reached
    if outcome.changed:
        outcome = _compared(outcome, was, state, due)
    if not outcome.changed:
        state.edited, state.measured = base, was
    # counted alike: before it a report may carry the size, after it none does
    shrunk = was.raw().best, state.measured.raw().best
    waits = outcome.reason == "would_not_last"
    effort = state.conversation.effort
    effort = effort if waits else effort.after(*shrunk, setup.now)
    state.conversation = replace(state.conversation, effort=effort, cut=False)
    if not outcome.changed:
        state.events.append(failed(due, _why(outcome, state)))
        return
    planned = recorded(
        state.history,
        compose(state.script, base, outcome.script),
        outcome,
        scope=setup.scope,
        trigger=request.trigger or due.trigger,
        policy=setup.policy.identity,
        generation=state.generation,
        bound=bound,
        window=f"{bound:,} tokens, {state.window.said_by()}",
    )
    yield from _keep(setup, state, planned, outcome)
    state.events.append(Compacted(cast("Checkpoint", state.checkpoint), outcome.reached))


def _order(setup: Setup, state: State, due: Due, room: int | None) -> Order:
    """Return what a compaction shall do; `room` is the summariser's window."""
    bound, policy = state.window.input_tokens or due.target * 2, setup.policy
    looked_up = {index for index, name in state.sections.items() if name == "knowledge"}
    return Order(
        target=due.target,
        tail=min(policy.tail_tokens, int(policy.tail_share * bound)),
        strategies=due.strategies,
        pins=_now(state.edited, state.pins),
        summariser=setup.summariser,
        knowledge=_now(state.edited, looked_up),
        surplus=state.surplus,
        alone=due.alone,
        keep=due.keep,
        widen=due.widen,
        carry=policy.carry_share,
        traits=policy.results,
        window=room,
        named=setup.keeps,
        media=due.media,
        tries=not (state.script or due.media or due.alone) and _is_beyond(state),
    )


def _is_beyond(state: State) -> bool:
    """Tell whether the request is over the window."""
    bound = state.window.input_tokens
    return bound is not None and state.measured.count().high >= bound


def _compared(outcome: Outcome, was: Measure, state: State, due: Due) -> Outcome:
    """Return the outcome, or that it came to nothing: sizes are compared as both were counted."""
    before, after = was.count(), state.measured.count()
    if after.basis != "server":
        before = replace(was, anchor=None).count()
        outcome = replace(outcome, before=before)
    if after.tokens >= before.tokens:
        return replace(outcome, script=Script(), reached=False, reason="would_inflate")
    bound = state.window.input_tokens
    waits = due.waits and not state.surplus and not outcome.reached
    inside = bound is not None and was.count().high < bound
    if waits and inside and after.tokens > before.tokens * (1 - PROGRESS):
        return replace(outcome, script=Script(), reason="would_not_last")
    return outcome


def _keep(
    setup: Setup, state: State, planned: Checkpoint, outcome: Outcome
) -> Generator[Need, Any, None]:
    """Store originals and checkpoint; of two plans for one history the stored one holds."""
    if outcome.originals:
        yield NeedKeep(outcome.originals)
    kept: Checkpoint = yield NeedSave(planned)
    if state.script or kept.script != planned.script:  # what later requests replay, to the byte
        same = state.measured.anchor if kept.script == planned.script else None
        state.edited = apply(state.history, kept.script, setup.codec)
        measured = state.measured.of(state.edited.transcript, setup.meter)
        state.measured = replace(measured, anchor=same)
    state.script, state.outcome, state.checkpoint = kept.script, outcome, kept


def failed(due: Due, reason: str) -> CompactionFailed:
    """Return the event of a compaction that was due and did nothing."""
    return CompactionFailed(reason, "+".join(due.strategies), due.trigger)


def _why(outcome: Outcome, state: State) -> str:
    """Return why nothing was changed, with the numbers or the law."""
    reason: str = outcome.reason or "nothing_to_compact"
    if outcome.violations:
        return f"{reason}: {outcome.violations[0].law}: {outcome.violations[0].detail}"
    return f"{reason}: {immovable(state)}" if reason == "cannot_compact" else reason


def _now(edited: Edited, positions: Collection[int]) -> frozenset[int]:
    """Return where messages at these positions of the history stand now."""
    if not positions:
        return frozenset()
    return frozenset(new for new, old in enumerate(edited.origin) if old in positions)


def _tightened(
    setup: Setup, request: Request, state: State, order: Order, *, fits: bool
) -> Generator[Need, Any, Outcome]:
    """Return the outcome that meets the target by the best count there is; updates the state.

    Where the request `fits` as it is, an outcome that does not meet it is none.
    """
    wanted, measured, before = order.target, state.measured, state.edited
    meter = replace(setup.meter, scale=measured.scale)
    outcome = yield from _answered(compact(before.transcript, measured, meter, setup.codec, order))
    counted, left = state.counted, ROUNDS
    while outcome.changed and not (fits and not outcome.reached):
        state.edited = outcome.edited
        state.measured = measured.of(outcome.edited.transcript, meter)
        if not counted:
            break
        state.measured = yield from _server_count(request, state)
        after = state.measured.count()
        outcome = replace(outcome, after=after, reached=after.high <= wanted)
        if outcome.reached or outcome.reason is not None or not left:
            break
        left -= 1
        order = replace(order, target=order.target * wanted // after.high)
        again = yield from _answered(
            compact(before.transcript, measured, meter, setup.codec, order)
        )
        if again.script == outcome.script:
            break
        outcome = again
    if fits and outcome.changed and not outcome.reached:
        return replace(outcome, script=Script(), reason="would_not_last")
    return outcome


def _answered(asking: Asking) -> Generator[Need, Any, Outcome]:
    """Run a compaction, turning its questions into needs."""
    try:
        questions = next(asking)
        while True:
            questions = asking.send((yield NeedSummaries(questions)))
    except StopIteration as done:
        outcome: Outcome = done.value
        return outcome


def finish(setup: Setup, request: Request, state: State) -> Preparing:
    """Check against the window, clamp the output, and put the result together.

    Nothing is refused or lowered by an estimate that the server's own count could correct.
    """
    count, bound = state.measured.count(), state.window.input_tokens
    beyond = _is_beyond(state)
    unsure = state.measured.anchor is None and count.basis != "exact"
    if unsure and (beyond or _over(request, state)):
        state.measured = yield from _server_count(request, state)
        count = state.measured.count()
    found = assess(count, state.window, thresholds=setup.policy.thresholds)
    made = state.checkpoint or state.replayed
    tight = _cramped(setup, state) if state.short or beyond else None
    conversation, told = show(setup, made, state.conversation, found, "prepared")
    events = [*state.events, *told]
    if tight is not None and conversation.cramped != tight.bound:
        events.append(WindowCramped(tight.sentence()))
        conversation = replace(conversation, cramped=tight.bound)
    refuses = setup.refuses and (state.window.proven or setup.strict)
    if bound is not None and count.high >= bound and refuses:
        raise ContextTooLargeError(
            f"{count.high:,} tokens ({count.basis}) do not fit into {bound:,} "
            f"({state.window.said_by()}): {immovable(state)}",
            tokens=count.high,
            bound=bound,
        )
    given = _given(setup, request, state)
    if given != request.max_tokens:
        events.append(
            Notice(
                f"max_tokens lowered from {request.max_tokens:,} to {given:,}: {count.high:,} of "
                f"{state.window.total_tokens:,} tokens are taken"
            )
        )
    return Prepared(
        messages=list(state.edited.transcript.raws),
        max_tokens=given,
        window=state.window,
        sent=state.edited.transcript,
        measured=state.measured,
        count=count,
        assessment=found,
        conversation=conversation,
        outcome=state.outcome,
        checkpoint=state.checkpoint,
        replayed=state.replayed,
        ahead=state.ahead,
        cramped=tight,
        events=tuple(events),
    )


def _over(request: Request, state: State) -> bool:
    """Tell whether the output that was asked for would be lowered."""
    total, asked = state.window.total_tokens, request.max_tokens
    if total is None or asked is None:
        return False
    return state.measured.count().high + asked > total


def _given(setup: Setup, request: Request, state: State) -> int | None:
    """Return the output to ask for: lowered to the room that is left.

    It goes below the least that is of use only as far as there is surely no more room.
    """
    asked, total = request.max_tokens, state.window.total_tokens
    if asked is None or total is None or not _over(request, state):
        return asked
    count = state.measured.count()
    least = min(asked, min_output(setup.policy, total))
    if not state.window.proven:
        return max(total - count.high, least)
    proven = max(total - count.low, 1)
    return max(total - count.high, min(least, proven))


def _cramped(setup: Setup, state: State) -> Cramped | None:
    """Return that the window is too small for what must stay, where no rung can help that."""
    bound, rungs = state.window.input_tokens, setup.policy.rungs
    if bound is None or not rungs:
        return None
    share, measured = max(rung.target for rung in rungs), state.measured
    if measured.count().tokens <= share * bound:
        return None
    transcript, sizes = state.edited.transcript, measured.sizes
    operator = laws.pinned(transcript.messages)
    always = {i for i in (transcript.task(), transcript.request()) if i is not None}
    stays = operator | always | _now(state.edited, state.pins)

    def taken(positions: Collection[int]) -> int:
        return round(measured.scale.best * sum(sizes[i].best for i in positions))

    outside = measured.outside().best
    return cramped(outside + taken(stays), outside + taken(operator), bound, share)


def immovable(state: State) -> str:
    """Say what takes the room that nothing could free, and what to do."""
    sizes: Sequence[int] = state.measured.count().by_message
    fixed = state.measured.outside().best
    named = [f"system prompt, tools and framing outside the list {fixed:,} tokens"]
    if sizes:
        largest = max(range(len(sizes)), key=sizes.__getitem__)
        role = state.edited.transcript.messages[largest].role
        named.append(
            f"the largest message is {role} at position {largest} with {sizes[largest]:,} tokens"
        )
    kept = {
        state.wanted[old]: size
        for old, size in zip(state.edited.origin, sizes, strict=True)
        if old in state.wanted
    }
    if kept:
        named.append(f"pinned, and so verbatim, are messages {pinned.list_sizes(kept)}")
    advice = "Shorten or unpin that" if kept else "Shorten that"
    return f"{'; '.join(named)}. {advice}, raise the window, or allow compaction."
