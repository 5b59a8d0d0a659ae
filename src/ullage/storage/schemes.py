"""Kinds of stores that others bring: a scheme of URLs, and what opens such a store.

A program registers a factory, or a package names it in its entry points (group `ullage.stores`).
It knows no store.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, Protocol

from ullage.core.errors import ConfigurationError
from ullage.core.errors.nearest import suggest

if TYPE_CHECKING:
    from ullage.storage.protocol import Store, StoreLimits

GROUP: Final = "ullage.stores"
"""The group of entry points in which packages name their factories, by scheme."""

BUILT_IN: Final = ("memory", "sqlite", "postgresql", "postgres")

SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]*")
"""RFC 3986, section 3.1, in lower case."""


class StoreFactory(Protocol):
    """What opens a store by its URL; it may raise StoreError and ConfigurationError."""

    def __call__(
        self, url: str, *, create: bool, limits: StoreLimits, now: Callable[[], float]
    ) -> Store:
        """Return an open store; with `create` false it must be there."""
        ...


class StoreSchemes:
    """Factories by scheme. Safe to share between threads."""

    def __init__(self) -> None:
        self._factories: dict[str, StoreFactory] = {}
        self._lock = threading.Lock()

    def add(self, scheme: str, factory: StoreFactory) -> None:
        """Register a factory; see `register_store`."""
        if not SCHEME.fullmatch(scheme) or scheme in BUILT_IN:
            raise ConfigurationError(
                f"{scheme!r:.60} cannot be the scheme of a store: expected small letters, digits, "
                f"+, . or -, and none of {', '.join(BUILT_IN)}"
            )
        if not callable(factory):
            raise ConfigurationError(
                f"the factory of {scheme} is {factory!r:.60}: give a function "
                "(url, *, create, limits, now) -> Store"
            )
        with self._lock:
            self._factories[scheme] = factory

    def find(self, scheme: str) -> StoreFactory | None:
        """Return the factory of a scheme: the one that was registered, else a package's."""
        found = self._factories.get(scheme)
        if found is not None or not scheme:
            return found
        from importlib.metadata import entry_points

        for entry in entry_points(group=GROUP, name=scheme):
            loaded: StoreFactory = entry.load()
            return loaded
        return None

    def suggest(self, scheme: str) -> str:
        """Return the scheme that a mistyped one may have meant, as a sentence, or nothing."""
        from importlib.metadata import entry_points

        packaged: Iterable[str] = (entry.name for entry in entry_points(group=GROUP))
        return suggest(scheme, [*BUILT_IN, *self._factories, *packaged])


REGISTRY: Final = StoreSchemes()
"""The one of this process; `register_store` writes to it."""


def register_store(scheme: str, factory: StoreFactory) -> None:
    """Have `open_store` open URLs that begin with `scheme:` by this factory, from now on.

    The factory gets the whole URL, and `create`, `limits` and `now` as `open_store` has them. A
    package says the same with an entry point in the group `ullage.stores`, named by the scheme.
    Raises ConfigurationError for a scheme that is built in or cannot be one.
    """
    REGISTRY.add(scheme, factory)
