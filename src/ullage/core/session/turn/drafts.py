"""The events that a turn records, as drafts: one function per occasion."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from ullage.core.dialects.usage import Usage
from ullage.core.session.log.event import Draft
from ullage.core.session.log.fold import Round

if TYPE_CHECKING:
    from ullage.core.dialects.reply import Reply
    from ullage.core.messages.transcript import Call
    from ullage.core.session.log.fold import Fold
    from ullage.core.session.permissions import Consent, Decision
    from ullage.core.session.tools import Intent, ToolOutcome
    from ullage.core.session.turn.effects import Heard, TurnOrder


GO_ON: Final = "Go on."
"""The text of a turn that is tried again without a new message."""


def draft_opening(order: TurnOrder, fold: Fold) -> tuple[Draft, ...]:
    """Return the drafts for the beginning of a turn: mentioned skills, the message, the start."""
    made = [Draft("skill_activation", {"name": s.name, "hash": s.hash}) for s in order.skills]
    said: dict[str, Any] = {"text": order.text or ""}
    if order.parts:
        said["parts"] = [dict(part) for part in order.parts]
    made.append(Draft("user_message", said))
    return (*made, draft_start(order, fold))


def draft_retry(order: TurnOrder, fold: Fold) -> tuple[Draft, ...]:
    """Return the drafts for the beginning of a turn that tries the last one again.

    If the history ends with the model's own text, a user message is added; otherwise the model
    would continue its text.
    """
    last = fold.items[-1] if fold.items else None
    spoke = isinstance(last, Round) and last.sent and not last.calls
    said = [Draft("user_message", {"text": GO_ON})] if spoke else []
    return (*said, draft_start(order, fold))


def draft_start(order: TurnOrder, fold: Fold) -> Draft:
    """Return the start of a turn, with the model's server if that is new."""
    data: dict[str, Any] = {"turn": order.turn, "mode": order.mode, "permission": order.permission}
    data["model"] = order.model
    if order.again:
        data["again"] = order.again
    if order.served and dict(order.served) != dict(fold.served):
        data["served"] = dict(order.served)
    return Draft("turn_started", {**data, "dry_run": True} if order.dry_run else data)


def key(order: TurnOrder, number: int, place: int) -> str:
    """Return the idempotency key of a call: the same after a crash."""
    return f"{order.turn}-{number}-{place}"


def usage(order: TurnOrder, number: int, heard: Heard) -> tuple[Draft, ...]:
    """Return the report of a round and further events; unreported numbers are left out."""
    reply = heard.reply
    data: dict[str, Any] = {"model": order.model, "round": number, "stop": reply.stop}
    if reply.usage is not None:
        data |= {name: getattr(reply.usage, name) for name in Usage.__slots__}
    if heard.dollars is not None:
        data["dollars"] = heard.dollars
    return (Draft("provider_usage", {**data, **heard.context}), *heard.beside)


def answer(order: TurnOrder, number: int, reply: Reply) -> Iterator[Draft]:
    """Yield the model's reasoning and text in a round."""
    for block in reply.thoughts:
        thought = {"model": order.model, "dialect": order.dialect, "round": number}
        yield Draft("reasoning", {**thought, "block": dict(block)})
    if reply.text:
        yield draft_answer(order, number, reply.text)


def draft_answer(order: TurnOrder, number: int, text: str, **more: Any) -> Draft:
    """Return a text of the model."""
    return Draft("assistant_message", {"text": text, "model": order.model, "round": number, **more})


def calls(
    order: TurnOrder, number: int, asked: Sequence[Call], known: Sequence[Intent]
) -> Iterator[Draft]:
    """Yield the calls of a round: the intent, stored before anything runs."""
    for place, (call, intent) in enumerate(zip(asked, known, strict=True)):
        data: dict[str, Any] = {"call_id": call.id, "name": call.name, "arguments": call.arguments}
        data |= {"model": order.model, "round": number, "key": key(order, number, place)}
        yield Draft("tool_call", {**data, **intent._asdict()})


def record_decision(
    call: Call, verdict: str, decision: Decision, consent: Consent | None = None
) -> Draft:
    """Return the decision on a call, its source, and a person's answer with its scope.

    `reason` is that of the check, `said` that of the person.
    """
    data = {"call_id": call.id, "decision": verdict, "reason": decision.reason, "by": decision.by}
    if consent is not None:
        more = {"said": consent.reason, "pattern": consent.pattern}
        data |= {"scope": consent.scope, **{name: text for name, text in more.items() if text}}
    return Draft("permission_decision", data)


def result(call: Call, outcome: ToolOutcome) -> Draft:
    """Return the result of a call."""
    data: dict[str, Any] = {"call_id": call.id, "text": outcome.text, "is_error": outcome.is_error}
    if outcome.exit_code is not None:
        data["exit_code"] = outcome.exit_code
    if outcome.marks:
        data["marks"] = dict(outcome.marks)
    if outcome.reach:
        data["reach"] = sorted(outcome.reach)
    return Draft("tool_result", data)


def draft_unrun(call: Call, reason: str) -> Draft:
    """Return the result of a call that was not run."""
    text = f"not run: {reason}"
    data = {"call_id": call.id, "text": text, "is_error": True, "marks": {"not_run": reason}}
    return Draft("tool_result", data)


def draft_end(kind: str, turn: str, **more: Any) -> Draft:
    """Return the end of a turn."""
    return Draft(kind, {"turn": turn, **{k: v for k, v in more.items() if v}})
