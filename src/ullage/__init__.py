"""ullage keeps conversations with language models inside their context window.

The names below are the public face; everything else is internal. They are loaded on first use,
so that `import ullage` does no I/O and pulls in neither an event loop nor an HTTP client.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ullage.api import (
        Compaction,
        acompact,
        acount,
        amodels,
        assess,
        awindow,
        compact,
        count,
        count_text,
        models,
        repair,
        validate,
        window,
        window_tokens,
    )
    from ullage.core import edits, errors, events
    from ullage.core.counting import Count
    from ullage.core.errors import (
        CompactionError,
        ConfigurationError,
        ContextTooLargeError,
        ContextWindowUnknown,
        ErrorKind,
        MalformedHistoryError,
        ProviderError,
        StoreError,
        UllageError,
    )
    from ullage.core.gauge import Assessment, Thresholds
    from ullage.core.policies.policy import Policy, Rung
    from ullage.core.policies.summarise import SummaryRequest
    from ullage.core.usage import Usage
    from ullage.core.window import Claim, Window
    from ullage.failures import classify_error, classify_exception
    from ullage.guard import Guard, View
    from ullage.runtime import Runtime

__version__ = "0.1.0.dev0"

_HOME: Mapping[str, Sequence[str]] = {
    "ullage.api": (
        "Compaction", "acompact", "acount", "amodels", "assess", "awindow", "compact", "count",
        "count_text", "models", "repair", "validate", "window", "window_tokens",
    ),
    "ullage.core.counting": ("Count",),
    "ullage.core.errors": (
        "CompactionError", "ConfigurationError", "ContextTooLargeError", "ContextWindowUnknown",
        "ErrorKind", "MalformedHistoryError", "ProviderError", "StoreError", "UllageError",
    ),
    "ullage.core.gauge": ("Assessment", "Thresholds"),
    "ullage.core.policies.policy": ("Policy", "Rung"),
    "ullage.core.policies.summarise": ("SummaryRequest",),
    "ullage.core.usage": ("Usage",),
    "ullage.core.window": ("Claim", "Window"),
    "ullage.failures": ("classify_error", "classify_exception"),
    "ullage.guard": ("Guard", "View"),
    "ullage.runtime": ("Runtime",),
}  # fmt: skip

_ROOMS: Mapping[str, str] = {
    "edits": "ullage.core.edits",
    "errors": "ullage.core.errors",
    "events": "ullage.core.events",
}

__all__ = [
    "Assessment", "Claim", "Compaction", "CompactionError", "ConfigurationError",
    "ContextTooLargeError", "ContextWindowUnknown", "Count", "ErrorKind", "Guard",
    "MalformedHistoryError", "Policy", "ProviderError", "Rung", "Runtime", "StoreError",
    "SummaryRequest", "Thresholds", "UllageError", "Usage", "View", "Window", "acompact", "acount",
    "amodels", "assess", "awindow", "classify_error", "classify_exception", "compact", "count",
    "count_text", "edits", "errors", "events", "models", "repair", "validate", "window",
    "window_tokens",
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
