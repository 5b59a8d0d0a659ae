"""The last reports of a session in opencode's database, without reading the whole session.

A shell prompt shows them, so it loads little and reads only the last rows of one table. It does not
know the files of older versions. `reading` reads whole sessions, and a test checks that both return
the same numbers.
"""

from __future__ import annotations

import glob
import json
import os
from collections.abc import Iterator, Mapping
from typing import Any, Final

from ullage.core.errors import ConfigurationError
from ullage.core.values.fullness import CallLine, Fullness
from ullage.sqlite_file import SqliteTables, lend_tables

SESSIONS: Final = 100
"""Newest sessions of a database whose folder is checked."""

MESSAGES: Final = 60
"""Newest messages that are searched for reports."""

LARGEST: Final = 1_000_000_000
"""Larger than any real number of tokens of a call."""

COMPACTED: Final = "compacted, no report since"
SILENT: Final = "no report yet"


def list_bases(data: str) -> list[str]:
    """Return the databases of opencode in a data folder, as `disk.list_databases` does."""
    folder = os.path.join(data, "opencode")
    named = os.environ.get("OPENCODE_DB")
    if named:
        path = os.path.join(folder, named)
        return [path] if os.path.isfile(path) else []
    return sorted(glob.glob(os.path.join(glob.escape(folder), "opencode*.db")))


def list_sessions(folder: str, bases: list[str], begin: str | None) -> Iterator[tuple[float, str]]:
    """Yield each database's newest session for a folder or its parents, or by its id's beginning.

    Each comes with the time of its last write, in Unix seconds. Unreadable databases are skipped.
    """
    for base in bases:
        try:
            with lend_tables(base) as tables:
                for name, named, updated in _read_sessions(tables):
                    is_there = _is_in(folder, named) if begin is None else name.startswith(begin)
                    if is_there:
                        yield updated / 1000, os.path.join(base, name)
                        break
        except ConfigurationError:
            continue


def _read_sessions(tables: SqliteTables) -> Iterator[tuple[str, str, float]]:
    for name, folder, updated in tables.select(
        "SELECT id, directory, time_updated FROM session WHERE parent_id IS NULL "
        "ORDER BY time_updated DESC LIMIT ?", (SESSIONS,),
    ):  # fmt: skip
        if isinstance(name, str) and isinstance(folder, str) and isinstance(updated, int | float):
            yield name, folder, updated


def _is_in(folder: str, named: str) -> bool:
    return (folder + os.sep).startswith(named.rstrip(os.sep) + os.sep)


def read_fullness(path: str) -> tuple[Fullness, str]:
    """Return how full the window was at the last report, and the provider.

    Raises OSError if the session cannot be read.
    """
    base, name = os.path.split(path)
    try:
        with lend_tables(base) as tables:
            told = list(_read_calls(tables, name, 1))
            dollars = _read_cost(tables, name)
    except ConfigurationError as error:
        raise OSError(str(error)) from error
    if not told:
        return Fullness("opencode", name, reason=SILENT), ""
    last = told[0]
    if last.tokens is None:
        return Fullness("opencode", name, last.model, dollars=dollars, reason=COMPACTED), ""
    one = Fullness("opencode", name, last.model, last.tokens, cached=last.cached, dollars=dollars)
    return one, last.provider


def read_reports(path: str, most: int) -> list[CallLine]:
    """Return the last reports of a session, newest first, including compactions.

    Raises OSError if the session cannot be read.
    """
    base, name = os.path.split(path)
    try:
        with lend_tables(base) as tables:
            return list(_read_calls(tables, name, most))
    except ConfigurationError as error:
        raise OSError(str(error)) from error


def stamp(path: str) -> tuple[float, int]:
    """Return the time of a session's database, and its size with its log."""
    base = os.path.dirname(path)
    told = [os.stat(base)]
    if os.path.exists(f"{base}-wal"):
        told.append(os.stat(f"{base}-wal"))
    return max(one.st_mtime for one in told), sum(one.st_size for one in told)


def _read_cost(tables: SqliteTables, name: str) -> float | None:
    """Return the cost of a session so far, or None if it is not recorded."""
    if "cost" not in tables.list_columns("session"):
        return None
    found = next(tables.select("SELECT cost FROM session WHERE id = ?", (name,)), (None,))
    return float(found[0]) if isinstance(found[0], int | float) and found[0] > 0 else None


def _read_calls(tables: SqliteTables, name: str, most: int) -> Iterator[CallLine]:
    """Yield calls and compactions, newest first, without reverted ones."""
    reverted = _find_reverted(tables, name)
    rows = tables.select(
        "SELECT id, data FROM message WHERE session_id = ? "
        "ORDER BY time_created DESC, id DESC LIMIT ?", (name, MESSAGES),
    )  # fmt: skip
    told = [(str(key), _read(data)) for key, data in rows]
    ids = [key for key, _ in told]
    found = 0
    for key, fields in told[ids.index(reverted) + 1 if reverted in ids else 0 :]:
        one = _read_call(key, fields, name)
        if one is not None:
            yield one
            found += 1
        if found >= most:
            return


def _find_reverted(tables: SqliteTables, name: str) -> str | None:
    if "revert" not in tables.list_columns("session"):
        return None
    found = next(tables.select("SELECT revert FROM session WHERE id = ?", (name,)), (None,))
    return _word(_read(found[0]).get("messageID"))


def _read_call(key: str, fields: Mapping[str, Any], name: str) -> CallLine | None:
    """Return the report of a message (without tokens for a compaction), or None."""
    if fields.get("role") != "assistant":
        return None
    model = _word(fields.get("modelID"))
    if fields.get("summary") is True:
        done = fields.get("finish") and not fields.get("error")
        return CallLine(None, model=model, session=name) if done else None
    told = _mapping(fields.get("tokens"))
    cache = _mapping(told.get("cache"))
    read = _count(cache.get("read"))
    tokens = _count(told.get("input")) + read + _count(cache.get("write"))
    if not tokens:
        return None
    output, provider = _count(told.get("output")), _word(fields.get("providerID")) or ""
    return CallLine(tokens, read, output, None, model, name, key, provider)


def _read(data: object) -> Mapping[str, Any]:
    """Return the object in a text, or an empty one without any."""
    try:
        found = json.loads(data) if isinstance(data, str) else None
    except (ValueError, RecursionError):
        return {}
    return _mapping(found)


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _word(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _count(value: object) -> int:
    """Return a number of tokens, 0 for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0
    return int(value) if 0 < value < LARGEST else 0
