"""Finds windows: asks the chat's server and provider listings, and reads the bundled table.

`Resolver` collects claims and passes them to `core.tokens.window.resolve`. It knows no conversation
and no policy. Each name is loaded on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from ullage.windows.question import Question, ask_marked, read_window, strip_mark
    from ullage.windows.resolver import Resolver, ResolverOptions

__all__ = [
    "Question",
    "Resolver",
    "ResolverOptions",
    "ask_marked",
    "read_window",
    "strip_mark",
]

_QUESTION: Final = frozenset({"Question", "ask_marked", "read_window", "strip_mark"})


def __getattr__(name: str) -> Any:
    """Load a name on first use (PEP 562)."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = "question" if name in _QUESTION else "resolver"
    return getattr(import_module(f"{__name__}.{home}"), name)
