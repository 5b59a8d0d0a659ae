"""ullage keeps conversations with language models inside their context window.

The names below are the public face; everything else is internal. They are loaded on first use,
so that `import ullage` does no I/O and pulls in neither an event loop nor an HTTP client.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ullage import agent, metrics
    from ullage.agent import Agent, Ended, Live, Session
    from ullage.api import (
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
    from ullage.compaction import Compaction, acompact, compact
    from ullage.contents import Contents, context
    from ullage.core import edits, errors, events
    from ullage.core.budget import Fit, Spent, TurnBudget, allocate, fit
    from ullage.core.cost import Cost
    from ullage.core.counting import Count
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
        StoreError,
        UllageError,
        UnknownSession,
    )
    from ullage.core.gauge import Assessment, Thresholds
    from ullage.core.instructions import developer_context, system_prompt
    from ullage.core.permissions import Consent
    from ullage.core.policies.policy import Policy, Rung
    from ullage.core.summary import Answer, SummaryRequest
    from ullage.core.truncation import Truncation
    from ullage.core.usage import Usage
    from ullage.core.window import Claim, Window
    from ullage.driving import Pause
    from ullage.failures import classify_error, classify_exception
    from ullage.guard import Guard
    from ullage.originals import answer_recall, recall, recall_tool
    from ullage.providers import Provider
    from ullage.runtime import Runtime
    from ullage.storage import Store, open_log, open_store
    from ullage.summarizers import Summarizer
    from ullage.tally import Tally
    from ullage.view import View
    from ullage.wrapping import wrap

__version__ = "0.1.0.dev0"

_HOME: Mapping[str, Sequence[str]] = {
    "ullage.agent": ("Agent", "Ended", "Live", "Session"),
    "ullage.api": (
        "acount", "amodels", "assess", "awindow", "cost", "count", "count_text",
        "detect_truncation", "models", "repair", "validate", "window", "window_tokens",
    ),
    "ullage.compaction": ("Compaction", "acompact", "compact"),
    "ullage.contents": ("Contents", "context"),
    "ullage.core.budget": ("Fit", "Spent", "TurnBudget", "allocate", "fit"),
    "ullage.core.cost": ("Cost",),
    "ullage.core.counting": ("Count",),
    "ullage.core.errors": (
        "BusyWriter", "CompactionError", "ConfigurationError", "ContextTooLargeError",
        "ContextWindowUnknown", "CorruptLog", "ErrorKind", "Fenced", "MalformedHistoryError",
        "ProviderError", "StoreError", "UllageError", "UnknownSession",
    ),
    "ullage.core.gauge": ("Assessment", "Thresholds"),
    "ullage.core.instructions": ("developer_context", "system_prompt"),
    "ullage.core.permissions": ("Consent",),
    "ullage.core.policies.policy": ("Policy", "Rung"),
    "ullage.core.summary": ("Answer", "SummaryRequest"),
    "ullage.core.truncation": ("Truncation",),
    "ullage.core.usage": ("Usage",),
    "ullage.core.window": ("Claim", "Window"),
    "ullage.driving": ("Pause",),
    "ullage.failures": ("classify_error", "classify_exception"),
    "ullage.guard": ("Guard",),
    "ullage.originals": ("answer_recall", "recall", "recall_tool"),
    "ullage.providers": ("Provider",),
    "ullage.runtime": ("Runtime",),
    "ullage.storage": ("Store", "open_log", "open_store"),
    "ullage.summarizers": ("Summarizer",),
    "ullage.tally": ("Tally",),
    "ullage.view": ("View",),
    "ullage.wrapping": ("wrap",),
}  # fmt: skip

_ROOMS: Mapping[str, str] = {
    "agent": "ullage.agent",
    "edits": "ullage.core.edits",
    "errors": "ullage.core.errors",
    "events": "ullage.core.events",
    "metrics": "ullage.metrics",
}

__all__ = [
    "Agent", "Answer", "Assessment", "BusyWriter", "Claim", "Compaction", "CompactionError",
    "ConfigurationError", "Consent", "Contents", "ContextTooLargeError", "ContextWindowUnknown",
    "CorruptLog", "Cost", "Count", "Ended", "ErrorKind", "Fenced", "Fit", "Guard", "Live",
    "MalformedHistoryError", "Pause", "Policy", "Provider", "ProviderError", "Rung", "Runtime",
    "Session", "Spent", "Store", "StoreError", "Summarizer", "SummaryRequest", "Tally",
    "Thresholds", "Truncation", "TurnBudget", "UllageError", "UnknownSession", "Usage", "View",
    "Window",
    "acompact", "acount", "agent", "allocate", "amodels", "answer_recall", "assess", "awindow",
    "classify_error", "classify_exception", "compact", "context", "cost", "count", "count_text",
    "detect_truncation", "developer_context", "edits", "errors", "events", "fit", "metrics",
    "models", "open_log", "open_store", "recall", "recall_tool", "repair", "system_prompt",
    "validate", "window", "window_tokens", "wrap",
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
