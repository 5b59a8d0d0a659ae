"""The events of a PostgreSQL log in partitions by time, if an operator asks for it.

A whole session lies in the partition of the time at which it began: `born` in its row of
`sessions`. That value never changes, and every append reads it there. So a number is used only once
in a session, although PostgreSQL keeps keys unique only within a partition. All earlier events form
one partition of their own. It knows only the session names that are passed to it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, LiteralString, cast

from psycopg.errors import LockNotAvailable

from ullage.core.errors import BusyWriter, ConfigurationError, StoreError
from ullage.storage import log
from ullage.storage.log import Lease, LeaseTerms, Owner
from ullage.storage.objects import ObjectReader
from ullage.storage.postgres_database import Cursor, PostgresDatabase

Every = Literal["day", "week", "month"]
EVERY: Final[tuple[Every, ...]] = ("day", "week", "month")

AHEAD: Final = 3
"""Partitions that are made in advance; sessions begun after the last one still go to it."""

HASTE: Final = "SET LOCAL lock_timeout = '200ms'"
"""A transaction that waits for one table while it holds another gives up before PostgreSQL checks
for deadlocks (`deadlock_timeout`, one second) and would cancel a writer. Then it tries again."""

ALONE: Final = "LOCK TABLE ullage.sessions, ullage.events IN ACCESS EXCLUSIVE MODE"
PAUSE_S: Final = 0.05

MARGIN_S: Final = 3600.0
"""Seconds that the preparation may take: the current partition ends no sooner."""

WHOLE: Final = "events_before"
"""The partition of the events recorded before the log was partitioned."""

LAYOUT: Final = "SELECT every, edge FROM ullage.layout"
SET_LAYOUT: Final = "UPDATE ullage.layout SET every = %s, edge = %s"
CLOCK: Final = "SELECT extract(epoch FROM clock_timestamp())::double precision"
LISTED: Final = """
    SELECT c.relname, pg_get_expr(c.relpartbound, c.oid), pg_total_relation_size(c.oid)
    FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid
    WHERE i.inhparent = 'ullage.events'::regclass ORDER BY 1
"""
READIED: Final[tuple[LiteralString, ...]] = (
    "ALTER TABLE ullage.events ALTER COLUMN born DROP DEFAULT",
    """
    UPDATE ullage.events AS e SET born = s.born FROM ullage.sessions AS s
    WHERE s.session_id = e.session_id AND e.born <> s.born
    """,
    "DROP INDEX IF EXISTS ullage.events_born",
    """
    CREATE UNIQUE INDEX CONCURRENTLY events_born ON ullage.events (session_id, seq, born)
    """,
    "ALTER TABLE ullage.events DROP CONSTRAINT IF EXISTS events_cut",
)
"""Steps that run while others write; after them, programs that do not know `born` are refused."""

SPLIT: Final[tuple[LiteralString, ...]] = (
    "ALTER TABLE ullage.events DROP CONSTRAINT events_pkey",
    "ALTER TABLE ullage.events RENAME TO events_before",
    """
    ALTER TABLE ullage.events_before ADD CONSTRAINT events_before_pkey
    PRIMARY KEY USING INDEX events_born
    """,
    """
    CREATE TABLE ullage.events (
        session_id text COLLATE "C" NOT NULL REFERENCES ullage.sessions (session_id),
        seq        bigint NOT NULL,
        epoch      bigint NOT NULL,
        ts         double precision NOT NULL,
        type       text NOT NULL,
        v          bigint NOT NULL,
        id         text NOT NULL,
        data       text NOT NULL,
        born       double precision NOT NULL,
        PRIMARY KEY (session_id, seq, born)
    ) PARTITION BY RANGE (born)
    """,
)
JOINED: Final[tuple[LiteralString, ...]] = (
    """
    CREATE TABLE ullage.events_joined (
        session_id text COLLATE "C" NOT NULL REFERENCES ullage.sessions (session_id),
        seq        bigint NOT NULL,
        epoch      bigint NOT NULL,
        ts         double precision NOT NULL,
        type       text NOT NULL,
        v          bigint NOT NULL,
        id         text NOT NULL,
        data       text NOT NULL,
        born       double precision NOT NULL DEFAULT '-infinity'
    )
    """,
    """
    INSERT INTO ullage.events_joined
    SELECT session_id, seq, epoch, ts, type, v, id, data, born FROM ullage.events
    """,
    "DROP TABLE ullage.events",
    "ALTER TABLE ullage.events_joined RENAME TO events",
    "ALTER TABLE ullage.events ADD CONSTRAINT events_pkey PRIMARY KEY (session_id, seq)",
)
THERE: Final = """
    SELECT s.session_id, s.head, coalesce(e.ts, s.created) FROM ullage.sessions AS s
    LEFT JOIN ullage.events AS e
    ON e.session_id = s.session_id AND e.seq = s.head AND e.born = s.born
    WHERE s.born >= %s AND s.born < %s
"""
LOCKED: Final = """
    SELECT session_id, head FROM ullage.sessions WHERE born >= %s AND born < %s
    ORDER BY session_id FOR UPDATE
"""
HOLDING: Final = """
    SELECT DISTINCT ON (session_id)
        session_id, epoch, owner, acquired, seen, released, taken
    FROM ullage.leases WHERE session_id = ANY (%s) ORDER BY session_id, epoch DESC
"""
GONE: Final[tuple[LiteralString, ...]] = (
    """
    WITH lost AS (DELETE FROM ullage.spots WHERE session = ANY (%s) RETURNING passage)
    DELETE FROM ullage.passages AS p USING lost WHERE p.id = lost.passage
    AND NOT EXISTS (SELECT FROM ullage.spots AS s
                    WHERE s.passage = p.id AND NOT s.session = ANY (%s))
    """,
    "DELETE FROM ullage.reached WHERE session = ANY (%s)",
    "DELETE FROM ullage.leases WHERE session_id = ANY (%s)",
    "DELETE FROM ullage.sessions WHERE session_id = ANY (%s)",
)


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition: its table, the start times of its sessions (Unix seconds), its bytes."""

    name: str
    first: float
    end: float
    size: int


class Partitions:
    """The partitions of a log's events; `lease_s` is how long a silent writer keeps its lease."""

    def __init__(self, database: PostgresDatabase, lease_s: float, objects: ObjectReader) -> None:
        self._database, self._lease_s, self._objects = database, lease_s, objects

    def find_every(self) -> Every | None:
        """Return the length of a partition, or None for a log without partitions."""
        ((every, _),) = self._database.rows(LAYOUT)
        return cast("Every", every) if every else None

    def list_all(self) -> list[Partition]:
        """Return the partitions, the oldest first."""
        rows = self._database.rows(LISTED)
        made = [Partition(name, *_read_bounds(told), size) for name, told, size in rows]
        return sorted(made, key=lambda one: one.first)

    def begin(self, every: Every, ahead: int = AHEAD) -> list[Partition]:
        """Put the existing events in one partition, and make the partitions for the coming time.

        No row is copied. Writers wait while the tables are exchanged, and before that only for
        single pages of a new index. Raises ConfigurationError if there already are partitions.
        """
        if self.find_every() is not None:
            raise ConfigurationError(
                f"{self._database.url} has partitions already, by {self.find_every()}"
            )
        if every not in EVERY or ahead < 1:
            raise ConfigurationError(
                f"partitions are for a {', '.join(EVERY)} each, one or more ahead: not "
                f"{every!r:.20} and {ahead}"
            )
        with self._database.patiently() as cursor:
            cut = _find_end(_read_clock(cursor) + MARGIN_S, every)
            for step in (*READIED, *_list_checks(cut)):
                cursor.execute(step)
        with self._changing() as cursor:
            for step in (*SPLIT, _write_attachment(cut)):
                cursor.execute(step)
            cursor.execute(SET_LAYOUT, (every, cut - 1))
            self._make_ahead(cursor, every, ahead)
        return self.list_all()

    def make_ahead(self, ahead: int = AHEAD) -> list[Partition]:
        """Make the partitions for the coming time; return the new ones."""
        every = self.find_every()
        if every is None:
            raise _make_refusal(self._database.url)
        before = {one.name for one in self.list_all()}
        with self._changing() as cursor:
            self._make_ahead(cursor, every, ahead)
        return [one for one in self.list_all() if one.name not in before]

    def end(self) -> None:
        """Put all events in one table again; this copies them, and nobody can write meanwhile."""
        if self.find_every() is None:
            raise _make_refusal(self._database.url)
        with self._changing() as cursor:
            for step in JOINED:
                cursor.execute(step)
            cursor.execute(SET_LAYOUT, ("", float("inf")))

    def drop(self, due: Mapping[str, float]) -> list[str]:
        """Drop the partitions whose sessions are all due and free; return the removed sessions.

        `due` maps the sessions that may go to the time that their last event then had. The
        partition for new sessions stays.
        """
        gone: list[str] = []
        if self.find_every() is None:
            return gone
        ((clock,),) = self._database.rows(CLOCK)
        for one in self.list_all()[:-1]:  # the last one takes new sessions at any age
            if one.end <= clock:
                gone += self._drop(one, due)
        return gone

    def _drop(self, one: Partition, due: Mapping[str, float]) -> list[str]:
        """Drop a partition with its sessions; do nothing if one of them must stay."""
        between = (one.first, one.end)
        rows = self._database.rows(THERE, between)
        if not all(name in due and last <= due[name] for name, _, last in rows):
            return []
        with self._changing() as cursor:
            there: dict[str, int] = dict(cursor.execute(LOCKED, between).fetchall())
            names = list(there)
            if there != {name: head for name, head, _ in rows} or not self._is_free(cursor, names):
                return []
            moved = cursor.execute(_list_moved(one.name)).fetchall()
            cursor.execute(f"DROP TABLE ullage.{one.name}")
            cursor.execute(GONE[0], (names, names))
            for step in GONE[1:]:
                cursor.execute(step, (names,))
        self._objects.forget(text for (text,) in moved)
        return names

    def _is_free(self, cursor: Cursor, names: list[str]) -> bool:
        """Tell whether nobody holds a lease of these sessions, which are locked."""
        terms = LeaseTerms(_read_clock(cursor), self._lease_s)
        for session, epoch, owner, acquired, seen, released, taken in cursor.execute(
            HOLDING, (names,)
        ).fetchall():
            told = Owner(**json.loads(owner))
            held = Lease(session, epoch, told, acquired, seen, released, taken)
            if released is None and not log.find_end(held, terms):
                return False
        return True

    def _make_ahead(self, cursor: Cursor, every: Every, ahead: int) -> None:
        """Make the missing partitions until `ahead` of them follow the current one."""
        ((_, edge),) = cursor.execute(LAYOUT).fetchall()
        first, until = edge + 1, _read_clock(cursor)
        for _ in range(ahead + 1):
            until = _find_end(until, every)
        while first < until:
            end = _find_end(first, every)
            name = f"events_{datetime.fromtimestamp(first, UTC):%Y%m%d}"
            bounds = f"FROM ({first!r}) TO ({end!r})"
            cursor.execute(
                f"CREATE TABLE ullage.{name} PARTITION OF ullage.events FOR VALUES {bounds}"
            )
            first = end
        cursor.execute(SET_LAYOUT, (every, first - 1))

    @contextmanager
    def _changing(self) -> Iterator[Cursor]:
        """Hold the tables exclusively, in one transaction without a time limit.

        Raises BusyWriter if they are not free within `wait_s`.
        """
        until = time.monotonic() + self._database.wait_s
        with self._database.patiently() as cursor:
            while True:
                alone = False
                try:
                    with cursor.connection.transaction():
                        cursor.execute(HASTE)
                        cursor.execute(ALONE)
                        cursor.execute("SET LOCAL lock_timeout = '5s'")
                        alone = True
                        yield cursor
                        return
                except LockNotAvailable:
                    if alone:
                        raise
                if time.monotonic() > until:
                    raise BusyWriter(
                        f"{self._database.url} was not free for {self._database.wait_s:g} s: try "
                        "again when fewer write, or end the program that holds its tables"
                    )
                time.sleep(PAUSE_S)


def _list_moved(name: str) -> LiteralString:
    """Return the query for the references to moved texts."""
    sql = f"SELECT data FROM ullage.{name} WHERE octet_length(data) < 2000"  # noqa: S608 - our name
    return f"{sql} AND starts_with(data, 'object:')"


def _list_checks(cut: float) -> Iterator[LiteralString]:
    """Yield statements that prove that all rows are older, so that the exchange reads no row."""
    check = f"ADD CONSTRAINT events_cut CHECK (born < {cut!r}) NOT VALID"
    yield f"ALTER TABLE ullage.events {check}"
    yield "ALTER TABLE ullage.events VALIDATE CONSTRAINT events_cut"


def _write_attachment(cut: float) -> LiteralString:
    bounds = f"FROM (MINVALUE) TO ({cut!r})"
    return f"ALTER TABLE ullage.events ATTACH PARTITION ullage.{WHOLE} FOR VALUES {bounds}"


def _read_clock(cursor: Cursor) -> float:
    ((clock,),) = cursor.execute(CLOCK).fetchall()
    return float(clock)


def _find_end(at: float, every: Every) -> float:
    """Return the end of the day, week or month of a time, in UTC and Unix seconds."""
    day = datetime.fromtimestamp(at, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    if every == "day":
        return (day + timedelta(days=1)).timestamp()
    if every == "week":
        return (day + timedelta(days=7 - day.weekday())).timestamp()
    return (day.replace(day=1) + timedelta(days=32)).replace(day=1).timestamp()


def _read_bounds(told: str) -> tuple[float, float]:
    """Return the bounds in PostgreSQL's description of a partition."""
    ends = [part.partition(")")[0].strip("'") for part in told.split("(")[1:]]
    try:
        first, end = (float("-inf") if one == "MINVALUE" else float(one) for one in ends)
    except ValueError:
        raise StoreError(
            f"a partition of ours has the bounds {told!r}: somebody changed it"
        ) from None
    return first, end


def _make_refusal(url: str) -> ConfigurationError:
    return ConfigurationError(f"{url} has no partitions: begin with `ullage partitions begin`")
