"""What the guard of a session tells, as what those who listen to the session are shown.

What lasts is recorded by then; it decides and records nothing.
"""

from __future__ import annotations

from ullage.agent.session import Live, Session
from ullage.core.compaction.plan import explain_reason
from ullage.core.guard.events import (
    Compacted,
    CompactionFailed,
    ContextPressure,
    Event,
    Notice,
    SummaryProgress,
)
from ullage.core.guard.learning import NEXT
from ullage.core.summary.flaws import name_strategies


def publish_guard_event(session: Session, event: Event) -> None:
    """Show what a guard tells; what lasts is recorded by then."""
    if isinstance(event, ContextPressure):
        found = event.assessment
        data = {**found.to_dict(), "tier": event.tier, "phase": event.phase, "meter": found.meter()}
        session.publish(Live(session.name, "context_pressure", data))
    elif isinstance(event, Notice):
        text = event.text.replace(NEXT, f"Look first: ullage compact {session.name} --dry-run")
        session.publish(Live(session.name, "status", {"text": text}))
    elif isinstance(event, Compacted):
        made = event.checkpoint
        text = (
            f"compacted {made.tokens_before:,} -> {made.tokens_after:,} tokens "
            f"({name_strategies(made.strategy, made.fallback_reason)}, {made.trigger})"
        )
        session.publish(Live(session.name, "status", {"text": text}))
    elif isinstance(event, SummaryProgress):
        told = {"state": "summarising", "done": event.done, "total": event.total}
        session.publish(Live(session.name, "status", told))
    elif isinstance(event, CompactionFailed):
        text = f"not compacted: {explain_reason(event.reason)}"
        session.publish(Live(session.name, "status", {"text": text}))
    elif reason := getattr(event, "reason", ""):
        name = type(event).__name__
        session.publish(Live(session.name, "status", {"text": f"{name}: {reason}"}))
