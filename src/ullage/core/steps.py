"""The steps of a request on its way: read and repair, replay, measure, compact, check.

`core.guard` (before the send) and `core.recovery` (after a refusal) are made of them. Each step
that needs the outside yields a need. It decides neither when to compact nor to what size.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from ullage.core import laws
from ullage.core import pins as pinned
from ullage.core.checkpoint import Checkpoint, Trigger, chain
from ullage.core.compaction import Asking, Order, Outcome, compact, recorded
from ullage.core.conversation import Conversation
from ullage.core.counting import Measure, Scale, measure
from ullage.core.edits import Edited, Script, apply, compose
from ullage.core.errors import ConfigurationError, ContextTooLargeError
from ullage.core.events import Compacted, CompactionFailed, Event, Notice, Repaired
from ullage.core.exchange import (
    Need,
    NeedKeep,
    NeedLoad,
    NeedRecall,
    NeedSave,
    NeedServerCount,
    NeedSummaries,
    NeedSummariserWindow,
    Prepared,
    Request,
    Setup,
)
from ullage.core.gauge import assess
from ullage.core.observing import show

if TYPE_CHECKING:
    from ullage.core.policies.policy import Policy, StrategyName
    from ullage.core.transcript import Raw, Transcript
    from ullage.core.window import Window

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
    `surplus` by how many tokens knowledge is over its share.
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
    ahead: bool = False
    events: list[Event] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Due:
    """A compaction that is due: to how many tokens of the model, how, and why.

    `keep` and `widen` bound the tail in messages; `alone` lets knowledge down to its share and
    touches nothing else, `media` strips media and nothing else.
    """

    target: int
    strategies: tuple[StrategyName, ...]
    trigger: Trigger
    keep: int | None = None
    widen: bool = False
    alone: bool = False
    media: bool = False


def scaled(reported: int, measured: Measure) -> Scale:
    """Return the scale that the server's count of what was measured gives."""
    ratio = reported / max(measured.raw().best, 1)
    return Scale(ratio * (1 - DRIFT), ratio, ratio * (1 + DRIFT))


def check(request: Request) -> None:
    """Raise ConfigurationError for pins, sections and max_tokens that cannot be."""
    size = len(request.messages) if hasattr(request.messages, "__len__") else 0
    pinned.read_pins(request.pins, size)
    if request.sections:
        from ullage.core import sections

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
    sent = state.edited.transcript
    system = request.system if request.apart is None else request.apart
    reported = yield NeedServerCount(list(sent.raws), request.tools, system, sent.rules.dialect)
    if reported is None:
        return state.measured
    state.counted = True
    scale = scaled(reported, state.measured)
    return replace(state.measured, scale=scale, basis="calibrated", extra=0).told(reported)


def min_output(policy: Policy, total: int) -> int:
    """Return how low `max_tokens` may be clamped under a window of `total` tokens."""
    return policy.min_output if policy.min_output is not None else min(1024, total // 8)


def run(setup: Setup, request: Request, state: State, due: Due) -> Generator[Need, Any, None]:
    """Compact what the state holds, tighten by the server's count, and store the checkpoint."""
    bound = state.window.input_tokens or due.target * 2
    policy, unshrunk, base = setup.policy, state.measured.raw().best, state.edited
    asks = setup.summariser and "summarise_middle" in due.strategies
    room: int | None = (yield NeedSummariserWindow()) if asks else None
    looked_up = {index for index, name in state.sections.items() if name == "knowledge"}
    order = Order(
        target=due.target,
        tail=min(policy.tail_tokens, int(policy.tail_share * bound)),
        strategies=due.strategies,
        pins=_now(base, state.pins),
        summariser=setup.summariser,
        knowledge=_now(base, looked_up),
        surplus=state.surplus,
        alone=due.alone,
        keep=due.keep,
        widen=due.widen,
        carry=policy.carry_share,
        traits=policy.results,
        window=room,
        named=setup.keeps,
        media=due.media,
    )
    outcome = yield from _tightened(setup, request, state, order)
    # counted alike: before it a report may carry the size, after it none does
    shrunk = unshrunk, state.measured.raw().best
    effort = state.conversation.effort.after(*shrunk, setup.now)
    state.conversation = replace(state.conversation, effort=effort, cut=False)
    if not outcome.changed:
        state.events.append(failed(due, _why(outcome, state)))
        return
    script = compose(state.script, base, outcome.script)
    planned = recorded(
        state.history,
        script,
        outcome,
        scope=setup.scope,
        trigger=request.trigger or due.trigger,
        policy=policy.identity,
        generation=state.generation,
        bound=bound,
        window=f"{bound:,} tokens, {state.window.said_by()}",
    )
    if outcome.originals:
        yield NeedKeep(outcome.originals)
    kept: Checkpoint = yield NeedSave(planned)
    if state.script or kept.script != script:  # what later requests will replay, to the byte
        same = state.measured.anchor if kept.script == script else None
        state.edited = apply(state.history, kept.script, setup.codec)
        measured = state.measured.of(state.edited.transcript, setup.meter)
        state.measured = replace(measured, anchor=same)
    state.script, state.outcome, state.checkpoint = kept.script, outcome, kept
    state.events.append(Compacted(kept, outcome.reached))


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
    setup: Setup, request: Request, state: State, order: Order
) -> Generator[Need, Any, Outcome]:
    """Return the outcome that meets the target by the best count there is; updates the state."""
    wanted, measured, before = order.target, state.measured, state.edited
    meter = replace(setup.meter, scale=measured.scale)
    outcome = yield from _answered(compact(before.transcript, measured, meter, setup.codec, order))
    counted, left = state.counted, ROUNDS
    while outcome.changed:
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


def finish(setup: Setup, request: Request, state: State) -> Prepared:
    """Check against the window, clamp the output, and put the result together."""
    count = state.measured.count()
    found = assess(count, state.window, thresholds=setup.policy.thresholds)
    made = state.checkpoint or state.replayed
    conversation, told = show(setup, made, state.conversation, found, "prepared")
    events = [*state.events, *told]
    bound = state.window.input_tokens
    refuses = setup.refuses and (state.window.proven or setup.strict)
    if bound is not None and count.high >= bound and refuses:
        raise ContextTooLargeError(
            f"{count.high:,} tokens ({count.basis}) do not fit into {bound:,} "
            f"({state.window.said_by()}): {immovable(state)}",
            tokens=count.high,
            bound=bound,
        )
    asked, total = request.max_tokens, state.window.total_tokens
    given = asked
    if asked is not None and total is not None and count.high + asked > total:
        given = max(total - count.high, min(asked, min_output(setup.policy, total)), 1)
        if state.window.proven:
            given = max(total - count.high, 1)
        events.append(
            Notice(
                f"max_tokens lowered from {asked:,} to {given:,}: {count.high:,} of {total:,} "
                "tokens are taken"
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
        events=tuple(events),
    )


def immovable(state: State) -> str:
    """Say what takes the room that nothing could free, and what to do."""
    sizes: Sequence[int] = state.measured.count().by_message
    scale = state.measured.scale
    fixed = scale.of(state.measured.fixed).best
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
