"""One SQLite file that keeps every acknowledged write: WAL, FULL, private, versioned.

It knows tables and versions, but not the contents. One connection writes, under one lock. Threads
take turns, or share a transaction with other waiting threads. Other processes wait for the file for
up to `wait_s`. While the writing connection is busy, a second one reads. A connection must not be
carried across a fork (sqlite.org, "How To Corrupt"): it is closed before the fork, and each side
opens its own.
"""

from __future__ import annotations

import os
import re
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import apsw

from ullage.core.errors import StoreAway, StoreError
from ullage.storage import faults

APPLICATION: Final = 0x756C6C67
"""`ullg`, in the header of each of our files; a file with another number is not ours."""

MIGRATIONS: Final[Sequence[str]] = (
    """
    CREATE TABLE records (
        id         INTEGER PRIMARY KEY AUTOINCREMENT,
        kind       TEXT    NOT NULL,
        scope      TEXT    NOT NULL,
        name       TEXT    NOT NULL,
        policy     TEXT    NOT NULL,
        generation INTEGER NOT NULL,
        turn       INTEGER NOT NULL,
        used       REAL    NOT NULL,
        size       INTEGER NOT NULL,
        body       BLOB    NOT NULL,
        UNIQUE (kind, scope, name, policy, generation)
    ) STRICT;
    CREATE INDEX records_turn ON records (kind, turn, size);
    CREATE INDEX records_used ON records (used);
    """,
    """
    CREATE TABLE sessions (
        number     INTEGER PRIMARY KEY AUTOINCREMENT,
        session_id TEXT    NOT NULL UNIQUE,
        created    REAL    NOT NULL,
        head       INTEGER NOT NULL,
        last       TEXT    NOT NULL,
        epoch      INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE leases (
        session_id TEXT    NOT NULL REFERENCES sessions (session_id),
        epoch      INTEGER NOT NULL,
        owner      TEXT    NOT NULL,
        acquired   REAL    NOT NULL,
        seen       REAL    NOT NULL,
        released   REAL,
        taken      TEXT    NOT NULL,
        PRIMARY KEY (session_id, epoch)
    ) STRICT;
    CREATE TABLE events (
        session_id TEXT    NOT NULL REFERENCES sessions (session_id),
        seq        INTEGER NOT NULL,
        epoch      INTEGER NOT NULL,
        ts         REAL    NOT NULL,
        type       TEXT    NOT NULL,
        v          INTEGER NOT NULL,
        id         TEXT    NOT NULL,
        data       TEXT    NOT NULL,
        PRIMARY KEY (session_id, seq)
    ) STRICT, WITHOUT ROWID;
    """,
    """
    CREATE TABLE passages (
        id     INTEGER PRIMARY KEY,
        digest BLOB NOT NULL UNIQUE,
        text   TEXT NOT NULL
    ) STRICT;
    CREATE TABLE spots (
        passage   INTEGER NOT NULL,
        session   TEXT    NOT NULL,
        seq       INTEGER NOT NULL,
        reference TEXT    NOT NULL,
        start     INTEGER NOT NULL
    ) STRICT;
    CREATE INDEX spots_passage ON spots (passage, session, seq);
    CREATE INDEX spots_place ON spots (seq, session);
    CREATE TABLE reached (
        session TEXT    PRIMARY KEY,
        upto    INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE VIRTUAL TABLE passage_terms
        USING fts5 (terms, content = '', contentless_delete = 1, tokenize = 'ascii');
    CREATE VIRTUAL TABLE passage_words USING fts5vocab (passage_terms, row);
    CREATE TRIGGER records_gone AFTER DELETE ON records WHEN old.kind = 'original' BEGIN
        DELETE FROM spots WHERE session = '' AND seq = old.id;
    END;
    CREATE TRIGGER spots_gone AFTER DELETE ON spots
    WHEN NOT EXISTS (SELECT 1 FROM spots WHERE passage = old.passage) BEGIN
        DELETE FROM passages WHERE id = old.passage;
        DELETE FROM passage_terms WHERE rowid = old.passage;
    END;
    """,
)
"""The step to each schema version from the previous one; `turn` is the order of use."""

_FIRST: Final = re.compile(r"CREATE TABLE (\w+)")
"""The table that tells one kind of our files from another."""

WAIT_S: Final = 5.0
PAUSE_S: Final = 0.02

PIECE: Final = 2**16
"""Bytes per read or write: SQLite's own layer takes less than 128 KiB."""

Rows = list[tuple[Any, ...]]
Bindings = Sequence[Any] | dict[str, Any]

T = TypeVar("T")


class NotText(StoreError):  # noqa: N818 - named for what was found
    """Report bytes in a text column that are not text."""


class _Step(Generic[T]):
    """A step of one thread, done by that thread or another, and its result."""

    def __init__(self, step: Callable[[apsw.Connection], T]) -> None:
        self._step = step
        self._value: list[T] = []
        self._error: StoreError | None = None
        self.settled = False

    def run(self, connection: apsw.Connection) -> None:
        """Run the step; a StoreError raised before any write concerns only this step."""
        try:
            self._value.append(self._step(connection))
        except StoreError as error:
            self._error = error

    def fail(self, error: StoreError) -> None:
        """Record that nothing was kept, unless the step has its own error."""
        self._error = self._error or error

    def result(self) -> T:
        """Return the result of the step, or raise its error."""
        if self._error is not None:
            raise self._error
        return self._value[0]


class Database:
    """An SQLite file of ullage; `wait_s` is how long to wait for another program's lock."""

    def __init__(
        self,
        path: Path,
        *,
        create: bool = True,
        wait_s: float = WAIT_S,
        migrations: Sequence[str] = MIGRATIONS,
    ) -> None:
        self.path = path
        self._create = create
        self._wait_s = wait_s
        self._migrations = migrations
        self._lock = threading.Lock()
        self._gate = threading.Condition()
        self._waiting: list[_Step[Any]] = []
        self._settling = False
        self._connection: apsw.Connection | None = None
        self._reading = threading.Lock()
        self._reader: apsw.Connection | None = None
        self._ended = False
        self._doubtful = False
        _close_at_fork(self)
        with self._using():
            pass

    def rows(self, sql: str, bindings: Bindings = ()) -> Rows:
        """Return the rows of a statement."""
        with self._using() as connection:
            return list(connection.execute(sql, bindings))

    def read(self, sql: str, bindings: Bindings = ()) -> Rows:
        """Return the rows of a statement that only reads; it waits for no writer.

        If a thread holds the connection, which may be waiting for another program, a read-only
        connection answers. It sees committed data.
        """
        if self._lock.acquire(blocking=False):
            try:
                with self._lend_connection() as connection:
                    return list(connection.execute(sql, bindings))
            finally:
                self._lock.release()
        with self._reading, self._telling():
            try:
                if self._reader is None:
                    self._reader = self._open_to_read()
                return list(self._reader.execute(sql, bindings))
            except apsw.Error:
                self._drop_reader()
                raise

    @contextmanager
    def writing(self) -> Iterator[apsw.Connection]:
        """Hold the only write connection; commit at the end, or roll back after an error."""
        with self._using() as connection, _transaction(connection):
            yield connection

    def together(self, step: Callable[[apsw.Connection], T]) -> T:
        """Do a step in one transaction, with one sync, together with the steps of waiting threads.

        A step raises StoreError only before it has written anything; then the other steps are kept.
        Any other error ends the transaction for all steps in it.
        """
        mine = _Step(step)
        with self._gate:
            self._waiting.append(mine)
            try:
                while self._settling and not mine.settled:
                    self._gate.wait()
            except BaseException:  # the waiting thread was interrupted: its step must not run later
                self._waiting = [step for step in self._waiting if step is not mine]
                raise
            if mine.settled:
                return mine.result()
            steps, self._waiting, self._settling = self._waiting, [], True
        try:
            self._settle(steps)
        finally:
            with self._gate:
                self._settling = False
                self._gate.notify_all()
        return mine.result()

    def _settle(self, steps: Sequence[_Step[Any]]) -> None:
        """Do the waiting steps in the order in which they came."""
        error = StoreError(f"{self.path}: the writer was interrupted, nothing was kept")
        kept = False
        try:
            with self.writing() as connection:
                for step in steps:
                    step.run(connection)
            kept = True
        except StoreError as told:
            error = told
        finally:
            for step in steps:
                if not kept:
                    step.fail(error)
                step.settled = True

    def scrub(self) -> str:
        """Erase deleted data from the files; return where some may still be, or "".

        Deleted rows are overwritten at once (`secure_delete`). The rest is words in an index that
        no merge removed yet, and pages of the WAL, which is emptied if nobody reads it.
        """
        with self.writing() as connection:
            connection.execute("INSERT INTO passage_terms (passage_terms) VALUES ('optimize')")
        with self._reading:
            self._drop_reader()
        ((busy, *_),) = self.rows("PRAGMA wal_checkpoint(TRUNCATE)")
        return f"{self.path}-wal, until the programs that use it let it go" if busy else ""

    @property
    def is_closed(self) -> bool:
        """Tell whether it was closed for good."""
        return self._ended

    def close(self) -> None:
        """Close the file for good. A second time does nothing."""
        with self._lock, self._reading:
            self._ended = True
            self._drop_reader()
            self._drop()

    @contextmanager
    def _using(self) -> Iterator[apsw.Connection]:
        """Lend the connection to one thread at a time."""
        with self._lock, self._lend_connection() as connection:
            yield connection

    @contextmanager
    def _lend_connection(self) -> Iterator[apsw.Connection]:
        """Lend the connection; raise SQLite's errors as ours, with the file's name.

        After an error of the file, the connection is closed: its state in memory can no longer be
        trusted. The next use reads the disk again.
        """
        with self._telling():
            try:
                if self._connection is None:
                    self._connection = self._open_connection()
                yield self._connection
            except apsw.Error as error:
                if not isinstance(error, apsw.BusyError | apsw.ConstraintError):
                    self._doubtful = True
                    self._drop()
                raise

    @contextmanager
    def _telling(self) -> Iterator[None]:
        """Explain an error of SQLite, with the file's name."""
        if self._ended:
            raise StoreError(f"the store of {self.path} was closed: open it again")
        try:
            yield
        except apsw.Error as error:
            raise faults.translate_error(error, self.path, self._wait_s) from error
        except OSError as error:
            raise StoreAway(f"{self.path} cannot be reached: {error}") from error
        except UnicodeDecodeError as error:
            raise NotText(
                f"{self.path} is damaged: it holds bytes where text was written ({error}); "
                "`ullage verify --all` tells where"
            ) from error

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            if self._doubtful:  # a WAL that may be incomplete must not be checkpointed
                connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            with suppress(apsw.Error):  # it is given up; committed data is in the WAL
                connection.close(force=True)

    def _drop_reader(self) -> None:
        """Close the reading connection first, so that the other one leaves the file whole."""
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close(force=True)

    def _open_to_read(self) -> apsw.Connection:
        """Open a file of this schema version for reading only."""
        if not os.access(self.path.parent, os.W_OK):
            return self._open_unwritable()
        connection = apsw.Connection(str(self.path), flags=apsw.SQLITE_OPEN_READONLY)
        connection.set_busy_timeout(int(self._wait_s * 1000))
        connection.execute("PRAGMA trusted_schema = OFF")
        return connection

    def _open_connection(self) -> apsw.Connection:
        """Open the file, make it private before SQLite sees it, and migrate it to this version."""
        if self._create:
            _private(self.path)
        elif not self.path.is_file():
            raise faults.missing(self.path)
        elif not os.access(self.path.parent, os.W_OK):
            return self._open_unwritable()
        connection = apsw.Connection(str(self.path), flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            connection.set_busy_timeout(int(self._wait_s * 1000))
            connection.execute("PRAGMA trusted_schema = OFF; PRAGMA secure_delete = ON")
            _retry_locked(lambda: self._recognise(connection), self._wait_s)
            _retry_locked(lambda: _write_ahead(connection, self.path), self._wait_s)
            # On macOS only fullfsync reaches the disk itself (sqlite.org, PRAGMA fullfsync).
            connection.execute("PRAGMA synchronous = FULL; PRAGMA fullfsync = ON")
            self._migrate(connection)
            if self._doubtful:
                _rewrite(connection, self.path)
                self._doubtful = False
        except BaseException:
            connection.close(force=True)
            raise
        return connection

    def _open_unwritable(self) -> apsw.Connection:
        """Open a file of this version, for reading only, in a folder without write permission.

        SQLite treats such a file as one that nobody changes (sqlite.org, "Read-Only Databases" in
        WAL). If its -wal and -shm files are present, SQLite reads them.
        """
        log = self.path.with_name(f"{self.path.name}-wal")
        whole = not log.exists() or not log.stat().st_size
        name = f"{self.path.absolute().as_uri()}?mode=ro{'&immutable=1' if whole else ''}"
        flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        connection = apsw.Connection(name, flags=flags)
        try:
            connection.execute("PRAGMA trusted_schema = OFF")
            self._recognise(connection)
            self._refuse_older(connection)
        except BaseException:
            connection.close(force=True)
            raise
        return connection

    def _refuse_older(self, connection: apsw.Connection) -> None:
        if self._version(connection) != len(self._migrations):
            raise StoreError(
                f"{self.path} is of an older version and lies in a folder that cannot be written: "
                "copy it to one that can, and it is brought to this version there"
            )

    def _recognise(self, connection: apsw.Connection) -> None:
        """Refuse another program's file and one of a newer version, before anything is written."""
        with _transaction(connection, "BEGIN"):  # one snapshot: another process may be creating it
            mark, version = _one(connection, "PRAGMA application_id"), self._version(connection)
            tables = _one(connection, "SELECT count(*) FROM sqlite_schema")
            first = _FIRST.findall(self._migrations[0])[:1]
            named = "SELECT count(*) FROM sqlite_schema WHERE name = ?"
            ours = _one(connection, named, first)
        if mark != APPLICATION and (mark or tables):
            raise faults.foreign(self.path)
        if mark == APPLICATION and not connection.readonly("main"):
            for suffix in ("", "-wal", "-shm"):
                _tighten_mode(self.path.with_name(self.path.name + suffix))
        if version and not ours:
            raise faults.other_kind(self.path, first[0])
        if version > len(self._migrations):
            raise faults.newer(self.path, version, len(self._migrations))

    def _migrate(self, connection: apsw.Connection) -> None:
        if self._version(connection) == len(self._migrations):
            return
        with _transaction(connection):
            # Read again: another process may have migrated while we waited for its lock.
            version = self._version(connection)
            if version > len(self._migrations):
                raise faults.newer(self.path, version, len(self._migrations))
            for step in self._migrations[version:]:
                connection.execute(step)
            connection.pragma("application_id", APPLICATION)
            connection.pragma("user_version", len(self._migrations))

    def _version(self, connection: apsw.Connection) -> int:
        return _one(connection, "PRAGMA user_version")

    # --- forks ----------------------------------------------------------------------------------

    def before_fork(self) -> None:
        """Wait for the transaction in progress, and close: the child must inherit nothing open."""
        self._lock.acquire()
        self._reading.acquire()
        self._drop_reader()
        self._drop()

    def after_fork(self) -> None:
        """Continue, in the parent and in the child; the next use opens the file."""
        self._reading.release()
        self._lock.release()

    def forget(self) -> None:
        """Forget the steps of other threads: after a fork they belong to the parent."""
        self._gate, self._waiting, self._settling = threading.Condition(), [], False


@contextmanager
def _transaction(connection: apsw.Connection, begin: str = "BEGIN IMMEDIATE") -> Iterator[None]:
    connection.execute(begin)
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _one(connection: apsw.Connection, sql: str, bindings: Bindings = ()) -> int:
    ((value,),) = connection.execute(sql, bindings)
    return int(value)


def _write_ahead(connection: apsw.Connection, path: Path) -> None:
    ((mode,),) = connection.execute("PRAGMA journal_mode = WAL")
    if mode != "wal":
        raise StoreError(
            f"{path} is on a file system that cannot share memory between programs (journal mode "
            f"{mode}), as network file systems cannot: keep the store on a local disk"
        )


def _rewrite(connection: apsw.Connection, path: Path) -> None:
    """Write and sync the contents of the WAL again, while nobody else can write to it.

    After a failed sync, a system may treat pages as clean that never reached the disk (Rebello et
    al., "Can Applications Recover from fsync Failures?", 2020). Then later writes would be lost
    with them, and a checkpoint of such pages would damage the file.
    """
    wal = path.with_name(f"{path.name}-wal")
    with _transaction(connection):
        flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_WAL
        file = apsw.VFSFile("", str(wal), [flags, 0])
        try:
            size = file.xFileSize()
            for at in range(0, size, PIECE):
                file.xWrite(file.xRead(min(PIECE, size - at), at), at)
            file.xSync(apsw.SQLITE_SYNC_FULL)
        finally:
            file.xClose()


def _retry_locked(step: Callable[[], None], wait_s: float) -> None:
    """Repeat a step that meets a lock, as SQLite does not wait when the journal mode changes."""
    until = time.monotonic() + wait_s
    while True:
        try:
            return step()
        except apsw.BusyError:
            if time.monotonic() >= until:
                raise
        time.sleep(PAUSE_S)


def _private(path: Path) -> None:
    """Make the file 0600, and missing folders 0700, regardless of the umask.

    SQLite gives its -wal and -shm files the permissions of the file. Raises StoreError that names
    the path.
    """
    try:
        for folder in reversed((path.parent, *path.parent.parents)):
            if not folder.exists():
                folder.mkdir(mode=0o700, exist_ok=True)
                folder.chmod(0o700)
                _sync_folder(folder.parent)
        if not path.exists():
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
            path.chmod(0o600)
    except OSError as error:
        raise StoreError(
            f"{path} cannot be made ({error}): check the path (sqlite:FILE is relative to the "
            "working directory, sqlite:///FILE starts at the root) and its folder's permissions"
        ) from error


def _sync_folder(folder: Path) -> None:
    """Sync a folder, so that it keeps its new entries, if the system can.

    SQLite syncs the folder of its own files; only new folders need this.
    """
    if os.name != "posix" or not os.access(folder, os.R_OK):
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _tighten_mode(path: Path) -> None:
    """Remove the access of other users to a file of ours."""
    try:
        if path.stat().st_mode & 0o077:
            path.chmod(0o600)
    except FileNotFoundError:
        return
    except PermissionError as error:
        raise StoreError(
            f"{path} can be read by others and belongs to another user: have its owner run "
            f"chmod 600 on it, or give another path ({error})"
        ) from error


def _close_at_fork(database: Database) -> None:
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

    def alone() -> None:
        if (held := seen()) is not None:
            held.forget()
            held.after_fork()

    os.register_at_fork(before=before, after_in_parent=after, after_in_child=alone)
