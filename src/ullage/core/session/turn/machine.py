"""The turn: from a user message to an answer, or to an end with a reason.

It is a generator: it yields effects and is sent their results; a driver performs them. It reads the
past from the fold, which the driver keeps up to date. It calls no model, runs no tool, writes no
log and knows no clock.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from ullage.core.dialects.usage import Usage
from ullage.core.messages.transcript import Call
from ullage.core.session.log.event import Draft
from ullage.core.session.log.fold import DIED as PROCESS_DIED
from ullage.core.session.log.fold import Round, make_orphan_result
from ullage.core.session.tools import Pending
from ullage.core.session.turn import drafts
from ullage.core.session.turn.effects import (
    DIED,
    Ask,
    Crashed,
    Decide,
    Effect,
    Ended,
    Failed,
    Heard,
    Interrupted,
    Look,
    NotReady,
    Prepare,
    Ready,
    Record,
    Recover,
    Rehearse,
    RunTools,
    Send,
    Turning,
    TurnOrder,
)
from ullage.core.tokens.budget import Spent, divide_budget

if TYPE_CHECKING:
    from ullage.core.dialects.reply import Reply
    from ullage.core.session.log.fold import Fold
    from ullage.core.session.log.fold import LoggedCall as Asked
    from ullage.core.session.permissions import Consent, Decision
    from ullage.core.session.tools import Intent, ToolOutcome

PLAIN_RETRIES: Final = 2
"""How often a call is repeated unchanged after its connection broke. The client below it already
retries connections that broke before anything arrived.
"""

NO: Final = "a person said no"

STUBBORN: Final = 8
"""Consecutive calls that would change something in plan mode, after which the turn ends."""

NOBODY: Final = "it needs a person's permission, and nobody is there to give it"


@dataclass(slots=True)
class _Turn:
    """A turn in progress."""

    order: TurnOrder
    fold: Fold
    rounds: int = 0
    usage: Usage = field(default=Usage(0))
    delegated: Usage = field(default=Usage(0))
    spent: Spent = field(default_factory=Spent)
    refused: int = 0
    started: set[str] = field(default_factory=set)
    """The ids of calls that may have run: here, or in an earlier process."""

    def make_ended(self, outcome: Any, text: str = "", reason: str = "", error: str = "") -> Ended:
        return Ended(
            turn=self.order.turn,
            outcome=outcome,
            text=text,
            reason=reason,
            error=error,
            rounds=self.rounds,
            usage=self.usage,
            delegated=self.delegated,
            dollars=self.spent.dollars if self.rounds else None,
        )


def run(order: TurnOrder, fold: Fold) -> Turning:
    """Run a turn on the session whose state is `fold`.

    With a text it begins a new turn, after recording the open ends of the turn before. Without one
    it continues the turn that was cut off, or tries the last one again. `Interrupted` and `Crashed`
    may be thrown in at any effect; then the open calls and text are recorded and the turn ends.
    """
    turn = _Turn(order, fold)
    try:
        if order.text is not None:
            yield from _begin_turn(turn)
        elif order.again:
            yield Record(drafts.draft_retry(order, fold))
        elif (done := (yield from _resume_turn(turn))) is not None:
            return done
        return (yield from _rounds(turn))
    except Interrupted as cut:
        yield from _close_open_calls(turn, "the turn was interrupted", cut.partial)
        yield Record((drafts.draft_end("turn_interrupted", order.turn),))
        return turn.make_ended(
            "interrupted", cut.partial, "interrupted", "the turn was interrupted"
        )
    except Crashed as crash:
        yield from _close_open_calls(turn, "the turn failed", crash.partial)
        return (yield from _fail_turn(turn, "crashed", crash.text, crash.partial))


def _begin_turn(turn: _Turn) -> Generator[Effect, Any, None]:
    """Close the open calls of an earlier turn, and record the user message."""
    before, fold = turn.fold.turn, turn.fold
    left: list[Draft] = fold.repairs(DIED)
    if before is not None:
        left.append(drafts.draft_end("turn_failed", before.turn, reason=PROCESS_DIED, error=DIED))
    yield Record((*left, *drafts.draft_opening(turn.order, fold)))


def _resume_turn(turn: _Turn) -> Generator[Effect, Any, Ended | None]:
    """Continue where the log ends; return the end of a turn that lacked nothing but that.

    Calls without a result run again only if their tools are idempotent.
    """
    fold = turn.fold
    asked = fold.open_calls
    rest = tuple(make_orphan_result(call, DIED) for call in asked if not call.idempotent)
    if rest:
        yield Record(rest)
    turn.started.update(call.call_id for call in asked)
    again = [call for call in asked if call.idempotent]
    if again:
        calls = [Call(call.call_id, call.name, call.arguments) for call in again]
        keys = [_key(call) for call in again]
        ended = yield from _run(turn, calls, keys)
        if ended is not None:
            return ended
    last = fold.items[-1] if fold.items else None
    began = fold.turn.seq if fold.turn is not None else 0
    if isinstance(last, Round) and last.seq > began and last.texts and not last.calls:
        return (yield from _complete_turn(turn, last.texts[-1]))
    return None


def _key(call: Asked) -> str:
    return str(call.data.get("key") or call.call_id)


def _rounds(turn: _Turn) -> Generator[Effect, Any, Ended]:
    """Call the model until it asks for no more tools, or the cap is reached."""
    order, most = turn.order, turn.order.max_iterations
    began = turn.fold.turn.seq if turn.fold.turn is not None else 0
    number = sum(isinstance(item, Round) and item.seq > began for item in turn.fold.items)
    while True:
        number += 1
        heard = yield from _answer(turn, number)
        if isinstance(heard, Ended):
            return heard
        reply, report = heard.reply, drafts.usage(order, number, heard)
        told = (*report, *drafts.answer(order, number, reply))
        if not reply.calls:
            return (yield from _last(turn, reply, report, told))
        if most is not None and number >= most:
            yield Record(told)
            error = f"the cap of {most} calls of the model is reached, and it asked for tools again"
            return (yield from _fail_turn(turn, "iteration_cap", error, reply.text))
        known: Sequence[Intent] = yield Look(reply.calls)
        yield Record((*told, *drafts.calls(order, number, reply.calls, known)))
        keys = [drafts.key(order, number, place) for place in range(len(reply.calls))]
        ended = yield from _run(turn, reply.calls, keys, known)
        if ended is not None:
            return ended


def _last(
    turn: _Turn, reply: Reply, report: tuple[Draft, ...], told: tuple[Draft, ...]
) -> Generator[Effect, Any, Ended]:
    """End a turn with the answer, or without one; all in one append."""
    if not reply.text.strip():
        yield Record(report)  # reasoning without an answer is neither sent nor kept
        error = f"the model ended without an answer (it stopped by {reply.stop})"
        return (yield from _fail_turn(turn, "no_answer", error))
    return (yield from _complete_turn(turn, reply.text, told, reply.stop))


def _complete_turn(
    turn: _Turn, text: str, told: tuple[Draft, ...] = (), stop: str = "end"
) -> Generator[Effect, Any, Ended]:
    yield Record((*told, drafts.draft_end("turn_completed", turn.order.turn, stop=stop)))
    return replace(turn.make_ended("completed", text), stop=stop)


# ── the model ───────────────────────────────────────────────────────────────────────────────────


def _answer(turn: _Turn, number: int) -> Generator[Effect, Any, Heard | Ended]:
    """Return the model's answer, after recovery if that helps; else the end of the turn."""
    prepared: Ready | NotReady = yield Prepare()
    if isinstance(prepared, NotReady):
        return (yield from _fail_turn(turn, prepared.reason, prepared.text))
    ready, plain, recovering = prepared, 0, False
    while True:
        over = _over_budget(turn, ready, recovering=recovering)
        if over:
            return (yield from _fail_turn(turn, "budget", over))
        heard: Heard | Failed = yield Send()
        if isinstance(heard, Heard):
            _count_answer(turn, heard)
            return heard
        if heard.partial:
            yield Record((drafts.draft_answer(turn.order, number, heard.partial, partial=True),))
        plain += heard.lost
        if heard.stalled or (heard.lost and (heard.called or plain > PLAIN_RETRIES)):
            return (yield from _end_unanswered(turn, heard))
        again: Ready | None = yield Recover(heard)
        if again is None:
            return (yield from _end_unanswered(turn, heard))
        ready, recovering = again, True


def _over_budget(turn: _Turn, ready: Ready, *, recovering: bool) -> str:
    budget = turn.order.budget
    if budget is None:
        return ""
    refusal = budget.allows(
        turn.spent, tokens=ready.tokens, dollars=ready.dollars, recovering=recovering
    )
    return refusal.text if refusal is not None else ""


def _count_answer(turn: _Turn, heard: Heard) -> None:
    """Add an answer to the totals; unreported usage counts as nothing."""
    turn.rounds += 1
    found = heard.reply.usage
    if found is not None:
        turn.usage += found
        tokens = found.prompt_tokens + found.output + found.reasoning
        turn.spent = turn.spent.charge("call", tokens, heard.dollars)


def _count_delegated(turn: _Turn, outcomes: Sequence[ToolOutcome]) -> None:
    """Add the usage of models that tools called."""
    for outcome in outcomes:
        if outcome.usage is not None:
            used = outcome.usage
            turn.delegated += used
            tokens = used.prompt_tokens + used.output + used.reasoning
            turn.spent = turn.spent.charge("subagent", tokens, outcome.dollars)


def _end_unanswered(turn: _Turn, failed: Failed) -> Generator[Effect, Any, Ended]:
    """End a turn after a failed call, with the known facts about the failure."""
    if failed.stalled:
        reason = "stalled"
    else:
        size = failed.kind.kind in ("input", "total")
        reason = "context_overflow" if size else "provider_error"
    return (yield from _fail_turn(turn, reason, failed.text, failed.partial))


def _fail_turn(
    turn: _Turn, reason: str, error: str, text: str = ""
) -> Generator[Effect, Any, Ended]:
    """Record the failure of the turn; if the cause is unclear, with commands to continue."""
    unclear = reason in ("stalled", "crashed", "provider_error")
    commands = list(turn.order.commands) if unclear else []
    data = {"reason": reason, "error": error, "commands": commands}
    yield Record((drafts.draft_end("turn_failed", turn.order.turn, **data),))
    return turn.make_ended("failed", text, reason, error)


def _close_open_calls(turn: _Turn, reason: str, partial: str) -> Generator[Effect, Any, None]:
    """Record the work in progress: partial text, and calls without a result.

    A call that was never started is recorded as not run.
    """
    left = [
        make_orphan_result(call, reason)
        if call.call_id in turn.started
        else drafts.draft_unrun(Call(call.call_id, call.name, call.arguments), reason)
        for call in turn.fold.open_calls
    ]
    if partial:
        left.insert(0, drafts.draft_answer(turn.order, turn.rounds + 1, partial, partial=True))
    if left:
        yield Record(tuple(left))


# ── tools ───────────────────────────────────────────────────────────────────────────────────────


def _run(
    turn: _Turn, calls: Sequence[Call], keys: Sequence[str], known: Sequence[Intent] | None = None
) -> Generator[Effect, Any, Ended | None]:
    """Run calls in order, consecutive read-only ones in parallel; record their results.

    A denial by rule ends the turn. A person's refusal does not, and neither does plan mode, until
    too many consecutive calls would have changed something. Every call gets a result.
    """
    place = 0
    while place < len(calls):
        size = _together(known, place) if known is not None else 1
        group = calls[place : place + size]
        settled: list[Draft | None] = []
        for call in group:
            verdict = yield from _permit(turn, call)
            if isinstance(verdict, str):
                rest = calls[place:]
                return (yield from _end_denied(turn, call, verdict, rest, settled))
            settled.append(verdict)
        ran = [i for i, result in enumerate(settled) if result is None]
        outcomes: Sequence[ToolOutcome] = ()
        if ran:
            turn.started.update(group[i].id for i in ran)
            left = divide_budget(turn.order.budget, turn.spent, len(ran))
            picked = tuple(group[i] for i in ran)
            outcomes = yield RunTools(picked, tuple(keys[place + i] for i in ran), left)
            _count_delegated(turn, outcomes)
        came = dict(zip(ran, outcomes, strict=True))
        yield Record(
            tuple(settled[i] or drafts.result(call, came[i]) for i, call in enumerate(group))
        )
        place += size
    return None


def _together(known: Sequence[Intent], place: int) -> int:
    """Return how many calls from here on may run in parallel."""
    size = 0
    while place + size < len(known) and known[place + size].reads_only:
        size += 1
    return max(size, 1)


def _permit(turn: _Turn, call: Call) -> Generator[Effect, Any, Draft | str | None]:
    """Return None if a call may run, else its result; a text is a denial that ends the turn.

    The decision is recorded. A call that must fail is refused without asking anybody.
    """
    decision: Decision = yield Decide(call)
    if decision.verdict == "deny":
        yield Record((drafts.record_decision(call, "deny", decision),))
        turn.refused += 1
        planned = decision.by == "mode" and turn.refused < STUBBORN
        return drafts.draft_unrun(call, decision.reason) if planned else str(decision.reason)
    if decision.verdict == "allow":
        turn.refused = 0
        if decision.by == "grant":
            yield Record((drafts.record_decision(call, "allow", decision),))
        return None
    pending: Pending | ToolOutcome = yield Rehearse(call)
    if not isinstance(pending, Pending):
        return drafts.result(call, pending)
    consent: Consent | None = yield Ask(pending, decision.reason)
    if consent is None:
        yield Record((drafts.record_decision(call, "deny", decision),))
        return f"{decision.reason}: {NOBODY}" if decision.reason else NOBODY
    word = "allow" if consent.allowed else "deny"
    yield Record((drafts.record_decision(call, word, decision, consent),))
    if consent.allowed:
        return None
    return drafts.draft_unrun(call, f"{NO}: {consent.reason}" if consent.reason else NO)


def _end_denied(
    turn: _Turn, call: Call, why: str, left: Sequence[Call], settled: Sequence[Draft | None]
) -> Generator[Effect, Any, Ended]:
    """End the turn on a denial: `left` are the calls without a result, including `call`."""
    others = "the turn ended because another call was denied"
    results = dict(enumerate(settled))
    yield Record(
        tuple(
            results.get(i)
            or drafts.draft_unrun(other, f"permission denied: {why}" if other is call else others)
            for i, other in enumerate(left)
        )
    )
    return (yield from _fail_turn(turn, "permission_denied", f"{call.name} was denied: {why}"))
