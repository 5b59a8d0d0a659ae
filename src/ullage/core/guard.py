"""The one pipeline: measure, window, gauge, plan, edit, check, (send), learn.

`prepare` and `recover` are generators: they yield what they need of the outside (a window, a
server's count, a summary, a checkpoint) and are sent the answer; `observe` is a pure function.
Library, proxy and agent drive the same machine. It does no I/O and knows no dialect: the codec
and the meter come in with the `Setup`.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from ullage.core import laws
from ullage.core.checkpoint import Checkpoint, Trigger, chain
from ullage.core.compaction import Order, Outcome, compact
from ullage.core.counting import Count, Measure, Meter, Scale, measure
from ullage.core.edits import Edited, Script, apply, compose
from ullage.core.errors import ConfigurationError, ContextTooLargeError
from ullage.core.events import (
    Compacted,
    CompactionFailed,
    ContextPressure,
    Event,
    Notice,
    Repaired,
    TruncationDetected,
)
from ullage.core.gauge import Assessment, assess
from ullage.core.policies.policy import DETERMINISTIC, Policy, Rung
from ullage.core.policies.summarise import SummaryRequest
from ullage.core.usage import Usage
from ullage.core.window import Window

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ullage.core.errors import ErrorKind
    from ullage.core.transcript import Codec, Raw, Transcript


# --- needs: what the machine asks of the outside, and what it is to be sent ----------------------


@dataclass(frozen=True, slots=True)
class NeedWindow:
    """Send the Window of the model. `ceiling` is a limit just learned, in tokens, or None.

    `named` tells whether the error named it, or it is only below what was refused.
    """

    ceiling: int | None = None
    named: bool = False


@dataclass(frozen=True, slots=True)
class NeedServerCount:
    """Send the server's own count of this request in tokens, or None where it offers none."""

    messages: list[Raw]
    tools: Any = None


@dataclass(frozen=True, slots=True)
class NeedSummary:
    """Send the summariser's text, or None when it failed."""

    request: SummaryRequest


@dataclass(frozen=True, slots=True)
class NeedLoad:
    """Send the stored checkpoint with the first of these prefix hashes that has one, or None."""

    scope: str
    prefixes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NeedSave:
    """Store the checkpoint unless there is one; send the one that is stored."""

    checkpoint: Checkpoint


Need = NeedWindow | NeedServerCount | NeedSummary | NeedLoad | NeedSave
Preparing = Generator[Need, Any, "Prepared"]


# --- values -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Setup:
    """What stays the same from request to request."""

    codec: Codec
    meter: Meter
    policy: Policy
    scope: str = ""
    strict: bool = False
    summariser: bool = False


@dataclass(frozen=True, slots=True)
class Request:
    """One request as the caller would send it. `pins` are positions in `messages`."""

    messages: Sequence[Raw]
    tools: Any = None
    system: str | None = None
    max_tokens: int | None = None
    pins: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request that may be sent, and everything that was found out on the way.

    `count` is the size of what is sent, `raw_best` the same in counter tokens (for calibration).
    `outcome` and `checkpoint` are those of a compaction made for this request; a replayed
    checkpoint is in `replayed`.
    """

    messages: list[Raw]
    max_tokens: int | None
    window: Window
    count: Count
    raw_best: int
    assessment: Assessment
    outcome: Outcome | None = None
    checkpoint: Checkpoint | None = None
    replayed: Checkpoint | None = None
    events: tuple[Event, ...] = ()


@dataclass(slots=True)
class _State:
    """The request on its way: the repaired history, the script so far, and its result.

    `pins` are the request's, as positions in the repaired history.
    """

    history: Transcript
    pins: frozenset[int]
    prefixes: tuple[str, ...]
    script: Script
    edited: Edited
    measured: Measure
    window: Window
    replayed: Checkpoint | None = None
    generation: int = 0
    outcome: Outcome | None = None
    checkpoint: Checkpoint | None = None
    events: list[Event] = field(default_factory=list)


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
    if due is not None:
        target, strategies, trigger = due
        yield from _compact(setup, request, state, target, strategies, trigger)
    return _finish(setup, request, state)


def recover(setup: Setup, request: Request, sent: Prepared, error: ErrorKind) -> Preparing:
    """Prepare a request again after an overflow error, without any model call.

    Lowers `max_tokens` where that is what was too large; otherwise learns the limit and compacts
    to half of it. Raises ContextTooLargeError when nothing got smaller.
    """
    if error.kind in ("total", "output_cap") and request.max_tokens is not None:
        lowered = _lower_output(request.max_tokens, sent, error)
        if lowered is not None:
            return replace(sent, max_tokens=lowered, events=(_lowered(request, lowered),))
    refused = error.input_tokens or sent.count.tokens
    window: Window = yield NeedWindow(error.limit or refused - 1, named=error.limit is not None)
    bound = min(window.input_tokens or refused, refused)
    ratio = refused / max(sent.raw_best, 1)
    scale = Scale(ratio * (1 - DRIFT), ratio, ratio * (1 + DRIFT))
    if error.input_tokens is not None:
        meter = replace(setup.meter, scale=scale, basis="calibrated")
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


@dataclass(frozen=True, slots=True)
class Observation:
    """What a response taught: the usage, the assessment by it, and a calibration sample.

    `ratio` is reported tokens per counter token, None where the reading must not teach.
    """

    usage: Usage | None
    assessment: Assessment
    ratio: float | None = None
    checkpoint: Checkpoint | None = None
    events: tuple[Event, ...] = ()


def observe(setup: Setup, sent: Prepared, report: Any) -> Observation:
    """Learn from a response or usage report. Pure; an unreadable report teaches nothing."""
    usage = Usage.from_report(report)
    if usage is None or usage.prompt_tokens == 0:
        return Observation(None, sent.assessment)
    reported = usage.prompt_tokens
    found = assess(usage, sent.window, thresholds=setup.policy.thresholds)
    events: list[Event] = [ContextPressure(found)]
    low = sent.count.low
    if reported < low / 2 and low - reported >= _SHORT:
        events.append(TruncationDetected(reported, sent.count.tokens))
        return Observation(usage, found, None, None, tuple(events))
    made = sent.checkpoint
    measured = made.measured(reported) if made is not None else None
    ratio = reported / sent.raw_best if sent.raw_best else None
    return Observation(usage, found, ratio, measured, tuple(events))


_SHORT: Final = 1_000
"""Tokens missing from a report, besides half of them, that make it a sign of truncation."""


# --- steps ----------------------------------------------------------------------------------------


def _check_request(request: Request) -> None:
    size = len(request.messages) if hasattr(request.messages, "__len__") else 0
    for pin in request.pins:
        if not 0 <= pin < size:
            raise ConfigurationError(
                f"pins names message {pin}, but the {size} messages are at 0 to {size - 1}"
            )
    asked = request.max_tokens
    if asked is not None and (type(asked) is not int or asked < 1):
        raise ConfigurationError(f"max_tokens must be a positive number of tokens, not {asked!r}")


def _open(setup: Setup, request: Request, window: Window) -> Generator[Need, Any, _State]:
    """Read, repair, find the known prefix, re-apply its checkpoint, measure."""
    arrived = setup.codec.read(request.messages)
    mended = laws.repair(arrived, setup.codec)
    history = setup.codec.read(mended.messages) if mended.repairs else arrived
    prefixes = tuple(digest.hex() for digest in chain(history))
    known: Checkpoint | None = yield NeedLoad(setup.scope, prefixes[::-1])
    pins = mended.moved(request.pins)
    generation = known.generation + 1 if known is not None else 0
    if known is not None and known.script.touches(pins):
        known = None  # pinned since: what the checkpoint left out comes back, and is planned anew
    script = known.script if known is not None else Script()
    edited = apply(history, script, setup.codec)
    measured = measure(edited.transcript, setup.meter, system=request.system, tools=request.tools)
    state = _State(history, pins, prefixes, script, edited, measured, window, known)
    state.generation = generation
    if mended.repairs:
        state.events.append(Repaired(mended.repairs))
    if _matters(setup, request, state):
        state.measured = yield from _server_count(request, state)
    return state


def _matters(setup: Setup, request: Request, state: _State) -> bool:
    """Tell whether an estimate is so near to acting on something that a real count is wanted."""
    bound = state.window.input_tokens
    if setup.meter.basis == "exact" or bound is None:
        return False
    high = state.measured.count().high
    asked = request.max_tokens or 0
    total = state.window.total_tokens or bound
    return high >= setup.policy.thresholds.lowest * bound or high + asked > total


def _server_count(request: Request, state: _State) -> Generator[Need, Any, Measure]:
    """Return the measure with the server's own count of the whole, where it gives one."""
    reported = yield NeedServerCount(list(state.edited.transcript.raws), request.tools)
    if reported is None:
        return state.measured
    ratio = reported / max(state.measured.raw().best, 1)
    scale = Scale(ratio * (1 - DRIFT), ratio, ratio * (1 + DRIFT))
    return replace(state.measured, scale=scale, basis="calibrated", reported=reported)


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
    pins = frozenset(
        new for new, old in enumerate(base.origin) if old is not None and old in state.pins
    )
    order = Order(
        target=target,
        tail=min(policy.tail_tokens, int(policy.tail_share * bound)),
        strategies=strategies,
        pins=pins,
        summariser=setup.summariser,
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
        sizes = measure(state.edited.transcript, setup.meter).sizes
        state.measured = replace(state.measured, sizes=sizes, reported=None)
    state.script, state.outcome, state.checkpoint = kept.script, outcome, kept
    state.events.append(Compacted(kept, outcome.reached))


def _tightened(
    setup: Setup, request: Request, state: _State, order: Order
) -> Generator[Need, Any, Outcome]:
    """Return the outcome that meets the target by the best count there is; updates the state."""
    wanted, measured, before = order.target, state.measured, state.edited
    meter = replace(setup.meter, scale=measured.scale)
    outcome = yield from _answered(compact(before.transcript, measured, meter, setup.codec, order))
    left = ROUNDS
    while outcome.changed:
        state.edited = outcome.edited
        sizes = measure(outcome.edited.transcript, meter).sizes
        state.measured = replace(measured, sizes=sizes, reported=None)
        if measured.reported is None:
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
    events = [*state.events, ContextPressure(found)]
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
        count=count,
        raw_best=state.measured.raw().best,
        assessment=found,
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
