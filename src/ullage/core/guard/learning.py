"""What a response teaches: the size as reported, a ratio to count by, a prompt that was cut.

Pure: a driver feeds in what came back, and carries out what is learned. It plans nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal

from ullage.core.dialects.usage import Usage
from ullage.core.guard.events import Answered, ContextPressure, Event, Notice, TruncationDetected
from ullage.core.tokens.calibration import ReportedSize
from ullage.core.tokens.cost import cost
from ullage.core.tokens.gauge import Assessment, assess
from ullage.core.tokens.truncation import Truncation, detect, finish_reason, is_edited_by_server

if TYPE_CHECKING:
    from ullage.core.compaction.checkpoint import Checkpoint
    from ullage.core.guard.conversation import Conversation
    from ullage.core.guard.request import Prepared, Setup


@dataclass(frozen=True, slots=True)
class Observation:
    """What a response taught: the usage, the assessment by it, and what else may be learned.

    `reading` calibrates, None where the report must not teach. `limit` is a ceiling in tokens
    that a truncation proved. `conversation` is what to remember until the next call.
    """

    usage: Usage | None
    assessment: Assessment
    conversation: Conversation
    reading: ReportedSize | None = None
    checkpoint: Checkpoint | None = None
    limit: int | None = None
    events: tuple[Event, ...] = ()


def observe(setup: Setup, sent: Prepared, report: Any) -> Observation:
    """Learn from a response or usage report. Pure; an unreadable report teaches nothing.

    A truncated prompt calibrates nothing and is no size of the conversation. What the server
    itself edited (`truncation: auto`, `context_management`) is neither.
    """
    usage = Usage.from_report(report)
    if usage is None or usage.prompt_tokens == 0:
        return Observation(None, sent.assessment, sent.conversation)
    found = assess(usage, sent.window, thresholds=setup.policy.thresholds)
    pressure = ContextPressure(found, sent.conversation.shown.tier, "reported")
    priced = cost(usage, setup.prices) if setup.prices else None
    answered = Answered(usage, priced, setup.model)
    if is_edited_by_server(report):
        return Observation(usage, found, sent.conversation, events=(pressure, answered))
    cut = _detect_truncation(sent, usage, report)
    if cut is not None:
        limit = cut.limit if cut.certain else None
        events: tuple[Event, ...] = (pressure, answered)
        if not sent.conversation.cut:  # told of once, until something was done about it
            events = (*events, TruncationDetected(cut))
        conversation = replace(sent.conversation, cut=True)
        return Observation(usage, found, conversation, limit=limit, events=events)
    reported = usage.prompt_tokens
    conversation = sent.conversation.with_report(reported, sent.measured, sent.sent)
    made, measured = sent.checkpoint, sent.measured
    conversation, told = show(setup, made or sent.replayed, conversation, found, "reported")
    return Observation(
        usage,
        found,
        conversation,
        ReportedSize(reported, measured.total.best, measured.fixed.best),
        made.with_usage(usage) if made is not None else None,
        events=(*told, answered),
    )


def _detect_truncation(sent: Prepared, usage: Usage, report: Any) -> Truncation | None:
    """Return what shows that the server cut the prompt. An unproven bound is no sign of it.

    What this request extends is an earlier report, not the server's count of this very request.
    """
    anchor = sent.measured.anchor
    earlier = anchor is not None and anchor.raw != sent.measured.raw()
    return detect(
        usage,
        sent.count,
        sent.window.input_tokens if sent.window.proven else None,
        before=anchor.tokens if anchor is not None and earlier else None,
        finish=finish_reason(report),
    )


def show(
    setup: Setup,
    checkpoint: Checkpoint | None,
    conversation: Conversation,
    found: Assessment,
    phase: Literal["prepared", "reported"],
) -> tuple[Conversation, tuple[Event, ...]]:
    """Return the conversation with the tier it now shows, and what people are told of it."""
    name = f"{checkpoint.prefix}/{checkpoint.generation}" if checkpoint is not None else ""
    shown, due = conversation.shown.after(found, name, setup.policy.thresholds)
    events: list[Event] = [ContextPressure(found, shown.tier, phase)]
    if due:
        events.append(Notice(f"{found.notice()}. {NEXT}"))
    return replace(conversation, shown=shown), tuple(events)


NEXT: Final = "Look first: ullage.compact(messages, target_ratio=0.6, dry_run=True)"
"""What a notice of pressure proposes, the dry run first (the measuring page)."""
