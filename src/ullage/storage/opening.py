"""Opens the store or the log that a URL names: memory, an SQLite file, PostgreSQL, or another kind.

SQLite and PostgreSQL are loaded when the first such store is opened.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, Protocol, runtime_checkable

from ullage.core.errors import ConfigurationError
from ullage.core.errors.extras import explain_missing
from ullage.core.search.ranking import Index
from ullage.embeddings import prepare_similar
from ullage.storage.checking import require_store
from ullage.storage.log import LEASE_S
from ullage.storage.memory import MemoryStore
from ullage.storage.postgres_url import hide_password
from ullage.storage.protocol import STANDARD, Store, StoreLimits
from ullage.storage.schemes import BUILT_IN, REGISTRY

if TYPE_CHECKING:
    from ullage.storage.log import EventLog

FORMS: Final = (
    "memory:, sqlite:FILE (relative to the working directory), sqlite:///FILE and "
    "postgresql://USER@HOST/DATABASE"
)

Scheme = Literal["memory", "sqlite", "postgresql"]


@runtime_checkable
class HasPassages(Protocol):
    """An object with an index of passages that can also find similar ones."""

    passages: Index


def open_store(
    url: str,
    *,
    create: bool = True,
    limits: StoreLimits = STANDARD,
    now: Callable[[], float] = time.time,
    embeddings: bool = False,
) -> Store:
    """Open the store that a URL names: in memory, an SQLite file, or a PostgreSQL database.

    The part after `sqlite:` is a path: `sqlite:ullage.db` is relative to the working directory,
    `sqlite:///var/lib/ullage.db` starts at the root, `sqlite:~/ullage.db` is in the user's folder.
    A `postgresql://` URL is libpq's. Other schemes open the stores added with `register_store`.
    With `create=False` the store must exist. With `embeddings` (an extra) searches also find
    originals by their meaning; a registered store uses its own search. Raises ConfigurationError
    for an unknown URL or a missing extra, and StoreError if the store cannot be opened.
    """
    store = _open_store(url, create=create, limits=limits, now=now)
    if embeddings and isinstance(store.originals, HasPassages):
        store.originals.passages.similar = prepare_similar()
    return store


def _open_store(url: str, *, create: bool, limits: StoreLimits, now: Callable[[], float]) -> Store:
    scheme = _scheme(url)
    if scheme is None:
        factory = REGISTRY.find(url.partition(":")[0])
        if factory is None:
            raise _make_unknown_error(url)
        return require_store(factory(url, create=create, limits=limits, now=now))
    if scheme == "memory":
        return MemoryStore(limits, now=now)
    with needing(url):
        if scheme == "postgresql":
            from ullage.storage.postgres import PostgresStore

            return PostgresStore(url, limits=limits, create=create, now=now)
        from ullage.storage.sqlite import SqliteStore

        return SqliteStore(find_file(url), limits=limits, create=create, now=now)


def open_log(
    url: str, *, create: bool = True, lease_s: float = LEASE_S, embeddings: bool = False
) -> EventLog:
    """Open the log of sessions that a URL names; the URLs are those of `open_store`.

    With `create=False` the log must exist. Another process may take over from a writer that was
    silent for `lease_s` seconds; all programs that share a log must use the same value. With
    `embeddings` searches also find text by its meaning. Raises what `open_store` raises.
    """
    log = _open_log(url, create=create, lease_s=lease_s)
    if embeddings and isinstance(log, HasPassages):
        log.passages.similar = prepare_similar()
    return log


def _open_log(url: str, *, create: bool, lease_s: float) -> EventLog:
    scheme = _scheme(url)
    if scheme is None:
        raise _make_unknown_error(url)
    if scheme == "memory":
        from ullage.storage.log_memory import MemoryLog

        return MemoryLog()
    with needing(url):
        if scheme == "postgresql":
            from ullage.storage.log_postgres import PostgresLog

            return PostgresLog(url, create=create, lease_s=lease_s)
        from ullage.storage.log_sqlite import SqliteLog

        return SqliteLog(find_file(url), create=create, lease_s=lease_s)


def has_log(url: str) -> bool:
    """Tell whether a URL names a database, which holds a store and a log of sessions."""
    return _scheme(url) in {"sqlite", "postgresql"}


def _scheme(url: str) -> Scheme | None:
    """Return the built-in kind of store that a URL names, or None for any other."""
    scheme, _, rest = url.partition(":")
    if scheme == "memory" and not rest.strip("/"):
        return "memory"
    if scheme == "sqlite":
        return "sqlite"
    if scheme in {"postgresql", "postgres"} and rest.startswith("//"):
        return "postgresql"
    return None


def _make_unknown_error(url: str) -> ConfigurationError:
    """Return the error for a URL that opens no store."""
    scheme, colon, _ = url.partition(":")
    meant = REGISTRY.suggest(scheme) if colon and scheme not in BUILT_IN else ""
    return ConfigurationError(
        f"store {hide_password(url)!r} names no store of a known kind: give {FORMS}"
        + (f"; {meant}" if meant else "")
    )


@contextmanager
def needing(url: str) -> Iterator[None]:
    """Name the extra to install if a module of another package is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise explain_missing(f"store {hide_password(url)!r}", error.name) from error


def find_file(url: str) -> Path:
    """Return the file of an SQLite URL; raises ConfigurationError if it names none."""
    return _path(url, url.partition(":")[2])


def _path(url: str, rest: str) -> Path:
    """Return the file of an SQLite URL; raises ConfigurationError if it names none."""
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
