"""A store in PostgreSQL, shared by processes on any number of hosts.

It keeps checkpoints, conversations and originals as rows of one table and understands none of them.
Whoever writes holds the place of the writer of its scope until its transaction ends; whoever reads
waits for nobody. What concerns rows of other scopes (their order of use, what is forgotten) comes
last and leaves out rows that another holds, so nobody waits with a row of somebody else in hand.
What was used is written with the next save: a process that is killed loses that order, not a
record.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from hashlib import blake2b
from typing import Any, Final, TypeVar

from ullage.core.compaction.checkpoint import Checkpoint
from ullage.core.errors import BusyWriter, StoreError
from ullage.core.guard.conversation import Conversation
from ullage.core.values.pickling import Unpicklable
from ullage.storage import bodies
from ullage.storage.bodies import seal
from ullage.storage.postgres_database import WAIT_S, ConnectionLost, Cursor, PostgresDatabase
from ullage.storage.protocol import STANDARD, StoreLimits
from ullage.storage.threaded import MOST, Desk
from ullage.threads import Threads

Place = tuple[str, str, str, str, int]
"""Kind, scope, name, policy, generation: what a row is found by."""

Record = TypeVar("Record", Checkpoint, Conversation)

WRITER: Final = 0x756C6C68
"""The first number of the locks that are writers' places; the second is a hash of the scope."""

SEAT: Final = "SELECT pg_advisory_xact_lock(%s::int, %s::int)"
DRAW: Final = "SELECT nextval('ullage.turns') FROM generate_series(1, %s)"
TOUCH_NOTED: Final = """
    UPDATE ullage.records AS one SET used = noted.used, turn = noted.turn
    FROM unnest(%s::bigint[], %s::double precision[], %s::bigint[]) AS noted (id, used, turn)
    WHERE one.id = noted.id AND one.turn < noted.turn
    AND one.id IN (SELECT id FROM ullage.records WHERE id = ANY(%s) FOR UPDATE SKIP LOCKED)
"""
FIRST: Final = """
    SELECT id, body FROM ullage.records
    JOIN unnest(%s::text[]) WITH ORDINALITY AS wanted (wanted, nth) ON name = wanted
    WHERE kind = %s AND scope = %s ORDER BY nth, generation DESC, id DESC LIMIT 1
"""
ALL: Final = """
    SELECT body FROM ullage.records AS one WHERE kind = 'checkpoint' AND generation = (
        SELECT max(generation) FROM ullage.records AS other
        WHERE (other.kind, other.scope, other.name, other.policy)
            = (one.kind, one.scope, one.name, one.policy))
    ORDER BY turn
"""
HELD: Final = """
    SELECT id, body FROM ullage.records
    WHERE kind = %s AND scope = %s AND name = %s AND policy = %s AND generation = %s
"""
HIGHEST: Final = """
    SELECT id, body FROM ullage.records
    WHERE kind = %s AND scope = %s AND name = %s AND policy = %s AND generation >= %s
    ORDER BY generation DESC LIMIT 1
"""
INSERT: Final = """
    INSERT INTO ullage.records (kind, scope, name, policy, generation, used, size, body)
    VALUES (%s, %s, %s, %s, %s, %s, %s, %s)
"""
KEEP: Final = f"""{INSERT}
    ON CONFLICT (kind, scope, name, policy, generation)
    DO UPDATE SET turn = nextval('ullage.turns'), used = excluded.used
"""
STATE: Final = f"{KEEP}, body = excluded.body"
TOUCH: Final = """
    UPDATE ullage.records SET turn = nextval('ullage.turns'), used = %s WHERE id = %s
"""
REPLACE: Final = "UPDATE ullage.records SET body = %s WHERE id = %s"
DELETE: Final = "DELETE FROM ullage.records WHERE id = %s"
HELD_IN_ALL: Final = """
    SELECT count(*), coalesce(sum(size), 0)::bigint FROM ullage.records WHERE kind = %s
"""
EXPIRE: Final = """
    DELETE FROM ullage.records WHERE id IN (
        SELECT id FROM ullage.records WHERE kind = %s AND used <= %s
        AND turn <> (SELECT max(turn) FROM ullage.records WHERE kind = %s)
        FOR UPDATE SKIP LOCKED)
"""
BOUND: Final = """
    DELETE FROM ullage.records WHERE id IN (
        SELECT id FROM ullage.records WHERE id IN (
            SELECT id FROM (
                SELECT id, row_number() OVER newest AS nth, sum(size) OVER newest AS held
                FROM ullage.records WHERE kind = %s WINDOW newest AS (ORDER BY turn DESC)
            ) AS ranked
            WHERE nth > 1 AND (nth > %s OR held > %s))
        FOR UPDATE SKIP LOCKED)
"""
PURGE: Final = """
    DELETE FROM ullage.records WHERE id IN (
        SELECT id FROM ullage.records WHERE used <= %s FOR UPDATE SKIP LOCKED)
"""

ASKED_AT_ONCE: Final = 256
"""Prefixes of one query, the longest first: what is known is nearly always among the first."""

WAY: Final = "somebody changed table ullage.records, restore it or start with another database"
"""What to do about a record that is not what was written."""

MOST_TOUCHES: Final = 1_000
"""Loads that are noted before a save must write them."""

LONGEST_KEY: Final = 150
"""Characters of a key that stand as they are: an index takes 2,704 bytes, and three keys a row."""

HASHED: Final = "blake2b:"


class _Records:
    """Rows of the database, the limits they keep to, and the loads that no save has written yet."""

    def __init__(
        self, database: PostgresDatabase, limits: StoreLimits, now: Callable[[], float]
    ) -> None:
        self.database = database
        self._limits, self._now = limits, now
        self._touched: dict[int, float] = {}

    def first(self, kind: str, scope: str, names: Sequence[str]) -> bytes | None:
        """Return the body of the first of these names that has one; it counts as used."""
        for start in range(0, len(names), ASKED_AT_ONCE):
            wanted = [key(name) for name in names[start : start + ASKED_AT_ONCE]]
            for row, body in self.database.rows(FIRST, (wanted, kind, key(scope))):
                self._touched.pop(row, None)
                self._touched[row] = self._now()
                if len(self._touched) > MOST_TOUCHES:
                    self.flush()
                return bytes(body)
        return None

    def row(self, place: Place, body: bytes, size: int = 0) -> tuple[Any, ...]:
        """Return a row that is used now."""
        return (*_make_key(place), self._now(), size, body)

    def touch(self, cursor: Cursor, row: int) -> None:
        """Make a row the newest of its kind."""
        cursor.execute(TOUCH, (self._now(), row))

    @contextmanager
    def writing(
        self, kind: str = "", scope: str = "", *, grown: Sequence[str] = ()
    ) -> Iterator[Cursor]:
        """Hold the writer's place of a scope; the limits of kinds that have `grown` by then follow.

        The turns of what was used before are drawn first, so what is written now is newer.
        """
        with self.database.writing() as cursor:
            cursor.execute(SEAT, (WRITER, _number(kind, scope)))
            noted = dict(self._touched)
            rows = cursor.execute(DRAW, (len(noted),)).fetchall() if noted else []
            yield cursor
            if noted:
                ids = list(noted)
                turns = [turn for (turn,) in rows]
                cursor.execute(TOUCH_NOTED, (ids, list(noted.values()), turns, ids))
            for added in grown:
                self._drop_excess(cursor, added)
        for row, used in noted.items():
            if self._touched.get(row) == used:
                self._touched.pop(row, None)

    def _drop_excess(self, cursor: Cursor, kind: str) -> None:
        """Forget what is out of time or over the limits, never the newest of its kind."""
        most, characters = self._limits.most, self._limits.characters
        cursor.execute(EXPIRE, (kind, self._now() - self._limits.ttl_s, kind))
        ((count, held),) = cursor.execute(HELD_IN_ALL, (kind,)).fetchall()
        if count > most or held > characters:
            cursor.execute(BOUND, (kind, most, characters))

    def flush(self) -> None:
        """Write what was used since the last save."""
        if self._touched:
            with self.writing():
                pass

    def purge(self, now: float) -> int:
        """Forget what nobody used for the time that a record lives; return how many."""
        with self.writing() as cursor:
            return cursor.execute(PURGE, (now - self._limits.ttl_s,)).rowcount


class PostgresCheckpoints:
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
        grown: list[str] = []
        with self._records.writing("checkpoint", checkpoint.scope, grown=grown) as cursor:
            for row, held in cursor.execute(HIGHEST, _make_key(place)).fetchall():
                self._records.touch(cursor, row)
                return self._read(held)
            cursor.execute(INSERT, self._records.row(place, body))
            grown.append("checkpoint")
        return checkpoint

    def save_measured(self, checkpoint: Checkpoint) -> None:
        """Replace a stored checkpoint by one that carries its measured size.

        A late report on a checkpoint that another has taken the place of changes nothing.
        """
        with self._records.writing("checkpoint", checkpoint.scope) as cursor:
            for row in self._same(cursor, checkpoint):
                cursor.execute(REPLACE, (seal(checkpoint.to_dict()), row))

    def undo(self, checkpoint: Checkpoint) -> bool:
        """Take a checkpoint away: what was stored under its prefix before it holds again."""
        with self._records.writing("checkpoint", checkpoint.scope) as cursor:
            found = self._same(cursor, checkpoint)
            for row in found:
                cursor.execute(DELETE, (row,))
        return bool(found)

    def all(self) -> list[Checkpoint]:
        """Return the checkpoint that holds of each policy and prefix, used longest ago first."""
        self._records.flush()
        return [self._read(body) for (body,) in self._records.database.rows(ALL)]

    def _same(self, cursor: Cursor, checkpoint: Checkpoint) -> list[int]:
        """Return the row that holds this very checkpoint, or nothing."""
        rows = cursor.execute(HELD, _make_key(_place(checkpoint))).fetchall()
        return [row for row, body in rows if self._read(body).script == checkpoint.script]

    def _read(self, body: bytes) -> Checkpoint:
        return _record(Checkpoint.from_dict, body, self._records.database.url)


class PostgresConversations:
    """What is remembered of conversations from call to call."""

    def __init__(self, records: _Records) -> None:
        self._records = records

    def load(self, scope: str, prefixes: Sequence[str]) -> Conversation | None:
        """Return what is kept under the first of `prefixes` that has something, or None."""
        body = self._records.first("conversation", scope, prefixes)
        where = self._records.database.url
        return None if body is None else _record(Conversation.from_dict, body, where)

    def save(self, conversation: Conversation) -> None:
        """Keep the state of a conversation in place of what was kept under its prefix."""
        place = ("conversation", conversation.scope, conversation.prefix, "", 0)
        body = seal(conversation.to_dict())
        with self._records.writing(
            "conversation", conversation.scope, grown=["conversation"]
        ) as cursor:
            cursor.execute(STATE, self._records.row(place, body))


class PostgresOriginals:
    """The texts that placeholders stand for."""

    def __init__(self, records: _Records) -> None:
        self._records = records

    def keep(self, items: Mapping[str, str]) -> None:
        """Keep texts by their references. A reference that is known keeps its text."""
        if not items:
            return
        rows = [
            self._records.row(
                ("original", "", reference, "", 0),
                text.encode("utf-8", "surrogatepass"),
                len(text),
            )
            for reference, text in items.items()
        ]
        with self._records.writing("original", grown=["original"]) as cursor:
            cursor.executemany(KEEP, rows)

    def read(self, reference: str) -> str | None:
        """Return the text of a reference, or None where there is none (any more)."""
        body = self._records.first("original", "", [reference])
        return None if body is None else body.decode("utf-8", "surrogatepass")


class PostgresStore(Unpicklable):
    """All three in one database; `now` returns seconds since the epoch.

    `create=False` raises StoreError where nothing of ours is there. `wait_s` is how long a lock of
    another program is waited for before BusyWriter is raised.
    """

    instead = "open one in the other process: ullage.open_store(url)"

    def __init__(
        self,
        url: str,
        *,
        limits: StoreLimits = STANDARD,
        create: bool = True,
        wait_s: float = WAIT_S,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._database = PostgresDatabase(url, create=create, wait_s=wait_s)
        self.url = self._database.url
        self._records = _Records(self._database, limits, now)
        threads = Threads("ullage-postgres", MOST)
        self.desk = Desk(threads, threads)
        self.checkpoints = PostgresCheckpoints(self._records)
        self.conversations = PostgresConversations(self._records)
        self.originals = PostgresOriginals(self._records)
        if create:
            try:
                self.purge(now())
            except StoreError:
                self._database.close()
                raise

    def purge(self, now: float) -> int:
        """Forget what is out of time at `now` (seconds since the epoch); return how much."""
        return self._records.purge(now)

    def close(self) -> None:
        """Write the order of use, and disconnect. A second time does nothing."""
        try:
            if not self._database.closed:
                with suppress(BusyWriter, ConnectionLost):  # the order of use is no record
                    self._records.flush()
        finally:
            self._database.close()


def _number(kind: str, scope: str) -> int:
    """Return the number of a scope's lock: two that share one wait for each other, no more."""
    found = blake2b(f"{kind}|{scope}".encode("utf-8", "surrogatepass"), digest_size=4).digest()
    return int.from_bytes(found, "big", signed=True)


def key(text: str) -> str:
    """Return a key that PostgreSQL can hold and index; one that it could not becomes its hash."""
    fits = len(text) <= LONGEST_KEY and text.isprintable() and not text.startswith(HASHED)
    if fits:
        return text
    return HASHED + blake2b(text.encode("utf-8", "surrogatepass"), digest_size=32).hexdigest()


def _make_key(place: Place) -> tuple[Any, ...]:
    return tuple(key(part) if isinstance(part, str) else part for part in place)


def _place(checkpoint: Checkpoint) -> Place:
    made = checkpoint
    return ("checkpoint", made.scope, made.prefix, made.policy, made.generation)


def _record(make: Callable[[Mapping[str, Any]], Record], body: bytes, url: str) -> Record:
    """Return what a body holds; an error names the database."""
    return bodies.read(make, body, str(url), WAY)
