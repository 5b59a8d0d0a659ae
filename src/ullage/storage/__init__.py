"""Where checkpoints, conversations and originals live: in memory, or in one SQLite file.

`open_store` tells a store by its URL. SQLite is loaded when the first such store is opened.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from ullage.core.errors import BusyWriter, ConfigurationError
from ullage.storage.memory import MemoryCheckpoints, MemoryConversations, MemoryStore
from ullage.storage.protocol import STANDARD, Limits, Store

FORMS: Final = "memory:, sqlite:FILE (relative to the working directory) and sqlite:///FILE"


def open_store(
    url: str,
    *,
    create: bool = True,
    limits: Limits = STANDARD,
    now: Callable[[], float] = time.time,
) -> Store:
    """Open the store that a URL names: `memory:`, `sqlite:FILE` or `sqlite:///FILE`.

    The part after `sqlite:` is the path as it stands: `sqlite:ullage.db` is relative to the working
    directory, `sqlite:///var/lib/ullage.db` starts at the root, `sqlite:~/ullage.db` in the user's
    folder. With `create=False` the file must be there. Raises ConfigurationError for another URL,
    or without the `sqlite` extra, and StoreError where the file cannot be opened.
    """
    scheme, _, rest = url.partition(":")
    if scheme == "memory" and not rest.strip("/"):
        return MemoryStore(limits, now=now)
    if scheme != "sqlite":
        raise ConfigurationError(f"store {url!r} names no store that there is: there are {FORMS}")
    path = _path(url, rest)
    try:
        from ullage.storage.sqlite import SqliteStore
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"store {url!r} needs {error.name}, which is not installed: "
            "pip install 'ullage[sqlite]'"
        ) from error
    return SqliteStore(path, limits=limits, create=create, now=now)


def checked(store: Store | None) -> Store | None:
    """Return an open store, or None; raises ConfigurationError for what is none, such as a URL."""
    if store is None or hasattr(store, "originals"):
        return store
    raise ConfigurationError(
        f"store takes an open store, not {store!r:.80}: open one with ullage.open_store(url)"
    )


def _path(url: str, rest: str) -> Path:
    """Return the file of an SQLite URL; raises ConfigurationError where it names none."""
    name = rest
    if rest.startswith("//"):
        if not rest.startswith("///"):
            raise ConfigurationError(
                f"store {url!r} names a host: write sqlite:///FILE from the root, or sqlite:FILE"
            )
        name = "/" + rest.lstrip("/")
        if name[2:3] == ":":
            name = name[1:]  # sqlite:///C:/FILE
    if not name.strip("/") or name.endswith("/") or name == ":memory:":
        raise ConfigurationError(f"store {url!r} names no file: there are {FORMS}")
    if "?" in name or "\0" in name:
        raise ConfigurationError(f"store {url!r}: a path holds neither ? nor NUL: leave it out")
    try:
        return Path(name).expanduser().absolute()
    except RuntimeError as error:
        raise ConfigurationError(f"store {url!r}: {error}") from error


__all__ = [
    "BusyWriter",
    "Limits",
    "MemoryCheckpoints",
    "MemoryConversations",
    "MemoryStore",
    "Store",
    "checked",
    "open_store",
]
