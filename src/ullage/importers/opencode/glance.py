"""The last reports of a session in opencode's database, without reading the session.

For a line that is drawn at every prompt: it loads little and reads the last rows of one table. The
files of older versions it does not know; `reading` reads whole sessions, and a test holds both to
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
"""Sessions of a database, the newest, whose folder is looked at."""

MESSAGES: Final = 60
"""Messages, the newest, in which reports are looked for."""

LARGEST: Final = 1_000_000_000
"""Above any number of tokens that a call ever had."""

COMPACTED: Final = "compacted, no report since"
SILENT: Final = "no report yet"


def list_bases(data: str) -> list[str]:
    """Return the databases of opencode in a folder of data; `disk.list_databases` has the same."""
    folder = os.path.join(data, "opencode")
    named = os.environ.get("OPENCODE_DB")
    if named:
        path = os.path.join(folder, named)
        return [path] if os.path.isfile(path) else []
    return sorted(glob.glob(os.path.join(glob.escape(folder), "opencode*.db")))


def list_sessions(folder: str, bases: list[str], begin: str | None) -> Iterator[tuple[float, str]]:
    """Yield the newest session of each database in a folder or one above it, or those named so.

    With when it was written, in Unix seconds. A database that cannot be read has none.
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
    """Return how full the window was by the last report, and who served it.

    Raises OSError for what cannot be read.
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
    """Return the last reports of a session, the newest first; compactions stand there too.

    Raises OSError for what cannot be read.
    """
    base, name = os.path.split(path)
    try:
        with lend_tables(base) as tables:
            return list(_read_calls(tables, name, most))
    except ConfigurationError as error:
        raise OSError(str(error)) from error


def stamp(path: str) -> tuple[float, int]:
    """Return when the database of a session was written, and how large it is with its log."""
    base = os.path.dirname(path)
    told = [os.stat(base)]
    if os.path.exists(f"{base}-wal"):
        told.append(os.stat(f"{base}-wal"))
    return max(one.st_mtime for one in told), sum(one.st_size for one in told)


def _read_cost(tables: SqliteTables, name: str) -> float | None:
    """Return what a session cost so far, None where it does not say."""
    if "cost" not in tables.list_columns("session"):
        return None
    found = next(tables.select("SELECT cost FROM session WHERE id = ?", (name,)), (None,))
    return float(found[0]) if isinstance(found[0], int | float) and found[0] > 0 else None


def _read_calls(tables: SqliteTables, name: str, most: int) -> Iterator[CallLine]:
    """Yield calls and compactions, the newest first, without those that were reverted."""
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
    """Return the report of a message, one without tokens for a compaction, None without any."""
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
    """Return the object in a text, an empty one where there is none."""
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
