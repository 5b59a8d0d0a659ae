"""Stores for checkpoints, conversations, originals and logs: memory, an SQLite file, PostgreSQL.

`open_store` and `open_log` choose the kind by the URL; one database holds a store and a log. SQLite
and PostgreSQL are loaded when the first such store is opened, and each name here on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ullage.core.errors import BusyWriter
    from ullage.storage.checking import check_log, check_store
    from ullage.storage.memory import MemoryCheckpoints, MemoryConversations, MemoryStore
    from ullage.storage.opening import has_log, open_log, open_store
    from ullage.storage.postgres_url import hide_password
    from ullage.storage.protocol import Store, StoreLimits
    from ullage.storage.schemes import register_store

_HOME: Final[Mapping[str, str]] = {
    "BusyWriter": "ullage.core.errors",
    "MemoryCheckpoints": "ullage.storage.memory",
    "MemoryConversations": "ullage.storage.memory",
    "MemoryStore": "ullage.storage.memory",
    "Store": "ullage.storage.protocol",
    "StoreLimits": "ullage.storage.protocol",
    "check_log": "ullage.storage.checking",
    "check_store": "ullage.storage.checking",
    "has_log": "ullage.storage.opening",
    "hide_password": "ullage.storage.postgres_url",
    "open_log": "ullage.storage.opening",
    "open_store": "ullage.storage.opening",
    "register_store": "ullage.storage.schemes",
}

__all__ = [
    "BusyWriter",
    "MemoryCheckpoints",
    "MemoryConversations",
    "MemoryStore",
    "Store",
    "StoreLimits",
    "check_log",
    "check_store",
    "has_log",
    "hide_password",
    "open_log",
    "open_store",
    "register_store",
]


def __getattr__(name: str) -> Any:
    """Load a name on first use (PEP 562)."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
