"""Shows the events of a guard to the listeners of the session.

It records nothing: lasting events are in the log by then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ullage.agent.session import Live
from ullage.core.compaction.reasons import explain_reason
from ullage.core.guard.events import (
    CacheBust,
    Compacted,
    CompactionFailed,
    CompactionFault,
    ContextPressure,
    Notice,
    SummaryProgress,
)
from ullage.core.guard.learning import LOOK
from ullage.core.summary.flaws import name_strategies

if TYPE_CHECKING:
    from ullage.agent.session import Session
    from ullage.core.guard.events import Event


def show_event(session: Session, event: Event) -> None:
    """Show an event of a guard; lasting ones are recorded by then."""
    if isinstance(event, ContextPressure):
        found = event.assessment
        tier = event.tier if found.available else found.tier
        data = {**found.to_dict(), "tier": tier, "phase": event.phase, "meter": found.meter()}
        session.publish(Live(session.name, "context_pressure", data))
    elif isinstance(event, Notice):
        text, look, _ = event.text.partition(LOOK)
        text += look and f"{look}ullage compact {session.name} --dry-run"
        session.publish(Live(session.name, "status", {"text": text}))
    elif isinstance(event, Compacted):
        made = event.checkpoint
        text = (
            f"compacted {made.tokens_before:,} -> {made.tokens_after:,} tokens "
            f"({name_strategies(made.strategy, made.fallback_reason)}, {made.trigger})"
        )
        session.publish(Live(session.name, "status", {"text": text}))
    elif isinstance(event, CompactionFault):
        text = f"asked again for what a compaction left out: {event.label}"
        session.publish(Live(session.name, "status", {"text": text}))
    elif isinstance(event, CacheBust):
        text = f"the provider's cache was lost ({event.kind}): {event.tokens:,} tokens again"
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
