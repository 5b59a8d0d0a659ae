"""The last reports of a session in an SQLite log, read from its last events only.

A shell prompt shows them, so it must be fast: the file is opened read-only, nothing is created or
changed, and only apsw is loaded. `log_sqlite` knows the whole log.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from ullage.core.values.fullness import CallLine, Fullness, read_count

if TYPE_CHECKING:
    import apsw

LAST: Final = 500
"""Events read from the end of a session."""

SESSIONS: Final = 20
"""Sessions whose folder is checked, the newest first."""

WAIT_MS: Final = 100
NONE: Final = "no session"

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


class NoLog(Exception):  # noqa: N818 - named for the condition
    """Report a file that is not a log of sessions, or that cannot be read now."""


def read_fullness(path: str, *, session: str | None = None, folder: str | None = None) -> Fullness:
    """Return how full the window of a session was at its last report.

    The session is the newest whose name begins with `session`, or else the newest; with `folder`,
    the newest that worked there. Raises NoLog if there is no readable log.
    """
    with _lend(path) as database:
        found = _find(database, session, folder)
        return _stand(database, *found) if found else Fullness("ullage", session, reason=NONE)


def read_reports(path: str, folder: str, most: int) -> tuple[str, list[CallLine]]:
    """Return the newest session of a folder and its last reports, the newest first.

    Compactions are included. Raises NoLog if there is no readable log.
    """
    with _lend(path) as database:
        found = _find(database, None, folder)
        if found is None:
            return "", []
        name, head = found
        rows = database.execute(EVENTS, (name, head - LAST, most))
        return name, [_read_call(kind, _fields(text)) for kind, text in rows]


@contextmanager
def _lend(path: str) -> Iterator[apsw.Connection]:
    try:
        import apsw
    except ModuleNotFoundError as error:
        raise NoLog("a log of sessions needs ullage[sqlite]") from error
    try:
        database = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
        try:
            database.set_busy_timeout(WAIT_MS)
            yield database
        finally:
            database.close()
    except apsw.Error as error:
        raise NoLog(f"{path} cannot be read: {error}") from error


def _find(
    database: apsw.Connection, session: str | None, folder: str | None
) -> tuple[str, int] | None:
    """Return the name and the last event of the newest matching session."""
    heads = database.execute(HEADS, (SESSIONS if session is None else -1,))
    for name, head in list(heads):
        named = session is None or name.startswith(session)
        if named and (folder is None or _works_in(database, name, head, folder)):
            return name, head
    return None


def _read_call(kind: str, told: Mapping[str, Any]) -> CallLine:
    if kind == "history_compaction":
        return CallLine(None)
    counts = [read_count(told.get(name)) for name in ("input", "cache_read", "cache_write")]
    tokens = sum(count or 0 for count in counts) or None
    context = told.get("context")
    window = context.get("window") if isinstance(context, Mapping) else None
    output = (read_count(told.get("output")) or 0) + (read_count(told.get("reasoning")) or 0)
    return CallLine(tokens, counts[1], output, read_count(window) or None)


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
    """Return the source of a window, in the words of status lines: reported, table or given."""
    return {"table": "table", "override": "given"}.get(str(source), "reported")


def _fields(text: object) -> Mapping[str, Any]:
    try:
        found = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
