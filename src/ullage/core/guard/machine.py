"""The one pipeline before a send: measure, window, gauge, plan, edit, check.

`prepare` is a generator: it yields what it needs of the outside (a window, a server's count,
summaries, a checkpoint) and is sent the answer. Library, proxy and agent drive the same machine.
It does no I/O and knows no dialect: the codec and the meter come in with the `Setup`. What comes
after a refusal is `core.recovery`'s, what a response teaches is `core.observing`'s.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ullage.core.compaction.policy import DETERMINISTIC, Policy, Rung
from ullage.core.guard import stages as steps
from ullage.core.guard.events import OverShare
from ullage.core.guard.request import Need, NeedWindow, Preparing, Request, Setup
from ullage.core.guard.stages import Due, State

if TYPE_CHECKING:
    from ullage.core.tokens.budget import Overrun
    from ullage.core.tokens.window import Window


def prepare(setup: Setup, request: Request) -> Preparing:
    """Prepare a request: repair, re-apply what is known, measure, compact if due, check, clamp.

    Raises MalformedHistoryError, ConfigurationError (bad pins or max_tokens) and
    ContextTooLargeError, the last only against a bound that is proven, or when `strict`.
    """
    steps.check(request)
    window: Window = yield NeedWindow()
    state = yield from steps.begin(setup, request, window)
    due = _due(setup, request, state)
    over = _over_share(setup, request, state)
    state.surplus = next((o.over for o in over if o.section == "knowledge"), 0)
    if due is None and state.surplus:
        counted = replace(state.measured, anchor=None).count()
        due = Due(max(counted.high - state.surplus, 1), (), "pressure", alone=True)
    if due is not None:
        yield from _tried(setup, request, state, due)
        over = _over_share(setup, request, state)
    if over:
        state.events.append(OverShare(over))
    return (yield from steps.finish(setup, request, state))


def ahead(setup: Setup, request: Request) -> Preparing:
    """Make the summary that pressure will soon want, and store it as a checkpoint.

    The next `prepare` of a history that begins with the same messages puts exactly that prefix in
    its place. To be driven beside the conversation; its result is not to be sent.
    """
    window: Window = yield NeedWindow()
    state = yield from steps.begin(setup, request, window)
    rung, bound = _summarising(setup.policy), window.input_tokens
    if rung is not None and bound is not None:
        due = _of(setup.policy, rung, max(int(rung.target * bound), 1))
        yield from steps.run(setup, request, state, due)
    return (yield from steps.finish(replace(setup, strict=False), request, state))


def compacted(setup: Setup, request: Request, target: int) -> Preparing:
    """Compact to `target` tokens because somebody wants it, by the policy's highest rung."""
    window: Window = yield NeedWindow()
    state = yield from steps.begin(setup, request, window)
    rung = max(setup.policy.rungs, key=_at, default=None)
    strategies = DETERMINISTIC if rung is None else rung.strategies
    due = Due(max(target, 1), strategies, "manual", keep=setup.policy.keep_last)
    yield from steps.run(setup, request, state, due)
    return (yield from steps.finish(replace(setup, strict=False), request, state))


def _tried(setup: Setup, request: Request, state: State, due: Due) -> Generator[Need, Any, None]:
    """Compact, unless that has led nowhere too often in this turn."""
    effort = state.conversation.effort
    if not effort.allows(setup.now):
        tried = f"breaker_open: {effort.fruitless} compactions in this turn freed next to nothing"
        state.events.append(steps.failed(due, f"{tried}; the next try is in a minute"))
        return
    yield from steps.run(setup, request, state, due)


def _over_share(setup: Setup, request: Request, state: State) -> tuple[Overrun, ...]:
    """Return the sections over their share of the window, none without a budget or a window."""
    bound = state.window.total_tokens or state.window.input_tokens
    if setup.shares is None or bound is None:
        return ()
    from ullage.core.tokens import sections
    from ullage.core.tokens.budget import allocate, overruns

    marks = {
        new: state.sections[old]
        for new, old in enumerate(state.edited.origin)
        if old is not None and old in state.sections
    }
    output = request.max_tokens or 0
    holds = sections.used(state.measured, setup.meter, marks, request.tools, output)
    return overruns(allocate(bound, setup.shares), holds)


def _due(setup: Setup, request: Request, state: State) -> Due | None:
    """Return the compaction that is due, or None."""
    bound, policy = state.window.input_tokens, setup.policy
    if bound is None or not policy.rungs:
        return None
    count, known = state.measured.count(), state.replayed
    high, cut = count.high, state.conversation.cut
    settled = known is not None and known.settles(state.prefixes[-1], bound, count.tokens)
    pressure, held = high / bound, bound
    if cut:  # the server left a part of the last prompt out: it holds less than what was counted
        pressure, held = max(pressure, policy.thresholds.critical), min(bound, high)
    rung = None if settled and not cut else policy.rung(pressure)
    if rung is not None and setup.background and _waits(policy, rung):
        state.ahead, rung = True, None
    target = bound if rung is None else int(rung.target * held)
    total = state.window.total_tokens
    if request.max_tokens is not None and total is not None:
        room = steps.room_needed(policy, request, total)
        if high + room > total:
            rung = rung or min(policy.rungs, key=_at)
            target = min(int(rung.target * held), total - room)
    if rung is None:
        return None
    critical = high >= policy.thresholds.critical * bound
    due = replace(_of(policy, rung, max(target, 1)), waits=not cut)
    if known is not None and known.bound > bound:
        return replace(due, trigger="model_switch")
    return replace(due, trigger="preflight") if critical else due


def _of(policy: Policy, rung: Rung, target: int) -> Due:
    keep = policy.keep_last
    return Due(target, rung.strategies, "pressure", keep=keep, widen=keep is not None)


def _at(rung: Rung) -> float:
    return rung.at


def _summarising(policy: Policy) -> Rung | None:
    """Return the lowest rung that summarises."""
    found = [rung for rung in policy.rungs if "summarise_middle" in rung.strategies]
    return min(found, key=_at, default=None)


def _waits(policy: Policy, rung: Rung) -> bool:
    """Tell whether a rung can wait for a summary in the background: one above it summarises."""
    summarising = _summarising(policy)
    return policy.background and summarising is not None and rung.at < summarising.at
