"""A store in one SQLite file, shared by threads and processes: what is acknowledged is on disk.

The order of use is a number, `turn`. What a load uses is noted in memory and written with the next
save, so that reading costs no write. It keeps JSON and texts without understanding them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ullage.core.compaction.checkpoint import Checkpoint
from ullage.core.errors import BusyWriter
from ullage.core.guard.conversation import Conversation
from ullage.core.values.pickling import Unpicklable
from ullage.storage import bodies
from ullage.storage.bodies import seal
from ullage.storage.database import WAIT_S, Database
from ullage.storage.protocol import STANDARD, StoreLimits
from ullage.storage.threaded import Desk
from ullage.threads import Threads

if TYPE_CHECKING:
    import apsw

Record = TypeVar("Record")
Place = tuple[str, str, str, str, int]
"""Kind, scope, name (a prefix or a reference), policy, generation."""

# CROSS JOIN, since SQLite then keeps the order of the tables: the wanted names lead, each is one
# look-up in the index (sqlite.org, "The SQLite Query Optimizer Overview").
FIRST: Final = """
    SELECT r.id, r.body FROM json_each(?1) AS wanted
    CROSS JOIN records AS r ON r.kind = ?2 AND r.scope = ?3 AND r.name = wanted.value
    ORDER BY wanted.key, r.generation DESC, r.id DESC LIMIT 1
"""
HELD: Final = """
    SELECT id, body FROM records
    WHERE kind = ? AND scope = ? AND name = ? AND policy = ? AND generation = ?
"""
HIGHEST: Final = """
    SELECT id, body FROM records
    WHERE kind = ? AND scope = ? AND name = ? AND policy = ? AND generation >= ?
    ORDER BY generation DESC LIMIT 1
"""
ALL: Final = """
    SELECT body FROM records AS r WHERE kind = ? AND generation = (
        SELECT max(generation) FROM records AS same WHERE same.kind = r.kind
        AND same.scope = r.scope AND same.name = r.name AND same.policy = r.policy)
    ORDER BY turn
"""
INSERT: Final = """
    INSERT INTO records (kind, scope, name, policy, generation, turn, used, size, body)
    VALUES (?1, ?2, ?3, ?4, ?5, (SELECT coalesce(max(turn), 0) + 1 FROM records WHERE kind = ?1),
            ?6, ?7, ?8)
"""
TOUCH: Final = """
    UPDATE records SET used = ?2, turn =
        (SELECT max(turn) + 1 FROM records WHERE kind = (SELECT kind FROM records WHERE id = ?1))
    WHERE id = ?1
"""
REPLACE: Final = "UPDATE records SET body = ? WHERE id = ?"
DELETE: Final = "DELETE FROM records WHERE id = ?"
HELD_IN_ALL: Final = "SELECT count(*), coalesce(sum(size), 0) FROM records WHERE kind = ?"
OLDEST: Final = "SELECT id, size FROM records WHERE kind = ? ORDER BY turn"
EXPIRE: Final = """
    DELETE FROM records WHERE kind = ?1 AND used <= ?2
    AND id <> (SELECT id FROM records WHERE kind = ?1 ORDER BY turn DESC LIMIT 1)
"""
PURGE: Final = "DELETE FROM records WHERE used <= ?"

ASKED_AT_ONCE: Final = 256
"""Prefixes of one query, the longest first: what is known is nearly always among the first."""

WAY: Final = "move the file away and start a new store"
"""What to do about a record that is not what was written."""

MOST_TOUCHES: Final = 1_000
"""Loads that are noted before a save must write them."""


class _Records:
    """Rows of the file, the limits they keep to, and the loads that no save has written yet."""

    def __init__(self, database: Database, limits: StoreLimits, now: Callable[[], float]) -> None:
        self.database = database
        self._limits, self._now = limits, now
        self._touched: dict[int, float] = {}

    def first(self, kind: str, scope: str, names: Sequence[str]) -> bytes | None:
        """Return the body of the first of these names that has one; it counts as used."""
        for start in range(0, len(names), ASKED_AT_ONCE):
            asked = names[start : start + ASKED_AT_ONCE]
            if not "".join(asked).isascii():
                asked = [plain(name) for name in asked]
            for row, body in self.database.read(FIRST, (json.dumps(asked), kind, plain(scope))):
                self._touched.pop(row, None)
                self._touched[row] = self._now()
                if len(self._touched) > MOST_TOUCHES:
                    self.flush()
                return bytes(body)
        return None

    def put(self, connection: apsw.Connection, place: Place, body: bytes, size: int = 0) -> None:
        """Insert a row as the newest of its kind."""
        connection.execute(INSERT, (*make_key(place), self._now(), size, body))

    def touch(self, connection: apsw.Connection, row: int) -> None:
        """Make a row the newest of its kind."""
        connection.execute(TOUCH, (row, self._now()))

    @contextmanager
    def writing(self) -> Iterator[apsw.Connection]:
        """Hold the writer's place, with the order of use up to date."""
        with self.database.writing() as connection:
            noted = dict(self._touched)
            connection.executemany(TOUCH, list(noted.items()))
            yield connection
        for row, used in noted.items():
            if self._touched.get(row) == used:
                self._touched.pop(row, None)

    def drop_excess(self, connection: apsw.Connection, kind: str) -> None:
        """Forget what is out of time or over the limits, never the newest of its kind."""
        connection.execute(EXPIRE, (kind, self._now() - self._limits.ttl_s))
        ((count, held),) = connection.execute(HELD_IN_ALL, (kind,))
        gone: list[tuple[int]] = []
        for row, size in connection.execute(OLDEST, (kind,)):
            over = count > self._limits.most or held > self._limits.characters
            if not over or count == 1:
                break
            gone.append((row,))
            count, held = count - 1, held - size
        connection.executemany(DELETE, gone)

    def flush(self) -> None:
        """Write what was used since the last save."""
        if self._touched:
            with self.writing():
                pass

    def purge(self, now: float) -> int:
        """Forget what nobody used for the time that a record lives; return how many."""
        with self.writing() as connection:
            connection.execute(PURGE, (now - self._limits.ttl_s,))
            return connection.changes()


class SqliteCheckpoints:
    """Records of compactions, by scope and prefix."""

    def __init__(self, records: _Records) -> None:
        self._records = records

    def load(self, scope: str, prefixes: Sequence[str]) -> Checkpoint | None:
        """Return what holds under the first of `prefixes` that has something, or None."""
        body = self._records.first("checkpoint", scope, prefixes)
        return None if body is None else self._read(body)

    def save(self, checkpoint: Checkpoint) -> Checkpoint:
        """Store a checkpoint unless one of its generation is there; return what is stored."""
        place, body = _place(checkpoint), seal(checkpoint.to_dict())
        with self._records.writing() as connection:
            for row, held in list(connection.execute(HIGHEST, make_key(place))):
                self._records.touch(connection, row)
                return self._read(held)
            self._records.put(connection, place, body)
            self._records.drop_excess(connection, "checkpoint")
        return checkpoint

    def save_measured(self, checkpoint: Checkpoint) -> None:
        """Replace a stored checkpoint by one that carries its measured size.

        A late report on a checkpoint that another has taken the place of changes nothing.
        """
        with self._records.writing() as connection:
            for row in self._same(connection, checkpoint):
                connection.execute(REPLACE, (seal(checkpoint.to_dict()), row))

    def undo(self, checkpoint: Checkpoint) -> bool:
        """Take a checkpoint away: what was stored under its prefix before it holds again."""
        with self._records.writing() as connection:
            found = self._same(connection, checkpoint)
            for row in found:
                connection.execute(DELETE, (row,))
        return bool(found)

    def all(self) -> list[Checkpoint]:
        """Return the checkpoint that holds of each policy and prefix, used longest ago first."""
        self._records.flush()
        return [self._read(body) for (body,) in self._records.database.rows(ALL, ("checkpoint",))]

    def _same(self, connection: apsw.Connection, checkpoint: Checkpoint) -> list[int]:
        """Return the row that holds this very checkpoint, or nothing."""
        rows = connection.execute(HELD, make_key(_place(checkpoint)))
        return [row for row, body in rows if self._read(body).script == checkpoint.script]

    def _read(self, body: bytes) -> Checkpoint:
        return _record(Checkpoint.from_dict, body, self._records.database.path)


class SqliteConversations:
    """What is remembered of conversations from call to call."""

    def __init__(self, records: _Records) -> None:
        self._records = records

    def load(self, scope: str, prefixes: Sequence[str]) -> Conversation | None:
        """Return what is kept under the first of `prefixes` that has something, or None."""
        body = self._records.first("conversation", scope, prefixes)
        path = self._records.database.path
        return None if body is None else _record(Conversation.from_dict, body, path)

    def save(self, conversation: Conversation) -> None:
        """Keep the state of a conversation in place of what was kept under its prefix."""
        place = ("conversation", conversation.scope, conversation.prefix, "", 0)
        body = seal(conversation.to_dict())
        with self._records.writing() as connection:
            held = list(connection.execute(HELD, make_key(place)))
            for row, _ in held:
                connection.execute(REPLACE, (body, row))
                self._records.touch(connection, row)
            if not held:
                self._records.put(connection, place, body)
            self._records.drop_excess(connection, "conversation")


class SqliteOriginals:
    """The texts that placeholders stand for."""

    def __init__(self, records: _Records) -> None:
        self._records = records

    def keep(self, items: Mapping[str, str]) -> None:
        """Keep texts by their references. A reference that is known keeps its text."""
        if not items:
            return
        with self._records.writing() as connection:
            for reference, text in items.items():
                place = ("original", "", reference, "", 0)
                held = list(connection.execute(HELD, make_key(place)))
                for row, _ in held:
                    self._records.touch(connection, row)
                if not held:
                    body = text.encode("utf-8", "surrogatepass")
                    self._records.put(connection, place, body, len(text))
            self._records.drop_excess(connection, "original")

    def read(self, reference: str) -> str | None:
        """Return the text of a reference, or None where there is none (any more)."""
        body = self._records.first("original", "", [reference])
        return None if body is None else body.decode("utf-8", "surrogatepass")


class SqliteStore(Unpicklable):
    """All three in one file; `now` returns seconds since the epoch.

    `create=False` raises StoreError where there is no file. `wait_s` is how long a lock of another
    program is waited for before BusyWriter is raised.
    """

    instead = "open one in the other process: ullage.open_store(url)"

    def __init__(
        self,
        path: Path,
        *,
        limits: StoreLimits = STANDARD,
        create: bool = True,
        wait_s: float = WAIT_S,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.url = f"sqlite:{path}"
        self._database = Database(path, create=create, wait_s=wait_s)
        self._records = _Records(self._database, limits, now)
        self.desk = Desk(Threads("ullage-sqlite-reader", 1), Threads("ullage-sqlite-writer", 1))
        self.checkpoints = SqliteCheckpoints(self._records)
        self.conversations = SqliteConversations(self._records)
        self.originals = SqliteOriginals(self._records)
        if create:
            self.purge(now())

    def purge(self, now: float) -> int:
        """Forget what is out of time at `now` (seconds since the epoch); return how much."""
        return self._records.purge(now)

    def close(self) -> None:
        """Write the order of use, and close the file. A second time does nothing."""
        try:
            if not self._database.closed:
                with suppress(BusyWriter):  # the order of use is no record
                    self._records.flush()
        finally:
            self._database.close()


def make_key(place: Iterable[Any]) -> tuple[Any, ...]:
    """Return a place as SQLite can hold it."""
    return tuple(plain(part) if isinstance(part, str) else part for part in place)


def plain(text: str) -> str:
    """Return a key that UTF-8 can carry: a lone surrogate is written out."""
    return text.encode("utf-8", "backslashreplace").decode()


def _place(checkpoint: Checkpoint) -> Place:
    made = checkpoint
    return ("checkpoint", made.scope, made.prefix, made.policy, made.generation)


def _record(make: Callable[[Mapping[str, Any]], Record], body: bytes, path: Path) -> Record:
    """Return what a body holds; an error names the file."""
    return bodies.read(make, body, str(path), WAY)
