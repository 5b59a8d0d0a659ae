"""ullage keeps conversations with language models inside their context window.

The names below are the public API; everything else is internal. They are loaded on first use, so
that `import ullage` does no I/O and loads neither an event loop nor an HTTP client.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ullage import agent, replay
    from ullage.agent import Agent, Ended, Live, Session
    from ullage.agent.purging import list_old_sessions, purge_sessions
    from ullage.agent.retention import RetentionRules, apply_retention, plan_retention
    from ullage.api.compact import Compaction, acompact, compact
    from ullage.api.context import Contents, context
    from ullage.api.functions import (
        acount,
        amodels,
        assess,
        awindow,
        cost,
        count,
        count_text,
        detect_truncation,
        models,
        repair,
        validate,
        window,
        window_tokens,
    )
    from ullage.api.recall import answer_recall, list_left_out, recall, recall_tool
    from ullage.api.search import answer_search, search, search_tool
    from ullage.api.tally import Tally
    from ullage.api.wrap import wrap
    from ullage.core import errors
    from ullage.core.compaction import edits
    from ullage.core.compaction.policy import Policy, Rung
    from ullage.core.compaction.strategy import Strategy
    from ullage.core.dialects.usage import Usage
    from ullage.core.errors import (
        BusyWriter,
        CompactionError,
        ConfigurationError,
        ContextTooLargeError,
        ContextWindowUnknown,
        CorruptLog,
        ErrorKind,
        Fenced,
        MalformedHistoryError,
        ProviderError,
        QueueFull,
        StoreAway,
        StoreError,
        UllageError,
        UnknownSession,
    )
    from ullage.core.guard import events
    from ullage.core.session.instructions import Context, developer_context, system_prompt
    from ullage.core.session.permissions import Consent
    from ullage.core.summary.question import Answer, SummaryRequest
    from ullage.core.tokens.budget import Fit, Spent, TurnBudget, allocate, fit
    from ullage.core.tokens.claim import Claim
    from ullage.core.tokens.cost import Cost
    from ullage.core.tokens.counting import Count
    from ullage.core.tokens.gauge import Assessment, Thresholds
    from ullage.core.tokens.truncation import Truncation
    from ullage.core.tokens.window import Window
    from ullage.guard.driver import Pause
    from ullage.guard.guard import Guard
    from ullage.guard.summarizer import Summarizer
    from ullage.guard.view import View
    from ullage.providers import Provider, StreamProvider
    from ullage.runtime import Runtime
    from ullage.sdk.errors import classify_error, classify_exception
    from ullage.storage import Store, open_log, open_store, register_store
    from ullage.telemetry import metrics
    from ullage.workers import JobOutcome, JobQueue, TenantLimits, Ticket, TurnWorker

__version__ = "0.1.0.dev0"

_HOME: Mapping[str, Sequence[str]] = {
    "ullage.agent": ("Agent", "Ended", "Live", "Session"),
    "ullage.agent.purging": ("list_old_sessions", "purge_sessions"),
    "ullage.agent.retention": ("RetentionRules", "apply_retention", "plan_retention"),
    "ullage.api.functions": (
        "acount", "amodels", "assess", "awindow", "cost", "count", "count_text",
        "detect_truncation", "models", "repair", "validate", "window", "window_tokens",
    ),
    "ullage.api.compact": ("Compaction", "acompact", "compact"),
    "ullage.api.context": ("Contents", "context"),
    "ullage.core.tokens.budget": ("Fit", "Spent", "TurnBudget", "allocate", "fit"),
    "ullage.core.tokens.cost": ("Cost",),
    "ullage.core.tokens.counting": ("Count",),
    "ullage.core.errors": (
        "BusyWriter", "CompactionError", "ConfigurationError", "ContextTooLargeError",
        "ContextWindowUnknown", "CorruptLog", "ErrorKind", "Fenced", "MalformedHistoryError",
        "ProviderError", "QueueFull", "StoreAway", "StoreError", "UllageError", "UnknownSession",
    ),
    "ullage.core.tokens.gauge": ("Assessment", "Thresholds"),
    "ullage.core.session.instructions": ("Context", "developer_context", "system_prompt"),
    "ullage.core.session.permissions": ("Consent",),
    "ullage.core.compaction.policy": ("Policy", "Rung"),
    "ullage.core.compaction.strategy": ("Strategy",),
    "ullage.core.summary.question": ("Answer", "SummaryRequest"),
    "ullage.core.tokens.truncation": ("Truncation",),
    "ullage.core.dialects.usage": ("Usage",),
    "ullage.core.tokens.claim": ("Claim",),
    "ullage.core.tokens.window": ("Window",),
    "ullage.guard.driver": ("Pause",),
    "ullage.sdk.errors": ("classify_error", "classify_exception"),
    "ullage.guard.guard": ("Guard",),
    "ullage.api.recall": ("answer_recall", "list_left_out", "recall", "recall_tool"),
    "ullage.api.search": ("answer_search", "search", "search_tool"),
    "ullage.providers": ("Provider", "StreamProvider"),
    "ullage.runtime": ("Runtime",),
    "ullage.storage": ("Store", "open_log", "open_store", "register_store"),
    "ullage.guard.summarizer": ("Summarizer",),
    "ullage.api.tally": ("Tally",),
    "ullage.guard.view": ("View",),
    "ullage.api.wrap": ("wrap",),
    "ullage.workers": ("JobQueue", "JobOutcome", "TenantLimits", "Ticket", "TurnWorker"),
}  # fmt: skip

_ROOMS: Mapping[str, str] = {
    "agent": "ullage.agent",
    "edits": "ullage.core.compaction.edits",
    "errors": "ullage.core.errors",
    "events": "ullage.core.guard.events",
    "metrics": "ullage.telemetry.metrics",
    "replay": "ullage.replay",
}

__all__ = [
    "Agent", "Answer", "Assessment", "BusyWriter", "Claim", "Compaction", "CompactionError",
    "ConfigurationError", "Consent", "Contents", "Context", "ContextTooLargeError",
    "ContextWindowUnknown", "CorruptLog", "Cost", "Count", "Ended", "ErrorKind", "Fenced", "Fit",
    "Guard", "JobOutcome", "JobQueue", "Live", "MalformedHistoryError", "Pause", "Policy",
    "Provider", "ProviderError", "QueueFull", "RetentionRules", "Rung", "Runtime", "Session",
    "Spent", "Store", "StoreAway", "StoreError", "Strategy", "StreamProvider", "Summarizer",
    "SummaryRequest", "Tally", "TenantLimits", "Thresholds", "Ticket", "Truncation", "TurnBudget",
    "TurnWorker", "UllageError", "UnknownSession", "Usage", "View", "Window", "acompact", "acount",
    "agent", "allocate", "amodels", "answer_recall", "answer_search", "apply_retention", "assess",
    "awindow", "classify_error", "classify_exception", "compact", "context", "cost", "count",
    "count_text", "detect_truncation", "developer_context", "edits", "errors", "events", "fit",
    "list_left_out", "list_old_sessions", "metrics", "models", "open_log", "open_store",
    "plan_retention", "purge_sessions", "recall", "recall_tool", "register_store", "repair",
    "replay", "search", "search_tool", "system_prompt", "validate", "window", "window_tokens",
    "wrap",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Load a public name on first use (PEP 562)."""
    if name in _ROOMS:
        return import_module(_ROOMS[name])
    for home, names in _HOME.items():
        if name in names:
            value = getattr(import_module(home), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module 'ullage' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
