"""A log of events in PostgreSQL, shared by processes on any number of hosts.

An append is one statement: it moves the head only if the head and the writer are still the ones
that the appender knows, and it inserts the events with it. Leases use the database's clock, because
the clocks of hosts differ. A dead process is only detected on its own host. It only knows the text
of data.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from ullage.core.errors import Fenced
from ullage.core.session.log.event import Draft, Event
from ullage.core.values.pickling import Unpicklable
from ullage.storage import log
from ullage.storage.log import LEASE_S, Head, Lease, Owner, Stamped
from ullage.storage.objects import ObjectReader
from ullage.storage.partitions import LAYOUT, Partitions
from ullage.storage.postgres import PASSAGES
from ullage.storage.postgres_database import (
    WAIT_S,
    ConnectionLost,
    Cursor,
    PostgresDatabase,
    Rows,
)
from ullage.storage.retaining import (
    BATCH,
    MOVABLE,
    SessionExtent,
    StoredText,
    load_events,
)
from ullage.storage.sql_passages import LOCK, SqlIndex
from ullage.storage.threaded import MOST, Desk
from ullage.threads import Threads

CLOCK: Final = "SELECT extract(epoch FROM clock_timestamp())::double precision"
HEADS: Final = "SELECT session_id, created, head, last, epoch FROM ullage.sessions"
HEAD: Final = f"{HEADS} WHERE session_id = %s"
LEASES: Final = """
    SELECT session_id, epoch, owner, acquired, seen, released, taken FROM ullage.leases
    WHERE session_id = %s ORDER BY epoch
"""
HELD: Final = f"{LEASES} DESC LIMIT 1"
READ: Final = """
    SELECT session_id, seq, ts, type, v, id, data FROM ullage.events
    WHERE session_id = %s AND seq >= %s AND seq <= %s ORDER BY seq
"""
READ_BORN: Final = """
    SELECT session_id, seq, ts, type, v, id, data FROM ullage.events
    WHERE session_id = %s AND seq >= %s AND seq <= %s
    AND born = (SELECT born FROM ullage.sessions WHERE session_id = %s) ORDER BY seq
"""
"""The same for a partitioned log: it reads only one partition."""

STAMPED: Final = """
    SELECT epoch, session_id, seq, ts, type, v, id, data FROM ullage.events
    WHERE session_id = %s ORDER BY seq
"""
BEGIN: Final = """
    INSERT INTO ullage.sessions (session_id, created, head, last, epoch, born)
    SELECT %s, %s, %s, %s, %s, least(extract(epoch FROM clock_timestamp()), layout.edge)
    FROM ullage.layout ON CONFLICT (session_id) DO NOTHING RETURNING number
"""
APPEND: Final = """
    WITH swapped AS (
        UPDATE ullage.sessions SET head = %s, last = %s, epoch = %s
        WHERE session_id = %s AND writer = %s AND head = %s AND last = %s
        RETURNING session_id, epoch, born
    )
    INSERT INTO ullage.events (session_id, epoch, born, seq, ts, type, v, id, data)
    SELECT swapped.*, new.*
    FROM swapped, unnest(%s::bigint[], %s::double precision[], %s::text[], %s::bigint[],
                         %s::text[], %s::text[]) AS new
    RETURNING seq
"""
"""Every condition is on the one row that a take-over changes too: the second of two writers sees
it."""

BRING: Final = """
    INSERT INTO ullage.events (session_id, epoch, born, seq, ts, type, v, id, data)
    SELECT one.session_id, %s, one.born, new.*
    FROM ullage.sessions AS one,
         unnest(%s::bigint[], %s::double precision[], %s::text[],
                %s::bigint[], %s::text[], %s::text[]) AS new
    WHERE one.session_id = %s
"""
GRANT: Final = """
    INSERT INTO ullage.leases (session_id, epoch, owner, acquired, seen, released, taken)
    VALUES (%s, %s, %s, %s, %s, %s, %s)
"""
SEAT: Final = "UPDATE ullage.sessions SET writer = %s WHERE session_id = %s"
BEAT: Final = """
    WITH seat AS (
        SELECT writer FROM ullage.sessions WHERE session_id = %s AND writer = %s FOR UPDATE
    )
    UPDATE ullage.leases SET seen = extract(epoch FROM clock_timestamp())
    FROM seat WHERE session_id = %s AND epoch = seat.writer
    RETURNING session_id, epoch, owner, acquired, seen, released, taken
"""
"""One statement: a writer that is suspended during a heartbeat leaves no lock."""

RELEASE: Final = """
    UPDATE ullage.leases SET released = extract(epoch FROM clock_timestamp())
    WHERE session_id = %s AND epoch = %s
"""
ERASE: Final = (
    "DELETE FROM ullage.events WHERE session_id = %s",
    """
    WITH lost AS (DELETE FROM ullage.spots WHERE session = %s RETURNING passage)
    DELETE FROM ullage.passages AS p USING lost WHERE p.id = lost.passage
    AND NOT EXISTS (SELECT FROM ullage.spots AS s
                    WHERE s.passage = p.id AND s.session <> %s)
    """,
)
REACHED: Final = """
    INSERT INTO ullage.reached AS one (session, upto) VALUES (%s, %s)
    ON CONFLICT (session) DO UPDATE SET upto = greatest(one.upto, excluded.upto)
"""
"""A search that read the session before adds nothing of it to the index any more."""

MOVE: Final = "UPDATE ullage.sessions SET head = %s, last = %s, epoch = %s WHERE session_id = %s"
END: Final = 2**62

SURVEY: Final = """
    SELECT s.session_id, s.created, coalesce(e.ts, s.created), s.head, 0 FROM ullage.sessions AS s
    LEFT JOIN ullage.events AS e ON e.session_id = s.session_id AND e.seq = s.head
    ORDER BY s.number
"""
SIZES: Final = """
    SELECT session_id, sum(octet_length(data))::bigint FROM ullage.events GROUP BY session_id
"""
CUT: Final = "DELETE FROM ullage.events WHERE session_id = %s AND seq > %s"
LAST: Final = "SELECT seq, id, epoch FROM ullage.events WHERE session_id = %s AND seq = %s"
TEXTS: Final = """
    SELECT seq, id, data FROM ullage.events WHERE session_id = %s AND type = ANY (%s)
    AND octet_length(data) >= %s AND NOT starts_with(data, 'object:') ORDER BY seq LIMIT %s
"""
MOVED: Final = """
    SELECT seq, id, data FROM ullage.events
    WHERE (%s::text IS NULL OR session_id = %s) AND octet_length(data) < 2000
    AND starts_with(data, 'object:')
"""
"""The reference to a moved text takes some 300 bytes; larger rows need not be read."""

SWAP: Final = """
    UPDATE ullage.events SET data = %s
    WHERE session_id = %s AND seq = %s AND id = %s AND data = %s RETURNING seq
"""
REMOVE: Final = (
    "DELETE FROM ullage.reached WHERE session = %s",
    "DELETE FROM ullage.leases WHERE session_id = %s",
    "DELETE FROM ullage.sessions WHERE session_id = %s",
)


class PostgresLog(Unpicklable):
    """The events of sessions in a database; `lease_s` is how long a silent writer keeps its lease.

    The `now` of a call dates sessions and events; the database's clock dates leases. Raises
    StoreError if the database cannot be used, or with `create=False` if it holds no store.
    """

    instead = "open one in the other process: ullage.open_log(log.url)"

    def __init__(
        self,
        url: str,
        *,
        create: bool = True,
        lease_s: float = LEASE_S,
        wait_s: float = WAIT_S,
    ) -> None:
        self.lease_s = lease_s
        self._database = PostgresDatabase(url, create=create, wait_s=wait_s)
        self._objects = ObjectReader()
        self.passages = SqlIndex(self._database, PASSAGES, kept=False)
        self.partitions = Partitions(self._database, lease_s, self._objects)
        threads = Threads("ullage-postgres-log", MOST)
        self.desk = Desk(threads, threads)
        self._split: bool | None = None  # partitioned, as last seen: a stale value only costs time
        self._tails: dict[str, Head] = {}  # this writer's last events, until it releases them

    @property
    def url(self) -> str:
        """The URL that opens it, without the password."""
        return self._database.url

    def create(self, session: str, now: float) -> Head:
        """Begin a session; raises StoreError if the name is taken or invalid."""
        return self._begin_session(Head(log.check_name(session), now), [])

    def sessions(self) -> list[Head]:
        """Return all sessions, oldest first."""
        return [Head(*row) for row in self._database.rows(f"{HEADS} ORDER BY number")]

    def head(self, session: str) -> Head:
        """Return the end of a session."""
        return _only(session, self._database.rows(HEAD, (_key(session),)))

    def append(
        self, session: str, epoch: int, expected_head: int, drafts: Sequence[Draft], now: float
    ) -> list[Event]:
        """Record events as one unit after event `expected_head`, on disk when this returns.

        After a lost connection the head is read again. If it is the last of these events, they were
        written; if not, the same swap is tried once more, and only one of both can succeed. Raises
        ConnectionLost if the database stays away: the head then shows later what was written.
        """
        head = self._tails.pop(session, None)
        if head is None or head.seq != expected_head or not drafts:
            head = self.head(session)
            log.holding(session, self._find_lease(session), epoch)
        events = log.stamp(head, expected_head, drafts, now)
        if not events:
            return events
        last = events[-1]
        swap = (last.seq, last.id, epoch, session, epoch, head.seq, head.id, *_columns(events))
        if not self._swap_head(session, last, swap):
            raise self._explain_refusal(session, epoch, expected_head)
        self._tails[session] = replace(head, seq=last.seq, id=last.id, epoch=epoch)
        return events

    def restore(self, events: Sequence[Event], now: float) -> Head:
        """Import a whole session unchanged, under its own name, which must be free."""
        head = Head(log.restorable(events), now, events[-1].seq, events[-1].id)
        return self._begin_session(head, events)

    def read(self, session: str, after: int = 0, upto: int | None = None) -> list[Event]:
        """Return the events with `after` < seq <= `upto`, each checked against the previous one."""
        head = self.head(session)
        until = END if upto is None else upto
        rows = self._read_rows(session, after, until)
        found = load_events(self._objects, rows)
        return log.check_chain(head, found, after, until)

    def read_stamped(self, session: str) -> list[Stamped]:
        """Return the stored events of a session with their epochs, unchecked."""
        self.head(session)
        rows = self._database.rows(STAMPED, (session,))
        events = load_events(self._objects, [row[1:] for row in rows], lost=True)
        return [(row[0], event) for row, event in zip(rows, events, strict=True)]

    def acquire(
        self,
        session: str,
        owner: Owner,
        now: float,  # noqa: ARG002 - leases use the database's clock
        *,
        take_over: bool = False,
    ) -> Lease:
        """Become the writer, with a new epoch; raises BusyWriter while another lease holds."""
        with self._database.writing() as cursor:
            head = _lock_head(cursor, session)
            held = _lease_of(cursor.execute(HELD, (session,)).fetchall())
            ((clock,),) = cursor.execute(CLOCK).fetchall()
            terms = log.LeaseTerms(clock, self.lease_s, take_over=take_over)
            lease = log.grant_lease(head, held, owner, terms)
            said = json.dumps(owner.to_dict())
            row = (session, lease.epoch, said, clock, clock, None, lease.taken)
            cursor.execute(GRANT, row)
            cursor.execute(SEAT, (lease.epoch, session))
        return lease

    def heartbeat(self, session: str, epoch: int, now: float) -> Lease:  # noqa: ARG002
        """Renew the lease; raises Fenced if another writer holds it."""
        rows = self._database.rows(BEAT, (_key(session), epoch, session))
        if rows:
            return _lease(rows[0])
        self.head(session)
        return log.holding(session, self._find_lease(session), epoch)

    def release(self, session: str, epoch: int, now: float) -> None:  # noqa: ARG002
        """Release the lease; do nothing the second time, or after a take-over."""
        self._tails.pop(session, None)
        with self._database.writing() as cursor:
            _lock_head(cursor, session)
            held = _lease_of(cursor.execute(HELD, (session,)).fetchall())
            if held is not None and held.epoch == epoch and held.released is None:
                cursor.execute(RELEASE, (session, epoch))
                cursor.execute(SEAT, (None, session))

    def leases(self, session: str) -> list[Lease]:
        """Return all leases of a session, past and present, by epoch."""
        self.head(session)
        return [_lease(row) for row in self._database.rows(LEASES, (session,))]

    def rewrite(self, session: str, epoch: int, events: Sequence[Event]) -> None:
        """Replace all recorded events of a session."""
        self._tails.pop(session, None)
        last = events[-1]
        with self._database.writing() as cursor:
            _lock_head(cursor, session)
            log.holding(session, _lease_of(cursor.execute(HELD, (session,)).fetchall()), epoch)
            PASSAGES.lock(cursor, LOCK)
            gone = _list_moved(cursor, session)
            cursor.execute(ERASE[0], (session,))
            cursor.execute(ERASE[1], (session, session))
            cursor.execute(BRING, (epoch, *_columns(events), session))
            cursor.execute(MOVE, (last.seq, last.id, epoch, session))
            cursor.execute(REACHED, (session, last.seq))
        self._objects.forget(gone)

    def survey(self, *, sized: bool) -> list[SessionExtent]:
        """Return all sessions, oldest first; with `sized` it measures all data."""
        sizes: dict[str, int] = dict(self._database.rows(SIZES) if sized else ())
        found = (SessionExtent(*row) for row in self._database.rows(SURVEY))
        return [replace(one, size=sizes.get(one.session, 0)) for one in found]

    def remove(self, session: str, epoch: int, most: int = BATCH) -> bool:
        """Remove up to `most` of the last events of a session; return whether it is gone."""
        self._tails.pop(session, None)
        with self._database.writing() as cursor:
            head = _lock_head(cursor, session)
            log.holding(session, _lease_of(cursor.execute(HELD, (session,)).fetchall()), epoch)
            gone = _list_moved(cursor, session, after=head.seq - most)
            left = cursor.execute(LAST, (session, head.seq - most)).fetchall()
            cursor.execute(CUT, (session, left[0][0] if left else 0))
            PASSAGES.lock(cursor, LOCK)
            cursor.execute(ERASE[1], (session, session))
            if left:
                cursor.execute(MOVE, (*left[0], session))
                cursor.execute(REACHED, (session, head.seq))
            for statement in REMOVE if not left else ():
                cursor.execute(statement, (session,))
        self._objects.forget(gone)
        return not left

    def drop(self, due: Mapping[str, float]) -> list[str]:
        """Drop the partitions whose sessions are all due; create those for the coming time."""
        if self.partitions.find_every() is None:
            return []
        self.partitions.make_ahead()
        gone = self.partitions.drop(due)
        for session in gone:
            self._tails.pop(session, None)
        return gone

    def list_texts(self, session: str, least: int, most: int) -> list[StoredText]:
        """Return up to `most` texts of `least` bytes or more that are in the log itself."""
        rows = self._database.rows(TEXTS, (session, list(MOVABLE), least, most))
        return [StoredText(*row) for row in rows]

    def list_moved(self, session: str | None = None) -> list[StoredText]:
        """Return the references to moved texts, of all sessions if `session` is None."""
        return [StoredText(*row) for row in self._database.rows(MOVED, (session, session))]

    def swap_text(self, session: str, held: StoredText, text: str) -> bool:
        """Replace a text if it is still there; return whether it was."""
        row = (text, session, held.seq, held.id, held.text)
        return bool(self._database.once(SWAP, row))

    def scrub(self) -> str:
        """Overwrite deleted data; return where some may still be."""
        return self._database.scrub()

    def close(self) -> None:
        """Close the connection."""
        self._database.close()

    def _begin_session(self, head: Head, events: Sequence[Event]) -> Head:
        with self._database.writing() as cursor:
            row = (head.session, head.created, head.seq, head.id, head.epoch)
            if not cursor.execute(BEGIN, row).fetchall():
                raise log.make_taken_error(head.session)
            if events:
                cursor.execute(BRING, (head.epoch, *_columns(events), head.session))
        return head

    def _read_rows(self, session: str, after: int, until: int) -> Rows:
        if self._split is None:
            ((every, _),) = self._database.rows(LAYOUT)
            self._split = bool(every)
        if self._split:
            return self._database.rows(READ_BORN, (session, after, until, session))
        return self._database.rows(READ, (session, after, until))

    def _find_lease(self, session: str) -> Lease | None:
        return _lease_of(self._database.rows(HELD, (session,)))

    def _swap_head(self, session: str, last: Event, swap: Sequence[Any]) -> bool:
        """Put events after the head, if the head is unchanged and this writer holds the lease."""
        try:
            return bool(self._database.once(APPEND, swap))
        except ConnectionLost:
            # The lost statement may have been carried out, or may still arrive. At most one of the
            # two finds the head that both name.
            return (
                self.head(session).id == last.id
                or bool(self._database.once(APPEND, swap))
                or self.head(session).id == last.id
            )

    def _explain_refusal(self, session: str, epoch: int, expected: int) -> Fenced:
        """Return why a swap found no row."""
        try:
            log.holding(session, self._find_lease(session), epoch)
            log.stamp(self.head(session), expected, [], 0.0)
        except Fenced as error:
            return error
        return Fenced(
            f"session {session} is not what epoch {epoch} knows: read it anew; nothing was written"
        )


def _key(session: str) -> str:
    """Return a name that PostgreSQL accepts; raise the unknown-session error for an invalid one."""
    if not session.isprintable():
        raise log.absent(session)
    return session


def _only(session: str, rows: Sequence[tuple[Any, ...]]) -> Head:
    if not rows:
        raise log.absent(session)
    return Head(*rows[0])


def _lock_head(cursor: Cursor, session: str) -> Head:
    """Return the head of a session, locked until the transaction ends."""
    rows = cursor.execute(f"{HEAD} FOR UPDATE", (_key(session),)).fetchall()
    return _only(session, rows)


def _list_moved(cursor: Cursor, session: str, after: int = 0) -> list[str]:
    """Return the references to moved texts after an event."""
    rows = cursor.execute(MOVED, (session, session)).fetchall()
    return [text for seq, _, text in rows if seq > after]


def _lease_of(rows: Sequence[tuple[Any, ...]]) -> Lease | None:
    return _lease(rows[0]) if rows else None


def _lease(row: tuple[Any, ...]) -> Lease:
    session, epoch, owner, acquired, seen, released, taken = row
    return Lease(session, epoch, Owner(**json.loads(owner)), acquired, seen, released, taken)


def _columns(events: Sequence[Event]) -> tuple[list[Any], ...]:
    """Return events as arrays, one for each column."""
    rows = [(e.seq, e.ts, e.type, e.v, e.id, e.text) for e in events]
    return tuple(list(column) for column in zip(*rows, strict=True))
