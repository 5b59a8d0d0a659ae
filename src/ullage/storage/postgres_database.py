"""One PostgreSQL database with our schema `ullage`: durable, versioned, with clear errors.

It knows tables and versions, but not the contents. It opens up to `MOST` connections as needed.
Threads and processes wait for each other in the database, up to `wait_s`, and only for the same
rows. The next use reopens a lost connection. Statements that only read, and heartbeats, are then
repeated once; other writes never are. A connection must not be carried across a fork: all are
closed before it, and each side opens its own. (psycopg's pool has threads of its own, which do not
survive a fork.)
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, Final, LiteralString, TypeVar

import psycopg
from psycopg import conninfo
from psycopg.pq import TransactionStatus

from ullage.core.errors import BusyWriter, ConfigurationError, StoreAway, StoreError
from ullage.storage.postgres_url import SECRET, hide_password

ADVISORY: Final = 0x756C6C67
"""`ullg`: the number of the lock that protects changes of the schema."""

WAIT_S: Final = 5.0

IDLE_S: Final = 4.0
"""Seconds after which PostgreSQL ends a transaction whose program is silent; less than `WAIT_S`.

A suspended program (a closed laptop, a paused container) otherwise keeps its connection and its
locks as long as it is suspended.
"""

ANSWER_S: Final = 30.0
"""Seconds that the answer to one statement may take. A stopped server keeps its side of a
connection alive, so no TCP time-out ends the wait."""

MOST: Final = 8
"""Connections of one process to a database; by default PostgreSQL allows 100 in all."""

MIGRATIONS: Final[Sequence[LiteralString]] = (
    """
    CREATE SEQUENCE ullage.turns;
    CREATE TABLE ullage.records (
        id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        kind       text COLLATE "C" NOT NULL,
        scope      text COLLATE "C" NOT NULL,
        name       text COLLATE "C" NOT NULL,
        policy     text COLLATE "C" NOT NULL,
        generation bigint NOT NULL,
        turn       bigint NOT NULL DEFAULT nextval('ullage.turns'),
        used       double precision NOT NULL,
        size       bigint NOT NULL,
        body       bytea NOT NULL,
        UNIQUE (kind, scope, name, policy, generation)
    );
    CREATE INDEX records_turn ON ullage.records (kind, turn, size);
    CREATE INDEX records_used ON ullage.records (used);
    """,
    """
    CREATE TABLE ullage.sessions (
        number     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        session_id text COLLATE "C" NOT NULL UNIQUE,
        created    double precision NOT NULL,
        head       bigint NOT NULL,
        last       text NOT NULL,
        epoch      bigint NOT NULL,
        writer     bigint
    );
    CREATE TABLE ullage.leases (
        session_id text COLLATE "C" NOT NULL REFERENCES ullage.sessions (session_id),
        epoch      bigint NOT NULL,
        owner      text NOT NULL,
        acquired   double precision NOT NULL,
        seen       double precision NOT NULL,
        released   double precision,
        taken      text NOT NULL,
        PRIMARY KEY (session_id, epoch)
    );
    CREATE TABLE ullage.events (
        session_id text COLLATE "C" NOT NULL REFERENCES ullage.sessions (session_id),
        seq        bigint NOT NULL,
        epoch      bigint NOT NULL,
        ts         double precision NOT NULL,
        type       text NOT NULL,
        v          bigint NOT NULL,
        id         text NOT NULL,
        data       text NOT NULL,
        PRIMARY KEY (session_id, seq)
    );
    """,
    """
    CREATE TABLE ullage.passages (
        id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        digest bytea NOT NULL UNIQUE,
        text   text NOT NULL,
        terms  tsvector NOT NULL
    );
    CREATE INDEX passages_terms ON ullage.passages USING gin (terms) WITH (fastupdate = off);
    CREATE TABLE ullage.spots (
        number    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        passage   bigint NOT NULL,
        session   text COLLATE "C" NOT NULL,
        seq       bigint NOT NULL,
        reference text COLLATE "C" NOT NULL,
        start     bigint NOT NULL
    );
    CREATE INDEX spots_passage ON ullage.spots (passage, session, seq);
    CREATE INDEX spots_place ON ullage.spots (seq, session);
    CREATE TABLE ullage.reached (
        session text COLLATE "C" PRIMARY KEY,
        upto    bigint NOT NULL
    );
    CREATE FUNCTION ullage.count_passages(asked text[], most bigint)
    RETURNS TABLE (term text, held bigint) LANGUAGE sql STABLE SET enable_seqscan = off AS $$
        SELECT '', coalesce(max(id), 0) FROM ullage.passages UNION ALL
        SELECT one, (SELECT count(*) FROM (SELECT FROM ullage.passages AS p
            WHERE p.terms @@ one::tsquery LIMIT most) AS found)
        FROM unnest(asked) AS one
    $$;
    CREATE FUNCTION ullage.find_passages(
        asked text[], weights double precision[], looked bigint, most bigint,
        kept boolean, names text[], sessions jsonb)
    RETURNS TABLE (passage text, reference text, start bigint, session text)
    LANGUAGE sql STABLE SET enable_seqscan = off AS $$
        WITH places AS NOT MATERIALIZED (
            SELECT * FROM ullage.spots AS s WHERE (s.session = '') = kept
            AND (names IS NULL OR s.reference = ANY (names))
            AND (sessions IS NULL OR s.seq <= (sessions ->> s.session)::bigint)),
        found AS (
            SELECT p.id, sum(word.weight) AS score FROM unnest(asked, weights) AS word (one, weight)
            CROSS JOIN LATERAL (
                SELECT p.id FROM ullage.passages AS p
                WHERE p.terms @@ word.one::tsquery
                AND EXISTS (SELECT FROM places AS s WHERE s.passage = p.id OFFSET 0)
                LIMIT looked) AS p
            GROUP BY p.id),
        best AS (SELECT found.id FROM found ORDER BY score DESC, found.id DESC LIMIT most)
        SELECT p.text, s.reference, s.start, s.session FROM best
        JOIN ullage.passages AS p ON p.id = best.id
        CROSS JOIN LATERAL
            (SELECT * FROM places AS s WHERE s.passage = best.id OFFSET 0) AS s ORDER BY s.number
    $$;
    CREATE FUNCTION ullage.forget_passages() RETURNS trigger LANGUAGE plpgsql AS $$
    DECLARE
        touched bigint[];
    BEGIN
        IF NOT EXISTS (SELECT FROM gone WHERE kind = 'original') THEN
            RETURN NULL;
        END IF;
        PERFORM pg_advisory_xact_lock(1970039912, 1);
        WITH lost AS (
            DELETE FROM ullage.spots AS s USING gone
            WHERE gone.kind = 'original' AND s.session = '' AND s.seq = gone.id
            RETURNING s.passage)
        SELECT array_agg(DISTINCT lost.passage) INTO touched FROM lost;
        DELETE FROM ullage.passages AS p WHERE p.id = ANY (touched)
        AND NOT EXISTS (SELECT FROM ullage.spots AS s WHERE s.passage = p.id);
        RETURN NULL;
    END $$;
    CREATE TRIGGER records_gone AFTER DELETE ON ullage.records
        REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION ullage.forget_passages();
    """,
    """
    ALTER TABLE ullage.sessions ADD COLUMN born double precision NOT NULL DEFAULT '-infinity';
    ALTER TABLE ullage.events ADD COLUMN born double precision NOT NULL DEFAULT '-infinity';
    CREATE TABLE ullage.layout (every text NOT NULL, edge double precision NOT NULL);
    INSERT INTO ullage.layout VALUES ('', 'infinity');
    """,
)
"""The step to each schema version from the previous one; `turn` is the order of use."""

DEFAULTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "application_name": "ullage",
        "connect_timeout": "5",
        "keepalives_idle": "30",
        "keepalives_interval": "5",
        "keepalives_count": "3",
        "tcp_user_timeout": "15000",
    }
)
"""Defaults for libpq: they detect a lost host within 15 seconds."""

FORCED: Final = """
    SELECT set_config('lock_timeout', %s, false),
    set_config('statement_timeout', %s, false),
    set_config('idle_in_transaction_session_timeout', %s, false),
    set_config('default_transaction_isolation', 'read committed', false),
    set_config('synchronous_commit', CASE current_setting('synchronous_commit')
               WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END, false)
"""
"""These override the defaults of the role: a commit is on disk, and a swap sees the newest row."""

TABLES: Final[Sequence[LiteralString]] = ("events", "records", "passages", "spots")
"""Tables that held text, or words of it."""

FOUND: Final = """
    SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = 'ullage'),
    EXISTS (SELECT FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace
            WHERE nspname = 'ullage'),
    to_regclass('ullage.schema_version') IS NOT NULL
"""
VERSION: Final = "SELECT version FROM ullage.schema_version"
ADVANCE: Final = "UPDATE ullage.schema_version SET version = %s"

ADVICE: Final[Sequence[tuple[tuple[type[psycopg.Error], ...], str]]] = (
    (
        (psycopg.errors.InsufficientPrivilege,),
        (
            "may not be used so: grant its role CREATE on the database, or USAGE of schema ullage "
            "and all rights on what is in it"
        ),
    ),
    (
        (psycopg.errors.ReadOnlySqlTransaction,),
        "is read-only, a standby perhaps: name the primary, or add target_session_attrs=read-write",
    ),
    ((psycopg.errors.DiskFull,), "cannot grow: the disk of the server is full, make room"),
    (
        (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn),
        "lacks a table of ours: somebody changed schema ullage, restore it",
    ),
    ((psycopg.DataError,), "cannot hold this"),
)
"""The meaning of each error for the database (PostgreSQL, appendix A), most precise first."""

Rows = list[tuple[Any, ...]]
Bindings = Sequence[Any] | dict[str, Any]
Cursor = psycopg.Cursor[tuple[Any, ...]]
Result = TypeVar("Result")


class Connection(psycopg.Connection[tuple[Any, ...]]):
    """A connection that closes if the server gives no answer for `answer_s` seconds."""

    answer_s = ANSWER_S

    def wait(
        self,
        gen: Generator[Any, Any, Result],
        interval: float = 0.1,
        timeout: float | None = None,
    ) -> Result:
        """Wait as psycopg does, but for a limited time; raises OperationalError after that."""
        return super().wait(self._limit(gen), interval, timeout)

    def _limit(self, gen: Generator[Any, Any, Result]) -> Generator[Any, Any, Result]:
        until = time.monotonic() + self.answer_s
        try:
            asked = next(gen)
            while True:
                ready = yield asked
                if not ready and time.monotonic() > until:  # an interval has passed
                    self.pgconn.finish()
                    raise psycopg.OperationalError(f"no answer for {self.answer_s:g} seconds")
                asked = gen.send(ready)
        except StopIteration as done:
            result: Result = done.value
            return result


class PatientConnection(Connection):
    """A connection that waits for an answer without a limit."""

    answer_s = float("inf")


class ConnectionLost(StoreAway):
    """Report a connection that broke or was refused; a pending write may have succeeded."""


class PostgresDatabase:
    """A database; `wait_s` is how long to wait for another program's lock.

    Raises StoreError if the database cannot be reached or used, and with `create=False` if it holds
    no store.
    """

    def __init__(
        self,
        url: str,
        *,
        create: bool = True,
        wait_s: float = WAIT_S,
        migrations: Sequence[LiteralString] = MIGRATIONS,
    ) -> None:
        self.url = hide_password(url)
        self._parameters = read_parameters(url, self.url)
        self._create = create
        self.wait_s = wait_s
        self._migrations = migrations
        self._gate = threading.Condition()
        self._idle: list[Connection] = []
        self._lent = 0
        self._forking = self._ended = False
        _close_at_fork(self)
        with self._using():
            pass

    def rows(self, sql: LiteralString, bindings: Bindings = ()) -> Rows:
        """Return the rows of a statement that only reads, or that may run twice."""
        try:
            return self.once(sql, bindings)
        except ConnectionLost:
            return self.once(sql, bindings)

    read = rows

    def once(self, sql: LiteralString, bindings: Bindings = ()) -> Rows:
        """Return the rows of one statement, in its own transaction.

        Raises ConnectionLost if it may or may not have run.
        """
        with self._using() as connection:
            return connection.execute(sql, bindings).fetchall()

    @contextmanager
    def writing(self) -> Iterator[Cursor]:
        """Make one transaction; commit at the end, or roll back after an error."""
        with (
            self._using(alive=True) as connection,
            connection.transaction(),
            connection.cursor() as cursor,
        ):
            yield cursor

    @contextmanager
    def patiently(self) -> Iterator[Cursor]:
        """Lend a separate connection, whose statements have no time limit.

        Waits for locks are still limited: a statement that waits for a lock holds up all that come
        after it.
        """
        held: Connection | None = None
        try:
            held = PatientConnection.connect(**self._parameters, autocommit=True)
            waits = str(int(self.wait_s * 1000))
            held.execute("SELECT set_config('lock_timeout', %s, false)", (waits,))
            with held.cursor() as cursor:
                yield cursor
        except psycopg.Error as error:
            raise self._translate_error(error, held) from None
        finally:
            if held is not None:
                held.close()

    def scrub(self) -> str:
        """Rewrite the tables without deleted data; return where some may still be.

        `VACUUM FULL` locks a table while it copies it. If another program holds the table for
        longer than `wait_s`, or the answer takes too long, an administrator has to do it.
        """
        try:
            with self._using(alive=True) as connection:
                for table in TABLES:
                    connection.execute(f"VACUUM (FULL) ullage.{table}")
        except StoreError as error:
            return f"dead rows, until VACUUM (FULL) has written the tables anew ({error})"
        return "WAL segments, archives, replicas and backups of the server, until they expire"

    @property
    def is_closed(self) -> bool:
        """Tell whether it was closed for good."""
        return self._ended

    def close(self) -> None:
        """Close all connections for good, once none is in use. A second call does nothing."""
        with self._gate:
            self._ended = True
            self._gate.wait_for(lambda: not self._lent)
            self._drop()

    @contextmanager
    def _using(self, *, alive: bool = False) -> Iterator[Connection]:
        """Lend a connection; raise PostgreSQL's errors as ours, without secrets.

        With `alive` the connection is tested first, so that one that broke while idle causes no
        failure.
        """
        held = self._take_connection()
        try:
            if held is not None and alive and not _lives(held):
                held = None
            if held is None:
                held = self._open_connection()
            yield held
        except psycopg.Error as error:
            told = self._translate_error(error, held)
            if isinstance(told, ConnectionLost):  # the other connections most likely broke, too
                with self._gate:
                    self._drop()
            raise told from None  # libpq's message may hold parts of the URL
        finally:
            self._give_back(held)

    def _take_connection(self) -> Connection | None:
        """Take a slot and the last used connection; return None if one must be opened."""
        with self._gate:
            self._gate.wait_for(lambda: self._ended or not (self._forking or self._lent >= MOST))
            if self._ended:
                raise StoreError(f"the store of {self.url} was closed: open it again")
            self._lent += 1
            return self._idle.pop() if self._idle else None

    def _give_back(self, held: Connection | None) -> None:
        """Keep a connection that can begin a new transaction; close any other."""
        fit = held is not None and held.info.transaction_status == TransactionStatus.IDLE
        if held is not None and not fit:
            held.close()
        with self._gate:
            self._lent -= 1
            if held is not None and fit:
                self._idle.append(held)
            self._gate.notify_all()

    def _drop(self) -> None:
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _translate_error(self, error: psycopg.Error, held: Connection | None) -> StoreError:
        """Return the error that explains a PostgreSQL error and names the database."""
        said = " ".join(str(error).split())
        for name in SECRET:
            if secret := self._parameters.get(name):
                said = said.replace(secret, "***")
        if isinstance(error, psycopg.errors.LockNotAvailable):
            return BusyWriter(
                f"{self.url} was locked by another program for {self.wait_s:g} s: end the program "
                f"that holds it, or try again ({said})"
            )
        for kinds, advice in ADVICE:
            if isinstance(error, kinds):
                made = StoreAway if isinstance(error, psycopg.errors.DiskFull) else StoreError
                return made(f"{self.url} {advice} ({said})")
        if held is None and isinstance(error, psycopg.OperationalError):
            return ConnectionLost(
                f"{self.url} cannot be reached: check host, port, database and role of the URL, "
                f"and that the server runs ({said})"
            )
        if held is not None and held.closed:
            return ConnectionLost(
                f"the connection to {self.url} was lost: the last write may or may not be there, "
                f"read the session again before another try ({said})"
            )
        return StoreError(f"{self.url} failed: {said}")

    # --- opening --------------------------------------------------------------------------------

    def _open_connection(self) -> Connection:
        """Connect, and migrate the schema to this version."""
        connection = Connection.connect(**self._parameters, autocommit=True)
        try:
            _demand_unicode(connection, self.url)
            waits = (self.wait_s, connection.answer_s, IDLE_S)
            connection.execute(FORCED, [str(int(seconds * 1000)) for seconds in waits])
            if self._version(connection) < len(self._migrations):
                self._migrate(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _version(self, connection: Connection) -> int:
        """Return the version of the schema, or below 1 if its tables must be created.

        Refuses another program's schema, a newer one, and with `create=False` a missing one.
        """
        ((schema, tables, ours),) = connection.execute(FOUND).fetchall()
        version = 0
        if ours:
            ((version,),) = connection.execute(VERSION).fetchall()
        elif tables:
            raise StoreError(
                f"{self.url} has a schema ullage that is another program's: give another database"
            )
        if version > len(self._migrations):
            raise StoreError(
                f"{self.url} has schema version {version}, and this ullage reads up to "
                f"{len(self._migrations)}: upgrade ullage, or give another database for a new store"
            )
        if version == 0 and not self._create:
            raise StoreError(f"there is no store in {self.url}: check the database of the URL")
        if not schema:
            return -1
        return int(version)

    def _migrate(self, connection: Connection) -> None:
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (ADVISORY,))
            # Read again: another process may have migrated while we waited for its lock.
            version = self._version(connection)
            if version < 0:
                connection.execute("CREATE SCHEMA ullage")
            if version <= 0:
                connection.execute("CREATE TABLE ullage.schema_version (version bigint NOT NULL)")
                connection.execute("INSERT INTO ullage.schema_version VALUES (0)")
            for step in self._migrations[max(version, 0) :]:
                connection.execute(step)
            connection.execute(
                "UPDATE ullage.schema_version SET version = %s", (len(self._migrations),)
            )

    # --- forks ----------------------------------------------------------------------------------

    def before_fork(self) -> None:
        """Wait for transactions in progress, and close: the child must inherit nothing open."""
        self._gate.acquire()
        self._forking = True
        self._gate.wait_for(lambda: not self._lent)
        self._drop()

    def after_fork(self) -> None:
        """Continue, in the parent and in the child; the next use connects."""
        self._forking = False
        self._gate.notify_all()
        self._gate.release()


def _lives(connection: Connection) -> bool:
    """Tell whether an idle connection still answers; close it if not."""
    try:
        connection.execute("SELECT 1")
    except psycopg.OperationalError:
        connection.close()
        return False
    return True


def read_parameters(url: str, shown: str) -> dict[str, Any]:
    """Return the libpq parameters of a URL; raises ConfigurationError if it has none."""
    try:
        said = conninfo.conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        said = None
    if said is None:  # raised here, as libpq's error may quote a password
        raise ConfigurationError(
            f"store {shown!r} is no URL of PostgreSQL: write postgresql://USER@HOST:PORT/DATABASE, "
            "with %XX for special characters in a name or a password"
        )
    return {**DEFAULTS, **said}


def _demand_unicode(connection: Connection, shown: str) -> None:
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise StoreError(
            f"{shown} has the encoding {encoding}, which cannot hold every text: give a database "
            "that was made with ENCODING 'UTF8'"
        )


def _close_at_fork(database: PostgresDatabase) -> None:
    """Close a database before each fork of this process, while the database exists."""
    if not hasattr(os, "register_at_fork"):
        return
    seen = weakref.ref(database)

    def before() -> None:
        if (held := seen()) is not None:
            held.before_fork()

    def after() -> None:
        if (held := seen()) is not None:
            held.after_fork()

    os.register_at_fork(before=before, after_in_parent=after, after_in_child=after)
