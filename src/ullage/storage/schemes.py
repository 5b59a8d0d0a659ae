"""Kinds of stores from other packages: a URL scheme, and the factory that opens such a store.

A program registers a factory, or a package names it in its entry points (group `ullage.stores`). It
knows no store.
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
"""The entry-point group in which packages name their factories, by scheme."""

BUILT_IN: Final = ("memory", "sqlite", "postgresql", "postgres")

SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]*")
"""RFC 3986, section 3.1, in lower case."""


class StoreFactory(Protocol):
    """Opens a store by its URL; it may raise StoreError and ConfigurationError."""

    def __call__(
        self, url: str, *, create: bool, limits: StoreLimits, now: Callable[[], float]
    ) -> Store:
        """Return an open store; with `create` false it must exist."""
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
        """Return the factory of a scheme: a registered one first, then a package's."""
        found = self._factories.get(scheme)
        if found is not None or not scheme:
            return found
        from importlib.metadata import entry_points

        for entry in entry_points(group=GROUP, name=scheme):
            loaded: StoreFactory = entry.load()
            return loaded
        return None

    def suggest(self, scheme: str) -> str:
        """Return a sentence that suggests the scheme for a mistyped one, or ""."""
        from importlib.metadata import entry_points

        packaged: Iterable[str] = (entry.name for entry in entry_points(group=GROUP))
        return suggest(scheme, [*BUILT_IN, *self._factories, *packaged])


REGISTRY: Final = StoreSchemes()
"""The registry of this process; `register_store` adds to it."""


def register_store(scheme: str, factory: StoreFactory) -> None:
    """Make `open_store` open URLs that begin with `scheme:` with this factory.

    The factory gets the whole URL, and `create`, `limits` and `now` of `open_store`. A package can
    do the same with an entry point in the group `ullage.stores`, named by the scheme. Raises
    ConfigurationError if the scheme is built in or invalid.
    """
    REGISTRY.add(scheme, factory)
