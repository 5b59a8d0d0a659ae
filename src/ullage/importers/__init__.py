"""Imports existing sessions of Claude Code, Codex and opencode, and messages and requests.

`load` reads a file tolerantly into an `ImportedSession`, `latest` and `find` return its path, and
`tail` reads only its last report. Facts that are not in a file stay unknown: no window is assumed,
no report is invented. It knows no windows, no counting and no views. Each name is loaded on first
use, because `tail` runs at every shell prompt.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from ullage.importers.loading import SAMPLE, SOURCES, content, find, latest, load, parse
    from ullage.importers.session import (
        NOT_IN_FILE,
        BrokenJson,
        CallReport,
        ImportedSession,
        ModelTurn,
        NoMessages,
    )

__all__ = [
    "NOT_IN_FILE",
    "SAMPLE",
    "SOURCES",
    "BrokenJson",
    "CallReport",
    "ImportedSession",
    "ModelTurn",
    "NoMessages",
    "content",
    "find",
    "latest",
    "load",
    "parse",
]

_LOADING: Final = frozenset({"SAMPLE", "SOURCES", "content", "find", "latest", "load", "parse"})


def __getattr__(name: str) -> Any:
    """Load a name on first use (PEP 562)."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = "loading" if name in _LOADING else "session"
    return getattr(import_module(f"{__name__}.{home}"), name)
