"""Checks that a user's object is a store or a log, once, before it is used.

A missing method would otherwise show up in the middle of a conversation. It calls no method.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from ullage.core.errors import ConfigurationError
from ullage.storage.protocol import (
    AsyncCheckpoints,
    AsyncConversations,
    AsyncOriginals,
    Checkpoints,
    Conversations,
    Originals,
    Store,
)

if TYPE_CHECKING:
    from typing import TypeVar

    from ullage.storage.log import EventLog

    Log = TypeVar("Log", bound=EventLog)

PARTS: Final[Mapping[str, tuple[type, type]]] = MappingProxyType(
    {
        "checkpoints": (Checkpoints, AsyncCheckpoints),
        "conversations": (Conversations, AsyncConversations),
        "originals": (Originals, AsyncOriginals),
    }
)
"""The parts of a store: the methods that each must have, and its async methods, which are
optional."""


def check_store(store: Store | None) -> Store | None:
    """Return an open store, or None; raise ConfigurationError for anything else.

    The error names the first missing method, with its signature.
    """
    return None if store is None else require_store(store)


def require_store(store: Store) -> Store:
    """Do as `check_store`, but reject None."""
    if not any(hasattr(store, name) for name in PARTS):
        raise ConfigurationError(
            f"store takes an open store, not {store!r:.80}: open one with ullage.open_store(url)"
        )
    for lacking in _lacking_of_store(store):
        raise ConfigurationError(
            f"store {type(store).__name__} lacks {lacking}: add it (docs/recipes/store.md says "
            "what each method is to do)"
        )
    return store


def check_log(log: Log) -> Log:
    """Return a log of events; raise ConfigurationError if one of its methods is missing.

    A log that has one of the `a...` methods must have all of them.
    """
    from ullage.storage.log import AsyncEventLog, EventLog

    missing = list(_lacking(log, EventLog))
    if any(hasattr(log, method) for method in _methods(AsyncEventLog)):
        missing += _lacking(log, AsyncEventLog)
    for lacking in missing[:1]:
        raise ConfigurationError(
            f"log {type(log).__name__} lacks {lacking}: open one with ullage.open_log(url)"
        )
    return log


def _lacking_of_store(store: Store) -> Iterator[str]:
    for name, (blocking, awaited) in PARTS.items():
        part = getattr(store, name, None)
        if part is None:
            yield f"{name}, with {', '.join(_methods(blocking))}"
            continue
        yield from (f"{name}.{text}" for text in _lacking(part, blocking))
        if any(hasattr(part, method) for method in _methods(awaited)):
            yield from (f"{name}.{text}" for text in _lacking(part, awaited))
    yield from _lacking(store, Store)


def _lacking(given: object, protocol: type) -> Iterator[str]:
    """Yield the methods of a protocol that an object does not have, each with its signature."""
    for name in _methods(protocol):
        if not callable(getattr(given, name, None)):
            yield f"{name}{_signature(protocol, name)}"
    if "url" in vars(protocol) and not isinstance(getattr(given, "url", None), str):
        yield "url, a str that names it to people"


def _methods(protocol: type) -> list[str]:
    """Return the names of a protocol's own methods, in its order."""
    return [name for name, value in vars(protocol).items() if callable(value) and name[0] != "_"]


def _signature(protocol: type, name: str) -> str:
    from inspect import signature

    shown = str(signature(getattr(protocol, name))).replace("'", "")
    return shown.replace("(self, ", "(").replace("(self)", "()")
