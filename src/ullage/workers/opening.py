"""Opens the queue for a store's URL and an engine's name. It loads one engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ullage.core.errors import ConfigurationError
from ullage.core.errors.extras import explain_missing
from ullage.storage.opening import find_file
from ullage.storage.postgres_url import hide_password
from ullage.workers.engine import QueueEngine

ENGINES: Final = ("sqlite", "procrastinate", "dbos")
"""The first is the default for a file, the second for PostgreSQL."""


def choose_engine(url: str, name: str | None = None) -> str:
    """Return the engine for a store; raises ConfigurationError if the store cannot have it."""
    in_file = url.startswith("sqlite:")
    on_server = url.startswith(("postgresql://", "postgres://"))
    if not (in_file or on_server):
        raise ConfigurationError(
            f"store {hide_password(url)!r} cannot hold a queue: give sqlite:FILE for one machine, "
            "or postgresql://USER@HOST/DATABASE"
        )
    chosen = name or ENGINES[0 if in_file else 1]
    if chosen not in ENGINES:
        raise ConfigurationError(f"no engine {chosen!r:.40}: there are {', '.join(ENGINES)}")
    if (chosen == "sqlite") != in_file:
        fit = "sqlite" if in_file else "procrastinate or dbos"
        raise ConfigurationError(
            f"the engine {chosen} does not work in {hide_password(url)}: take {fit}"
        )
    return chosen


def has_queue(url: str) -> bool:
    """Tell whether a log may have a queue; for PostgreSQL only opening it can tell."""
    if not url.startswith("sqlite:"):
        return True
    from ullage.workers.engines.sqlite import place_queue

    return place_queue(find_file(url)).exists()


def open_engine(url: str, name: str | None = None) -> QueueEngine:
    """Open the queue of a log's URL, for one event loop.

    Raises ConfigurationError for an invalid store or engine, or if the engine's extra is missing.
    """
    chosen = choose_engine(url, name)
    makers: dict[str, Callable[[str], QueueEngine]] = {
        "sqlite": _make_sqlite,
        "procrastinate": _make_procrastinate,
        "dbos": _make_dbos,
    }
    try:
        return makers[chosen](url)
    except ModuleNotFoundError as error:
        raise explain_missing(f"the engine {chosen}", error.name) from error


def _make_sqlite(url: str) -> QueueEngine:
    from ullage.workers.engines.sqlite import SqliteEngine

    return SqliteEngine(find_file(url))


def _make_procrastinate(url: str) -> QueueEngine:
    from ullage.workers.engines.procrastinate import ProcrastinateEngine

    return ProcrastinateEngine(url)


def _make_dbos(url: str) -> QueueEngine:
    from ullage.workers.engines.dbos import DbosEngine

    return DbosEngine(url)
