"""The one pipeline: measure, window, gauge, plan, edit, check, (send).

`prepare` and `recover` are generators: they yield what they need of the outside (a window, a
server's count, a summary, a checkpoint) and are sent the answer. Library, proxy and agent drive
the same machine. It does no I/O and knows no dialect: the codec and the meter come in with the
`Setup`. What a response teaches is `core.observing`'s.
"""

from __future__ import annotations

from collections.abc import Collection, Generator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from ullage.core import laws
from ullage.core.checkpoint import Checkpoint, Trigger, chain
from ullage.core.compaction import Order, Outcome, compact
from ullage.core.conversation import Conversation
from ullage.core.counting import Measure, Scale, measure
from ullage.core.edits import Edited, Script, apply, compose
from ullage.core.errors import ConfigurationError, ContextTooLargeError
from ullage.core.events import Compacted, CompactionFailed, Event, Notice, OverShare, Repaired
from ullage.core.exchange import (
    Need,
    NeedLoad,
    NeedRecall,
    NeedSave,
    NeedServerCount,
    NeedSummary,
    NeedWindow,
    Prepared,
    Preparing,
    Request,
    Setup,
)
from ullage.core.gauge import assess
from ullage.core.observing import show
from ullage.core.policies.policy import DETERMINISTIC, Policy, Rung
from ullage.core.policies.summarise import SummaryRequest
from ullage.core.window import Window

if TYPE_CHECKING:
    from ullage.core.budget import Overrun
    from ullage.core.errors import ErrorKind
    from ullage.core.transcript import Transcript


@dataclass(slots=True)
class _State:
    """The request on its way: the repaired history, the script so far, and its result.

    `pins` and `sections` are the request's, by positions in the repaired history; `counted` tells
    whether the server counts requests, `surplus` by how many tokens knowledge is over its share.
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
    events: list[Event] = field(default_factory=list)


ALONE: Final = ("knowledge",)
"""In the place of strategies: knowledge goes down to its share, and nothing else is touched."""

ROUNDS: Final = 3
"""How often a plan made on estimates is tightened when the server's count is over the target."""

DRIFT: Final = 0.10
"""Half-width of the band around a ratio taken from one server count: sessions of 40 chunks counted
by one ratio were off by at most 6.4 % at p95 (docs/design/counting.md)."""


def prepare(setup: Setup, request: Request) -> Preparing:
    """Prepare a request: repair, re-apply what is known, measure, compact if due, check, clamp.

    Raises MalformedHistoryError, ConfigurationError (bad pins or max_tokens) and
    ContextTooLargeError, the last only against a bound that is proven, or when `strict`.
    """
    _check_request(request)
    window: Window = yield NeedWindow()
    state = yield from _open(setup, request, window)
    due = _due(setup.policy, request, state)
    over = _over_share(setup, request, state)
    state.surplus = next((o.over for o in over if o.section == "knowledge"), 0)
    if due is None and state.surplus:
        counted = replace(state.measured, anchor=None).count()
        due = max(counted.high - state.surplus, 1), ALONE, "pressure"
    if due is not None:
        target, strategies, trigger = due
        yield from _compact(setup, request, state, target, strategies, trigger)
        over = _over_share(setup, request, state)
    if over:
        state.events.append(OverShare(over))
    return _finish(setup, request, state)


def recover(setup: Setup, request: Request, sent: Prepared, error: ErrorKind) -> Preparing:
    """Prepare a request again after an overflow error, without any model call.

    Lowers `max_tokens` where that is what was too large; otherwise learns the limit, where the
    error is certainly one of size, and compacts to half of it. Raises ContextTooLargeError when
    nothing got smaller.
    """
    if error.kind in ("total", "output_cap") and request.max_tokens is not None:
        lowered = _lower_output(request.max_tokens, sent, error)
        if lowered is not None:
            return replace(sent, max_tokens=lowered, events=(_lowered(request, lowered),))
    refused = error.input_tokens or sent.count.tokens
    proven = error.limit or refused - 1 if error.certainty == "certain" else None
    window: Window = yield NeedWindow(proven, named=error.limit is not None)
    bound = min(window.input_tokens or refused, refused)
    ratio = refused / max(sent.measured.raw().best, 1)
    scale = Scale(ratio * (1 - DRIFT), ratio, ratio * (1 + DRIFT))
    if error.input_tokens is not None:
        meter = replace(setup.meter, scale=scale, basis="calibrated", outside=None)
        setup = replace(setup, meter=meter)
    state = yield from _open(setup, request, window)
    target = bound // 2
    yield from _compact(setup, request, state, target, DETERMINISTIC, "overflow_recovery")
    if state.outcome is None or state.measured.count().high >= refused:
        raise ContextTooLargeError(
            f"the server refused {refused:,} tokens and nothing more can be left out: "
            f"{_immovable(state)}",
            tokens=refused,
            bound=bound,
        )
    return _finish(setup, request, state)


# --- steps ----------------------------------------------------------------------------------------


def _check_request(request: Request) -> None:
    size = len(request.messages) if hasattr(request.messages, "__len__") else 0
    for pin in request.pins:
        if not 0 <= pin < size:
            raise ConfigurationError(
                f"pins names message {pin}, but the {size} messages are at 0 to {size - 1}"
            )
    if request.sections:
        from ullage.core import sections

        sections.checked(request.sections, size)
    asked = request.max_tokens
    if asked is not None and (type(asked) is not int or asked < 1):
        raise ConfigurationError(f"max_tokens must be a positive number of tokens, not {asked!r}")


def _over_share(setup: Setup, request: Request, state: _State) -> tuple[Overrun, ...]:
    """Return the sections over their share of the window, none without a budget or a window."""
    bound = state.window.total_tokens or state.window.input_tokens
    if setup.shares is None or bound is None:
        return ()
    from ullage.core import sections
    from ullage.core.budget import allocate, overruns

    marks = {
        new: state.sections[old]
        for new, old in enumerate(state.edited.origin)
        if old is not None and old in state.sections
    }
    output = request.max_tokens or 0
    holds = sections.used(state.measured, setup.meter, marks, request.tools, output)
    return overruns(allocate(bound, setup.shares), holds)


def _open(setup: Setup, request: Request, window: Window) -> Generator[Need, Any, _State]:
    """Read, repair, find the known prefix, re-apply its checkpoint, measure."""
    arrived = setup.codec.read(request.messages)
    mended = laws.repair(arrived, setup.codec)
    history = setup.codec.read(mended.messages) if mended.repairs else arrived
    prefixes = chain(history)
    known: Checkpoint | None = yield NeedLoad(setup.scope, prefixes[::-1])
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
    conversation = replace(
        recalled or Conversation(scope, ""), prefix=prefixes[-1] if prefixes else ""
    )
    state = _State(history, pins, prefixes, script, edited, measured, window, conversation, known)
    state.generation = generation
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


def _matters(setup: Setup, request: Request, state: _State) -> bool:
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


def _server_count(request: Request, state: _State) -> Generator[Need, Any, Measure]:
    """Return the measure with the server's own count of the whole, where it gives one."""
    sent = state.edited.transcript
    system = request.system if request.apart is None else request.apart
    reported = yield NeedServerCount(list(sent.raws), request.tools, system, sent.rules.dialect)
    if reported is None:
        return state.measured
    state.counted = True
    ratio = reported / max(state.measured.raw().best, 1)
    scale = Scale(ratio * (1 - DRIFT), ratio, ratio * (1 + DRIFT))
    return replace(state.measured, scale=scale, basis="calibrated", extra=0).told(reported)


def _due(
    policy: Policy, request: Request, state: _State
) -> tuple[int, tuple[Any, ...], Trigger] | None:
    """Return target, strategies and trigger of the compaction that is due, or None."""
    bound = state.window.input_tokens
    if bound is None or not policy.rungs:
        return None
    count, known = state.measured.count(), state.replayed
    high = count.high
    settled = known is not None and known.settles(state.prefixes[-1], bound, count.tokens)
    rung = None if settled else policy.rung(high / bound)
    target = bound if rung is None else int(rung.target * bound)
    total = state.window.total_tokens
    if request.max_tokens is not None and total is not None:
        room_needed = min(request.max_tokens, _min_output(policy, total))
        if high + room_needed > total:
            rung = rung or min(policy.rungs, key=_at)
            target = min(int(rung.target * bound), total - room_needed)
    if rung is None:
        return None
    critical = high >= policy.thresholds.critical * bound
    return max(target, 1), rung.strategies, "preflight" if critical else "pressure"


def _at(rung: Rung) -> float:
    return rung.at


def _min_output(policy: Policy, total: int) -> int:
    return policy.min_output if policy.min_output is not None else min(1024, total // 8)


def _compact(
    setup: Setup,
    request: Request,
    state: _State,
    target: int,
    strategies: tuple[Any, ...],
    trigger: Trigger,
) -> Generator[Need, Any, None]:
    """Compact what the state holds, tighten by the server's count, and store the checkpoint."""
    bound = state.window.input_tokens or target * 2
    policy, before, base = setup.policy, state.measured.count(), state.edited
    looked_up = {index for index, name in state.sections.items() if name == "knowledge"}
    order = Order(
        target=target,
        tail=min(policy.tail_tokens, int(policy.tail_share * bound)),
        strategies=() if strategies == ALONE else strategies,
        pins=_now(base, state.pins),
        summariser=setup.summariser,
        knowledge=_now(base, looked_up),
        surplus=state.surplus,
        alone=strategies == ALONE,
    )
    outcome = yield from _tightened(setup, request, state, order)
    if not outcome.changed:
        reason: str = outcome.reason or "nothing_to_compact"
        if outcome.violations:
            reason = f"{reason}: {outcome.violations[0].law}: {outcome.violations[0].detail}"
        state.events.append(CompactionFailed(reason))
        return
    script = compose(state.script, base, outcome.script)
    count = script.reach()
    planned = Checkpoint(
        scope=setup.scope,
        prefix=state.prefixes[count - 1],
        count=count,
        script=script,
        strategy=outcome.strategy,
        trigger=trigger,
        policy=policy.identity,
        basis=outcome.after.basis,
        tokens_before=before.tokens,
        tokens_after=outcome.after.tokens,
        fallback_reason=outcome.fallback_reason,
        generation=state.generation,
        whole=state.prefixes[-1],
        bound=bound,
    )
    kept: Checkpoint = yield NeedSave(planned)
    if kept.script != script:
        state.edited = apply(state.history, kept.script, setup.codec)
        state.measured = state.measured.of(state.edited.transcript, setup.meter)
    else:
        origin = tuple(base.origin[i] if i is not None else None for i in state.edited.origin)
        state.edited = replace(state.edited, origin=origin)
    state.script, state.outcome, state.checkpoint = kept.script, outcome, kept
    state.events.append(Compacted(kept, outcome.reached))


def _now(edited: Edited, positions: Collection[int]) -> frozenset[int]:
    """Return where messages at these positions of the history stand now."""
    return frozenset(new for new, old in enumerate(edited.origin) if old in positions)


def _tightened(
    setup: Setup, request: Request, state: _State, order: Order
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


def _answered(
    asking: Generator[SummaryRequest, str | None, Outcome],
) -> Generator[Need, Any, Outcome]:
    """Run a compaction, turning its questions into needs."""
    try:
        question = next(asking)
        while True:
            question = asking.send((yield NeedSummary(question)))
    except StopIteration as done:
        outcome: Outcome = done.value
        return outcome


def _finish(setup: Setup, request: Request, state: _State) -> Prepared:
    """Check against the window, clamp the output, and put the result together."""
    count = state.measured.count()
    found = assess(count, state.window, thresholds=setup.policy.thresholds)
    made = state.checkpoint or state.replayed
    conversation, told = show(setup, made, state.conversation, found)
    events = [*state.events, *told]
    bound = state.window.input_tokens
    if bound is not None and count.high >= bound and (state.window.proven or setup.strict):
        raise ContextTooLargeError(
            f"{count.high:,} tokens ({count.basis}) do not fit into {bound:,} "
            f"({state.window.said_by()}): {_immovable(state)}",
            tokens=count.high,
            bound=bound,
        )
    asked, total = request.max_tokens, state.window.total_tokens
    given = asked
    if asked is not None and total is not None and count.high + asked > total:
        given = max(total - count.high, min(asked, _min_output(setup.policy, total)), 1)
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
        events=tuple(events),
    )


def _immovable(state: _State) -> str:
    """Say what takes the room that nothing could free, and what to do."""
    sizes = state.measured.count().by_message
    scale = state.measured.scale
    named = [
        f"system prompt, tools and framing outside the list {scale.of(state.measured.fixed).best:,}"
    ]
    if sizes:
        largest = max(range(len(sizes)), key=sizes.__getitem__)
        role = state.edited.transcript.messages[largest].role
        named.append(f"the largest message is {role} at position {largest} with {sizes[largest]:,}")
    return f"{'; '.join(named)} tokens. Shorten that, raise the window, or allow compaction."


def _lower_output(asked: int, sent: Prepared, error: ErrorKind) -> int | None:
    """Return the output that the refused request leaves room for, or None without any."""
    if error.limit is None:
        return None
    used = 0 if error.kind == "output_cap" else (error.input_tokens or sent.count.high)
    room = error.limit - used
    return room if 0 < room < asked else None


def _lowered(request: Request, lowered: int) -> Notice:
    return Notice(f"max_tokens lowered from {request.max_tokens:,} to {lowered:,} after a refusal")
