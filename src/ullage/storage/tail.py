"""The last reports of a session in an SQLite log, from its last events alone.

It is for a line that is drawn at every prompt: the file is opened to be read, nothing is made or
moved, and what this loads is apsw. `log_sqlite` knows the whole log.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import apsw

from ullage.core.values.fullness import Fullness, read_count

LAST: Final = 500
"""Events of a session that are looked at, from its end."""

SESSIONS: Final = 20
"""Sessions whose folder is looked at, the newest first."""

WAIT_MS: Final = 100

HEADS: Final = """
    SELECT s.session_id, s.head FROM sessions AS s
    JOIN events AS e ON e.session_id = s.session_id AND e.seq = s.head
    ORDER BY e.ts DESC LIMIT ?
"""
EVENTS: Final = """
    SELECT type, data FROM events WHERE session_id = ? AND seq > ?
    AND type IN ('provider_usage', 'history_compaction') ORDER BY seq DESC LIMIT ?
"""
STARTS: Final = """
    SELECT data FROM events WHERE session_id = ? AND seq > ?
    AND type IN ('turn_started', 'session_created') ORDER BY seq DESC
"""


class NoLog(Exception):  # noqa: N818 - named for what was not found
    """Report a file that is no log of sessions, or that cannot be read now."""


def read_fullness(path: str, *, session: str | None = None, folder: str | None = None) -> Fullness:
    """Return how full the window of a session was by its last report.

    It is the one whose name begins so, else the newest, with `folder` the newest that worked there.
    Raises NoLog without a readable log.
    """
    try:
        database = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
        try:
            database.set_busy_timeout(WAIT_MS)
            return _find(database, session, folder)
        finally:
            database.close()
    except apsw.Error as error:
        raise NoLog(f"{path} cannot be read: {error}") from error


def _find(database: apsw.Connection, session: str | None, folder: str | None) -> Fullness:
    heads = database.execute(HEADS, (SESSIONS if session is None else -1,))
    for name, head in list(heads):
        if session is not None and not name.startswith(session):
            continue
        if folder is not None and not _works_in(database, name, head, folder):
            continue
        return _stand(database, name, head)
    return Fullness("ullage", session, reason="no session")


def _works_in(database: apsw.Connection, name: str, head: int, folder: str) -> bool:
    for (text,) in database.execute(STARTS, (name, head - LAST)):
        served = _fields(text).get("served")
        if isinstance(served, Mapping) and isinstance(served.get("workspace"), str):
            return bool(served["workspace"] == folder)
    return False


def _stand(database: apsw.Connection, name: str, head: int) -> Fullness:
    rows = database.execute(EVENTS, (name, head - LAST, 1))
    kind, text = next(iter(rows), ("", ""))
    told = _fields(text)
    if kind == "history_compaction":
        return Fullness("ullage", name, reason="compacted, no report since")
    model = told.get("model")
    context = told.get("context")
    context = context if isinstance(context, Mapping) else {}
    tokens, window = read_count(context.get("tokens")), read_count(context.get("window"))
    return Fullness(
        "ullage",
        name,
        model if isinstance(model, str) else None,
        tokens,
        window,
        name_origin(context.get("source")) if window else "",
        read_count(told.get("cache_read")),
        reason="" if tokens is not None else "no report yet",
    )


def name_origin(source: object) -> str:
    """Return who told a window, in the words of status lines: reported, table or given."""
    return {"table": "table", "override": "given"}.get(str(source), "reported")


def _fields(text: object) -> Mapping[str, Any]:
    try:
        found = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
