"""A log of events in one SQLite file: when an append returns, it is on disk.

An append is checked and written in one write transaction, so nobody else can change the epoch and
the head meanwhile. Appends of threads that wait for each other share a transaction and its sync. It
only knows the text of data.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import apsw

from ullage.core.session.log.event import Draft, Event
from ullage.core.values.pickling import Unpicklable
from ullage.storage import log
from ullage.storage.database import WAIT_S, Database, NotText, Rows
from ullage.storage.log import LEASE_S, Head, Lease, Owner, Stamped
from ullage.storage.objects import ObjectReader
from ullage.storage.retaining import (
    BATCH,
    MOVABLE,
    SessionExtent,
    StoredText,
    load_events,
)
from ullage.storage.sql_passages import SqlIndex
from ullage.storage.sqlite import PASSAGES
from ullage.storage.threaded import MOST, Desk
from ullage.threads import Threads

HEADS: Final = "SELECT session_id, created, head, last, epoch FROM sessions"
HEAD: Final = f"{HEADS} WHERE session_id = ?"
LEASES: Final = """
    SELECT session_id, epoch, owner, acquired, seen, released, taken FROM leases
    WHERE session_id = ? ORDER BY epoch
"""
HELD: Final = f"{LEASES} DESC LIMIT 1"
HOLDS: Final = """
    SELECT epoch, released IS NULL FROM leases WHERE session_id = ? ORDER BY epoch DESC LIMIT 1
"""
READ: Final = """
    SELECT session_id, seq, ts, type, v, id, data FROM events
    WHERE session_id = ? AND seq >= ? AND seq <= ? ORDER BY seq
"""
STAMPED: Final = """
    SELECT epoch, session_id, seq, ts, type, v, id, data FROM events
    WHERE session_id = ? ORDER BY seq
"""
BEGIN: Final = (
    "INSERT INTO sessions (session_id, created, head, last, epoch) VALUES (?, ?, ?, ?, ?)"
)
INSERT: Final = """
    INSERT INTO events (session_id, seq, epoch, ts, type, v, id, data)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?)
"""
ADVANCE: Final = "UPDATE sessions SET head = ?, last = ?, epoch = ? WHERE session_id = ?"
GRANT: Final = """
    INSERT INTO leases (session_id, epoch, owner, acquired, seen, released, taken)
    VALUES (?, ?, ?, ?, ?, ?, ?)
"""
BEAT: Final = "UPDATE leases SET seen = ? WHERE session_id = ? AND epoch = ?"
RELEASE: Final = """
    UPDATE leases SET released = ?1 WHERE session_id = ?2 AND epoch = ?3 AND released IS NULL
    AND epoch = (SELECT max(epoch) FROM leases WHERE session_id = ?2)
"""
ERASE: Final = (
    "DELETE FROM events WHERE session_id = ?",
    "DELETE FROM spots WHERE session = ?",
)
REACHED: Final = """
    INSERT INTO reached (session, upto) VALUES (?1, ?2)
    ON CONFLICT (session) DO UPDATE SET upto = max(upto, ?2)
"""
"""A search that read the session before adds nothing of it to the index any more."""

SURVEY: Final = """
    SELECT s.session_id, s.created, coalesce(e.ts, s.created), s.head, {size} FROM sessions AS s
    LEFT JOIN events AS e ON e.session_id = s.session_id AND e.seq = s.head ORDER BY s.number
"""
SIZE: Final = """
    (SELECT coalesce(sum(octet_length(data)), 0) FROM events AS d WHERE d.session_id = s.session_id)
"""
CUT: Final = "DELETE FROM events WHERE session_id = ? AND seq > ?"
LAST: Final = "SELECT seq, id, epoch FROM events WHERE session_id = ? AND seq = ?"
REMOVE: Final = (
    "DELETE FROM reached WHERE session = ?",
    "DELETE FROM leases WHERE session_id = ?",
    "DELETE FROM sessions WHERE session_id = ?",
)

TEXTS: Final = """
    SELECT seq, id, data FROM events WHERE session_id = ?
    AND type IN (SELECT value FROM json_each(?)) AND octet_length(data) >= ?
    AND substr(data, 1, 7) <> 'object:' ORDER BY seq LIMIT ?
"""
MOVED: Final = """
    SELECT seq, id, data FROM events
    WHERE (?1 IS NULL OR session_id = ?1) AND substr(data, 1, 7) = 'object:'
"""
"""The reference to a moved text begins like this (`objects.MARK`)."""

SWAP: Final = """
    UPDATE events SET data = ? WHERE session_id = ? AND seq = ? AND id = ? AND data = ?
    RETURNING seq
"""
AS_BYTES: Final = re.compile(r"\b(?:type|id|data)\b(?=,|\s+FROM)")
END: Final = 2**62


class SqliteLog(Unpicklable):
    """The events of sessions in a file; `lease_s` is how long a silent writer keeps its lease.

    Raises StoreError if the file cannot be opened, or with `create=False` if it is missing.
    """

    instead = "open one in the other process: ullage.open_log(log.url)"

    def __init__(
        self,
        path: Path,
        *,
        create: bool = True,
        lease_s: float = LEASE_S,
        wait_s: float = WAIT_S,
    ) -> None:
        self.lease_s = lease_s
        self._database = Database(path, create=create, wait_s=wait_s)
        self._objects = ObjectReader()
        self.passages = SqlIndex(self._database, PASSAGES, kept=False)
        threads = Threads("ullage-sqlite-log", MOST)  # waiting appends share one sync
        self.desk = Desk(threads, threads)

    @property
    def url(self) -> str:
        """The URL that opens it."""
        return f"sqlite://{self._database.path.absolute()}"

    def create(self, session: str, now: float) -> Head:
        """Begin a session; raises StoreError if the name is taken or invalid."""
        return self._begin_session(Head(log.check_name(session), now), [])

    def sessions(self) -> list[Head]:
        """Return all sessions, oldest first."""
        return [Head(*row) for row in self._database.rows(f"{HEADS} ORDER BY number")]

    def head(self, session: str) -> Head:
        """Return the end of a session."""
        rows = self._database.read(HEAD, (_key(session),))
        return _only(session, rows)

    def append(
        self, session: str, epoch: int, expected_head: int, drafts: Sequence[Draft], now: float
    ) -> list[Event]:
        """Record events as one unit after event `expected_head`, on disk when this returns."""

        def step(connection: apsw.Connection) -> list[Event]:
            head = _writable(connection, session, epoch)
            events = log.stamp(head, expected_head, drafts, now)
            if events:
                _insert(connection, events, epoch)
                connection.execute(ADVANCE, (events[-1].seq, events[-1].id, epoch, session))
            return events

        return self._database.together(step)

    def restore(self, events: Sequence[Event], now: float) -> Head:
        """Import a whole session unchanged, under its own name, which must be free."""
        head = Head(log.restorable(events), now, events[-1].seq, events[-1].id)
        return self._begin_session(head, events)

    def read(self, session: str, after: int = 0, upto: int | None = None) -> list[Event]:
        """Return the events with `after` < seq <= `upto`, each checked against the previous one."""
        head = self.head(session)
        until = END if upto is None else upto
        rows = self._events(READ, (session, after, until))
        found = load_events(self._objects, rows)
        return log.check_chain(head, found, after, until)

    def read_stamped(self, session: str) -> list[Stamped]:
        """Return the stored events of a session with their epochs, unchecked."""
        self.head(session)
        rows = self._events(STAMPED, (session,))
        events = load_events(self._objects, [row[1:] for row in rows], lost=True)
        return [(row[0], event) for row, event in zip(rows, events, strict=True)]

    def acquire(self, session: str, owner: Owner, now: float, *, take_over: bool = False) -> Lease:
        """Become the writer, with a new epoch; raises BusyWriter while another lease holds."""
        with self._database.writing() as connection:
            head = _head(connection, session)
            held = _find_lease(connection, session)
            terms = log.LeaseTerms(now, self.lease_s, local=True, take_over=take_over)
            lease = log.grant_lease(head, held, owner, terms)
            said = json.dumps(owner.to_dict())
            row = (session, lease.epoch, said, now, now, None, lease.taken)
            connection.execute(GRANT, row)
        return lease

    def heartbeat(self, session: str, epoch: int, now: float) -> Lease:
        """Renew the lease; raises Fenced if another writer holds it."""
        with self._database.writing() as connection:
            _head(connection, session)
            held = log.holding(session, _find_lease(connection, session), epoch)
            beaten = replace(held, seen=now)
            connection.execute(BEAT, (beaten.seen, session, epoch))
        return beaten

    def release(self, session: str, epoch: int, now: float) -> None:
        """Release the lease; do nothing the second time, or after a take-over."""
        with self._database.writing() as connection:
            _head(connection, session)
            connection.execute(RELEASE, (now, session, epoch))

    def leases(self, session: str) -> list[Lease]:
        """Return all leases of a session, past and present, by epoch."""
        self.head(session)
        return [_lease(row) for row in self._database.rows(LEASES, (session,))]

    def rewrite(self, session: str, epoch: int, events: Sequence[Event]) -> None:
        """Replace all recorded events of a session."""
        with self._database.writing() as connection:
            _writable(connection, session, epoch)
            gone = _list_moved(connection, session)
            for statement in ERASE:
                connection.execute(statement, (session,))
            _insert(connection, events, epoch)
            last = events[-1]
            connection.execute(ADVANCE, (last.seq, last.id, epoch, session))
            connection.execute(REACHED, (session, last.seq))
        self._objects.forget(gone)

    def survey(self, *, sized: bool) -> list[SessionExtent]:
        """Return all sessions, oldest first; with `sized` it measures all data."""
        sql = SURVEY.format(size=SIZE if sized else "0")
        return [SessionExtent(*row) for row in self._database.read(sql)]

    def remove(self, session: str, epoch: int, most: int = BATCH) -> bool:
        """Remove up to `most` of the last events of a session; return whether it is gone."""
        with self._database.writing() as connection:
            head = _writable(connection, session, epoch)
            gone = _list_moved(connection, session, after=head.seq - most)
            left = list(connection.execute(LAST, (session, head.seq - most)))
            connection.execute(CUT, (session, left[0][0] if left else 0))
            connection.execute(ERASE[1], (session,))
            if left:
                connection.execute(ADVANCE, (*left[0], session))
                connection.execute(REACHED, (session, head.seq))
            for statement in REMOVE if not left else ():
                connection.execute(statement, (session,))
        self._objects.forget(gone)
        return not left

    def list_texts(self, session: str, least: int, most: int) -> list[StoredText]:
        """Return up to `most` texts of `least` bytes or more that are in the log itself."""
        rows = self._database.rows(TEXTS, (session, json.dumps(MOVABLE), least, most))
        return [StoredText(*row) for row in rows]

    def list_moved(self, session: str | None = None) -> list[StoredText]:
        """Return the references to moved texts, of all sessions if `session` is None."""
        return [StoredText(*row) for row in self._database.rows(MOVED, (session,))]

    def swap_text(self, session: str, held: StoredText, text: str) -> bool:
        """Replace a text if it is still there; return whether it was."""
        row = (text, session, held.seq, held.id, held.text)
        return bool(self._database.rows(SWAP, row))

    def scrub(self) -> str:
        """Overwrite deleted data; return where some may still be."""
        return self._database.scrub()

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def _events(self, sql: str, bindings: tuple[Any, ...]) -> Rows:
        """Return rows of events, even if one holds bytes that are no longer text.

        Such bytes become lone surrogates, which nobody writes, so the id of the event does not
        match.
        """
        try:
            return self._database.read(sql, bindings)
        except NotText:
            rows = self._database.read(AS_BYTES.sub(r"CAST(\g<0> AS BLOB)", sql), bindings)
            return [tuple(map(_text, row)) for row in rows]

    def _begin_session(self, head: Head, events: Sequence[Event]) -> Head:
        with self._database.writing() as connection:
            if list(connection.execute(HEAD, (head.session,))):
                raise log.make_taken_error(head.session)
            connection.execute(BEGIN, (head.session, head.created, head.seq, head.id, head.epoch))
            _insert(connection, events, head.epoch)
        return head


def _text(value: object) -> object:
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value


def _key(session: str) -> str:
    """Return a name that SQLite accepts; raise the unknown-session error for an invalid one."""
    if not session.isprintable():
        raise log.absent(session)
    return session


def _only(session: str, rows: Sequence[tuple[Any, ...]]) -> Head:
    if not rows:
        raise log.absent(session)
    return Head(*rows[0])


def _head(connection: apsw.Connection, session: str) -> Head:
    rows = list(connection.execute(HEAD, (_key(session),)))
    return _only(session, rows)


def _writable(connection: apsw.Connection, session: str, epoch: int) -> Head:
    """Return the head of a session; raises Fenced if this epoch may not write to it."""
    head = _head(connection, session)
    if list(connection.execute(HOLDS, (session,))) != [(epoch, True)]:
        log.holding(session, _find_lease(connection, session), epoch)
    return head


def _list_moved(connection: apsw.Connection, session: str, after: int = 0) -> list[str]:
    """Return the references to moved texts after an event."""
    return [text for seq, _, text in connection.execute(MOVED, (session,)) if seq > after]


def _find_lease(connection: apsw.Connection, session: str) -> Lease | None:
    rows = list(connection.execute(HELD, (session,)))
    return _lease(rows[0]) if rows else None


def _lease(row: tuple[Any, ...]) -> Lease:
    session, epoch, owner, acquired, seen, released, taken = row
    return Lease(session, epoch, Owner(**json.loads(owner)), acquired, seen, released, taken)


def _insert(connection: apsw.Connection, events: Sequence[Event], epoch: int) -> None:
    connection.executemany(
        INSERT,
        [(e.session_id, e.seq, epoch, e.ts, e.type, e.v, e.id, e.text) for e in events],
    )
