"""The fourth stage: the decision for a compaction, with its size and its strategies.

It reads the policy and the sizes. It compacts nothing and yields no needs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from ullage.core.compaction.aftermath import choose_target, review
from ullage.core.compaction.faults import find_recent_faults, list_faulted
from ullage.core.compaction.policy import DETERMINISTIC, Policy, Rung
from ullage.core.compaction.situation import Keep
from ullage.core.compaction.strategies.strip_media import keep_newest
from ullage.core.dialects.families import NO_LIMITS
from ullage.core.guard.stages.measure import count_closing
from ullage.core.guard.stages.room import find_room, has_room, must_refuse

if TYPE_CHECKING:
    from ullage.core.compaction.aftermath import Aftermath
    from ullage.core.compaction.checkpoint import Trigger
    from ullage.core.compaction.strategy import Strategy
    from ullage.core.guard.request import Request, Setup
    from ullage.core.guard.stages.measure import Measured
    from ullage.core.tokens.budget import Overrun


FIXED: Final = 0.2
"""Share of a window that tools and system text may take before targets are raised to leave room for
the conversation. An agent's standard tools took 0.3 of 4,096 tokens.
"""


@dataclass(frozen=True, slots=True)
class Due:
    """A compaction that is due: the target in the model's tokens, how, and why.

    `keep` bounds the tail in messages. `first` are strategies that run before those of the policy,
    or alone if the policy has none. `surplus` is the overrun of knowledge over its share, in
    tokens. If the target is too small for rules and open tasks, it rises up to `most`, or not at
    all if that is 0. A compaction that `waits` is not made if its target is out of reach and the
    request fits. `room` is the number of tokens to leave for the answer.
    """

    target: int
    strategies: tuple[Strategy | str, ...]
    trigger: Trigger
    keep: Keep | None = None
    first: tuple[Strategy, ...] = ()
    waits: bool = False
    surplus: int = 0
    most: int = 0
    room: int = 0


@dataclass(frozen=True, slots=True)
class CompactionDecision:
    """The decision before the send: a compaction, or nothing.

    `over` are the sections over their share of the window. `ahead` says that a summary is wanted in
    the background.
    """

    due: Due | None = None
    over: tuple[Overrun, ...] = ()
    ahead: bool = False


def decide(setup: Setup, request: Request, measured: Measured) -> CompactionDecision:
    """Return the action that pressure, room for the answer and shares require."""
    due, ahead = _find_due(setup, request, measured)
    due = _add_heavy(setup, measured, due)
    over = find_overruns(setup, request, measured)
    surplus = next((o.over for o in over if o.section == "knowledge"), 0)
    if due is not None:
        due = replace(due, surplus=surplus) if surplus else due
    elif surplus:
        counted = replace(measured.size, anchor=None).count()
        target = max(counted.high - surplus, 1)
        due = Due(target, (), "pressure", surplus=surplus)
    return CompactionDecision(due, over, ahead)


def decide_ahead(setup: Setup, measured: Measured) -> Due | None:
    """Return the summary that will soon be needed, or None if no rung summarises."""
    rung, bound = _summarising(setup.policy), measured.window.working_tokens
    if rung is None or bound is None:
        return None
    return _of(setup.policy, rung, max(_find_target(rung, measured, bound), 1))


def decide_by_hand(setup: Setup, target: int) -> Due:
    """Return the compaction to `target` tokens that was asked for, by the highest rung."""
    rung = max(setup.policy.rungs, key=_at, default=None)
    strategies = DETERMINISTIC if rung is None else rung.strategies
    last = setup.policy.keep_last
    return Due(max(target, 1), strategies, "manual", keep=None if last is None else Keep(last))


def find_overruns(setup: Setup, request: Request, measured: Measured) -> tuple[Overrun, ...]:
    """Return the sections over their share of the window; empty without a budget or a window."""
    bound = measured.window.total_tokens or measured.window.input_tokens
    if setup.shares is None or bound is None:
        return ()
    from ullage.core.tokens import sections
    from ullage.core.tokens.budget import allocate, overruns

    named = measured.replayed.read.sections
    marks = {
        new: named[old]
        for new, old in enumerate(measured.edited.origin)
        if old is not None and old in named
    }
    output = request.max_tokens or 0
    holds = sections.count_sections(measured.size, setup.meter, marks, request.tools, output)
    return overruns(allocate(bound, setup.shares), holds)


def _find_due(setup: Setup, request: Request, measured: Measured) -> tuple[Due | None, bool]:
    """Return the compaction that is due, or None, and whether to summarise in the background."""
    bound, policy, replayed = measured.window.working_tokens, setup.policy, measured.replayed
    if bound is None or not policy.rungs:
        return None, False
    count, known, total = measured.count, replayed.checkpoint, measured.window.total_tokens
    high = count.high
    switched = known is not None and known.bound > bound
    room = find_room(policy, request, total)
    settled = _is_settled(setup, measured, bound, room)
    stays = settled or _is_left_to_provider(request, policy, high, bound)
    if request.reserves_all and request.reserve and total is not None:
        bound = max(min(bound, total - room), 1)
    rung = None if stays else policy.rung(high / bound)
    ahead = rung is not None and setup.background and _waits(policy, rung)
    rung = None if ahead or _may_shrink(setup, request, measured, rung) else rung
    target = most = bound
    if rung is not None:
        deep, kept = _find_target(rung, measured, bound), known.kept_tokens if known else 0
        past = review_last(measured)
        target = choose_target(deep, count.tokens, kept, past, setup.prices)
    if room and total is not None and high + room > total and not settled:
        rung = rung or min(policy.rungs, key=_at)
        most = total - room
        target = min(_find_target(rung, measured, bound), most)
    if rung is None:
        return None, ahead
    most = min(most, int(_find_middle(rung) * bound))
    trigger: Trigger = "preflight" if high >= policy.thresholds.critical * bound else "pressure"
    if switched:
        trigger = "model_switch"
    due = _of(policy, rung, max(target, 1))
    return replace(due, trigger=trigger, waits=True, most=most, room=room), ahead


def _is_settled(setup: Setup, measured: Measured, bound: int, room: int) -> bool:
    """Tell whether the applied checkpoint was made for this very request.

    Then its result is sent, whether it met its target or not: the same messages give the same
    bytes. A request that would be refused before the send is not sent, and may be made smaller.
    """
    replayed = measured.replayed
    known, whole = replayed.checkpoint, replayed.read.whole
    if known is None or not known.settles(whole, bound, measured.size, room):
        return False
    return not must_refuse(setup, measured)


def review_last(measured: Measured) -> Aftermath | None:
    """Return the consequences of the last compaction, or None if there was none."""
    replayed = measured.replayed
    known, history = replayed.checkpoint, replayed.read.history
    if known is None:
        return None
    recent = find_recent_faults(history, replayed.script)
    faults = [fault for fault in recent if fault.message >= known.planned_size]
    places = measured.places(list_faulted(history, faults))
    sizes = [measured.size.sizes[place].best for place in places]
    return review(history.messages, known.planned_size, sizes, len(faults))


def _add_heavy(setup: Setup, measured: Measured, due: Due | None) -> Due | None:
    """Return the compaction that is due, extended to drop the oldest media if there are too many.

    The limits are the provider's. Half of what they allow stays, because a compaction with each new
    image would help nobody. A policy that compacts nothing leaves media too.
    """
    if not setup.policy.rungs:
        return due
    if setup.limits is NO_LIMITS:
        return due
    limits, bound = setup.limits, measured.window.input_tokens
    images, size = limits.find_most_images(bound), limits.size
    held = measured.edited.transcript.measure_media()
    room = None if size is None else size * 3 // 4  # base64 has four characters for three bytes
    many = images is not None and held.images > images
    if not many and (room is None or held.size <= room):
        return due
    newest = keep_newest(images // 2 if images else held.images, room // 2 if room else held.size)
    counted = replace(measured.size, anchor=None).count()
    made = due or Due(max(counted.high - 1, 1), (), "pressure")
    return replace(made, first=(newest,))


def _is_left_to_provider(request: Request, policy: Policy, high: int, bound: int) -> bool:
    """Tell whether the provider makes room itself in time; then our rungs wait.

    Two compactions of one conversation lose more than one. From `critical` on our rungs act.
    """
    edits, last = request.server_edits, policy.thresholds.critical * bound
    return edits is not None and (edits.at or 0) < last and high < last


def _may_shrink(setup: Setup, request: Request, measured: Measured, rung: Rung | None) -> bool:
    """Tell whether to wait because the next report may show that there is no pressure.

    This applies if a turn begins, the request fits, and the server may leave out the reasoning of
    the last turn. A compaction cannot be taken back; the next request is based on the report.
    """
    bound = measured.window.working_tokens
    if rung is None or bound is None or measured.is_counted:
        return False
    if not has_room(setup, request, measured):
        return False
    left = measured.count.high - count_closing(setup, measured)
    return setup.policy.rung(max(left, 0) / bound) is None


def _find_target(rung: Rung, measured: Measured, bound: int) -> int:
    """Return the tokens to compact to; higher if tools and system text take much.

    If they filled the target alone, nothing of the conversation would be left.
    """
    return int(min(make_room(rung.target, measured, bound), _find_middle(rung)) * bound)


def make_room(share: float, measured: Measured, bound: int) -> float:
    """Return the share of a window to compact to, raised for large tools and system text."""
    fixed = measured.size.outside().best
    return share + (1 - share) * max(fixed / bound - FIXED, 0.0)


def _find_middle(rung: Rung) -> float:
    """Return the largest share of a window after a compaction, so that the next is not due soon."""
    return (rung.at + rung.target) / 2


def _of(policy: Policy, rung: Rung, target: int) -> Due:
    last = policy.keep_last
    keep = None if last is None else Keep(last, whole=True)
    return Due(target, rung.strategies, "pressure", keep=keep)


def _at(rung: Rung) -> float:
    return rung.at


def _summarising(policy: Policy) -> Rung | None:
    """Return the lowest rung that summarises."""
    found = [rung for rung in policy.rungs if rung.summarises]
    return min(found, key=_at, default=None)


def _waits(policy: Policy, rung: Rung) -> bool:
    """Tell whether a rung can wait for a summary in the background: a higher rung summarises."""
    summarising = _summarising(policy)
    return policy.background and summarising is not None and rung.at < summarising.at
