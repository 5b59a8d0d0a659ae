"""A store in an SQL database: one implementation, and a value with the differences of an engine.

Checkpoints, conversations and originals are rows of one table. `turn` numbers the order of use. A
load notes its use in memory, and the next save writes it, so a read costs no write. A killed
process loses that order, but no record. This module knows no driver.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import astuple, dataclass
from hashlib import blake2b
from typing import Any, Final, Protocol, TypeVar

from ullage.core.compaction.checkpoint import Checkpoint
from ullage.core.compaction.edits import find_references
from ullage.core.errors import StoreError
from ullage.core.guard.conversation import Conversation
from ullage.core.search.index import JointIndex, MemoryIndex, SearchSource
from ullage.core.search.ranking import EVERYWHERE, HITS, Hit, Index, SearchArea, find_hits
from ullage.core.values.pickling import Unpicklable
from ullage.storage import bodies
from ullage.storage.bodies import seal
from ullage.storage.notes import SharedNote, SqlNotes
from ullage.storage.objects import (
    ELSEWHERE,
    MovedText,
    ObjectReader,
    pack_original,
    read_original,
    unpack_original,
)
from ullage.storage.protocol import ReadOnlyStore, StoreLimits
from ullage.storage.threaded import Desk

Record = TypeVar("Record", Checkpoint, Conversation, SharedNote)
Rows = list[tuple[Any, ...]]
Bindings = Mapping[str, Any]

ASKED_AT_ONCE: Final = 256
"""Prefixes in one query, the longest first: the known one is nearly always among the first."""

MOST_PARSED: Final = 32
"""Parsed checkpoints in the cache: all requests of a conversation load the same one."""

MOST_TOUCHES: Final = 1_000
"""Noted loads after which they must be written."""


class Cursor(Protocol):
    """The result of a statement."""

    def fetchall(self) -> Rows:
        """Return all rows."""


class Writer(Protocol):
    """A connection in a transaction, such as apsw's Connection or psycopg's Cursor."""

    def execute(self, statement: str, bindings: dict[str, Any], /) -> Cursor:
        """Run one statement."""

    def executemany(self, statement: str, bindings: list[dict[str, Any]], /) -> object:
        """Run a statement without results once for each of these bindings."""


class SqlDatabase(Protocol):
    """An open ullage database."""

    def read(self, sql: str, bindings: dict[str, Any], /) -> Rows:
        """Return the rows of a statement that only reads."""

    def writing(self) -> AbstractContextManager[Writer]:
        """Make one transaction; commit at the end, or roll back after an error."""

    @property
    def is_closed(self) -> bool:
        """Tell whether it was closed for good."""

    def scrub(self) -> str:
        """Overwrite deleted data as far as the engine can; return where some may still be."""

    def close(self) -> None:
        """Close it for good."""


@dataclass(frozen=True, slots=True)
class Statements:
    """The SQL of a store, in one engine's words; parameters are named."""

    first: str
    held: str
    highest: str
    all: str
    insert: str
    keep: str
    state: str
    touch: str
    replace: str
    delete: str
    scopes: str
    forget: str
    totals: str
    expire: str
    bound: str
    bound_size: str
    purge: str
    large: str
    elsewhere: str
    swap: str
    since: str


@dataclass(frozen=True, slots=True)
class Engine:
    """How an engine differs: its SQL, its keys, its locks, and how it writes the order of use.

    `pack_names` returns names as the parameter `wanted` of `statements.first`. `lock` takes the
    writer's lock of the scope with this number until the transaction ends. `touch_noted` writes ids
    and their times of use (seconds since the epoch) as older than the rows written inside it.
    `forgiven` are errors at `close` that only lose the order of use. `advice` says how to repair a
    damaged record.
    """

    statements: Statements
    make_key: Callable[[str], str]
    pack_names: Callable[[Sequence[str]], object]
    lock: Callable[[Writer, int], None]
    touch_noted: Callable[[Writer, Mapping[int, float]], AbstractContextManager[None]]
    forgiven: tuple[type[StoreError], ...]
    advice: str


_SAME_NAME: Final = "kind = :kind AND scope = :scope AND name = :name AND policy = :policy"
_INSERT: Final = """
    INSERT INTO {table} (kind, scope, name, policy, generation, turn, used, size, body)
    VALUES (:kind, :scope, :name, :policy, :generation, {next_turn}, :used, :size, :body)
"""
_KEEP: Final = f"""{_INSERT}
    ON CONFLICT (kind, scope, name, policy, generation)
    DO UPDATE SET turn = excluded.turn, used = excluded.used
"""
SHARED: Final = Statements(
    first="{first}",
    held="SELECT id, body FROM {table} WHERE {same_name} AND generation = :generation",
    highest="""
        SELECT id, body FROM {table} WHERE {same_name} AND generation >= :generation
        ORDER BY generation DESC LIMIT 1
    """,
    all="""
        SELECT body FROM {table} AS one WHERE kind = 'checkpoint' AND generation = (
            SELECT max(generation) FROM {table} AS other
            WHERE other.kind = one.kind AND other.scope = one.scope
            AND other.name = one.name AND other.policy = one.policy)
        ORDER BY turn
    """,
    insert=_INSERT,
    keep=_KEEP,
    state=f"{_KEEP}, body = excluded.body",
    touch="UPDATE {table} SET used = :used, turn = {next_turn} WHERE id = :id",
    replace="UPDATE {table} SET body = :body WHERE id = :id",
    delete="DELETE FROM {table} WHERE id = :id",
    scopes="""
        SELECT id, scope, body FROM {table} WHERE kind <> 'original'
    """,
    forget="DELETE FROM {table} WHERE kind = :kind AND scope = '' AND name = :name",
    totals="""
        SELECT count(*), CAST(coalesce(sum(size), 0) AS bigint) FROM {table} WHERE kind = :kind
    """,
    expire="""
        DELETE FROM {table} WHERE id IN (
            SELECT id FROM {table} WHERE {any_kind} = :kind AND used <= :before
            AND turn <> (SELECT max(turn) FROM {table} WHERE kind = :kind) {unlocked})
    """,
    bound="""
        DELETE FROM {table} WHERE id IN (
            SELECT id FROM {table} WHERE kind = :kind AND turn <= (
                SELECT turn FROM {table} WHERE kind = :kind
                ORDER BY turn DESC LIMIT 1 OFFSET :most)
            {unlocked})
    """,
    bound_size="""
        DELETE FROM {table} WHERE id IN (
            SELECT id FROM {table} WHERE id IN (
                SELECT id FROM (
                    SELECT id, turn, sum(size) OVER newest AS held FROM {table} WHERE kind = :kind
                    WINDOW newest AS (ORDER BY turn DESC ROWS UNBOUNDED PRECEDING)
                ) AS summed
                WHERE held > :characters
                AND turn <> (SELECT max(turn) FROM {table} WHERE kind = :kind))
            {unlocked})
    """,
    purge="""
        DELETE FROM {table} WHERE id IN (
            SELECT id FROM {table} WHERE used <= :before {unlocked})
        RETURNING id
    """,
    large="""
        SELECT id, body FROM {table} WHERE kind = 'original' AND size >= :least
        AND used <= :before AND substr(body, 1, 1) <> :mark ORDER BY id LIMIT :most
    """,
    elsewhere="""
        SELECT id, body FROM {table} WHERE kind = 'original' AND size = 0
        AND substr(body, 1, 1) = :mark
    """,
    swap="""
        UPDATE {table} SET body = :body, size = :size WHERE id = :id AND body = :held RETURNING id
    """,
    since="SELECT turn, body FROM {table} WHERE kind = :kind AND turn >= :turn ORDER BY turn",
)
"""The statements of every engine, with names in braces to fill in; parameters are `:name`."""


def make_statements(
    *, first: str, table: str, next_turn: str, unlocked: str = "", any_kind: str = "kind"
) -> Statements:
    """Return the statements of an engine, with parameters written as `:name`.

    `first` is its query for the first of many names. `next_turn` is an expression for a turn newer
    than all others of `:kind`. `unlocked` is the clause that skips rows locked by others.
    `any_kind` is the kind of a row in a query that searches by time of use.
    """
    parts = {"table": table, "next_turn": next_turn, "unlocked": unlocked, "first": first}
    parts["any_kind"] = any_kind
    return Statements(*(sql.format(**parts, same_name=_SAME_NAME) for sql in astuple(SHARED)))


class SqlRecords:
    """Rows of a database, their limits, and the loads that no save has written yet.

    `where` names the database in errors; `now` returns seconds since the epoch.
    """

    def __init__(
        self,
        database: SqlDatabase,
        engine: Engine,
        where: str,
        limits: StoreLimits,
        now: Callable[[], float],
    ) -> None:
        self.database, self.engine, self.now = database, engine, now
        self._where, self._limits = where, limits
        self._touched: dict[int, float] = {}
        self._grown: dict[str, int] = {}

    def read_first(self, kind: str, scope: str, names: Sequence[str]) -> bytes | None:
        """Return the body of the first of these names that has one; this counts as a use."""
        for start in range(0, len(names), ASKED_AT_ONCE):
            asked = {
                "wanted": self.engine.pack_names(names[start : start + ASKED_AT_ONCE]),
                "kind": kind,
                "scope": self.engine.make_key(scope),
            }
            for row, body in self.database.read(self.engine.statements.first, asked):
                self._touched.pop(row, None)
                self._touched[row] = self.now()
                if len(self._touched) > MOST_TOUCHES:
                    self.flush()
                return bytes(body)
        return None

    def make_place(
        self, kind: str, scope: str, name: str, policy: str = "", generation: int = 0
    ) -> dict[str, Any]:
        """Return the key of a row, in a form that the engine can hold."""
        key = self.engine.make_key
        return {
            "kind": kind,
            "scope": key(scope),
            "name": key(name),
            "policy": key(policy),
            "generation": generation,
        }

    def make_row(self, place: Bindings, body: bytes, size: int = 0) -> dict[str, Any]:
        """Return a row that is used now; `size` is in characters."""
        return {**place, "used": self.now(), "size": size, "body": body}

    @contextmanager
    def writing(
        self, kind: str = "", scope: str = "", *, grown: Sequence[str] = ()
    ) -> Iterator[Writer]:
        """Hold the writer's lock of a scope; then apply the limits of the kinds in `grown`.

        Earlier uses count as older than the rows written now.
        """
        with self.database.writing() as writer:
            self.engine.lock(writer, _number_scope(kind, scope))
            noted = dict(self._touched)
            with self.engine.touch_noted(writer, noted):
                yield writer
            for added in grown:
                if self._is_check_due(added):
                    self._drop_excess(writer, added)
        for row, used in noted.items():
            if self._touched.get(row) == used:
                self._touched.pop(row, None)

    def _is_check_due(self, kind: str) -> bool:
        """Tell whether a kind may have grown by a hundredth of its limit, as counting is slow.

        The first write of a kind always checks, and so does each write of originals, whose size is
        limited.
        """
        grown = self._grown.get(kind, self._limits.most) + 1
        due = kind == "original" or grown * 100 >= self._limits.most
        self._grown[kind] = 0 if due else grown
        return due

    def _drop_excess(self, writer: Writer, kind: str) -> None:
        """Forget records that are expired or over the limits, but never the newest of its kind."""
        sql, limits = self.engine.statements, self._limits
        writer.execute(sql.expire, {"kind": kind, "before": self.now() - limits.ttl_s})
        ((count, held),) = writer.execute(sql.totals, {"kind": kind}).fetchall()
        if count > limits.most:
            writer.execute(sql.bound, {"kind": kind, "most": limits.most})
        if held > limits.characters:
            characters = {"kind": kind, "characters": limits.characters}
            writer.execute(sql.bound_size, characters)

    def flush(self) -> None:
        """Write the uses since the last save."""
        if self._touched:
            with self.writing():
                pass

    def purge(self, now: float) -> int:
        """Forget records that nobody used for their lifetime; return how many."""
        with self.writing() as writer:
            before = {"before": now - self._limits.ttl_s}
            return len(writer.execute(self.engine.statements.purge, before).fetchall())

    def forget_tenant(self, mark: str) -> int:
        """Forget the records whose scope contains `mark`, and the originals that only they name."""
        sql = self.engine.statements
        with self.writing() as writer:
            rows = writer.execute(sql.scopes, {}).fetchall()
            gone = [row for row in rows if mark in row[1]]
            named = [_list_names(body) for _, scope, body in rows if mark not in scope]
            lost = set[str]().union(*(_list_names(row[2]) for row in gone)).difference(*named)
            writer.executemany(sql.delete, [{"id": row[0]} for row in gone])
            kept = [{"kind": "original", "name": name} for name in sorted(lost)]
            writer.executemany(sql.forget, kept)
        return len(gone)

    def scrub(self) -> str:
        """Overwrite deleted data; return where some may still be."""
        return self.database.scrub()

    def read_record(self, make: Callable[[Mapping[str, Any]], Record], body: bytes) -> Record:
        """Return the record in a body; raise StoreError with the database's name if damaged."""
        return bodies.read(make, body, self._where, self.engine.advice)


class SqlCheckpoints:
    """Records of compactions, by scope and prefix."""

    def __init__(self, records: SqlRecords) -> None:
        self._records, self._sql = records, records.engine.statements
        self._parsed: dict[bytes, Checkpoint] = {}

    def load(self, scope: str, prefixes: Sequence[str]) -> Checkpoint | None:
        """Return the checkpoint that holds under the first of `prefixes` that has one, or None."""
        body = self._records.read_first("checkpoint", scope, prefixes)
        if body is None:
            return None
        found = self._parsed.get(body)
        if found is None:
            found = self._read(body)
            if len(self._parsed) >= MOST_PARSED:
                self._parsed.clear()
            self._parsed[body] = found
        return found

    def save(self, checkpoint: Checkpoint) -> Checkpoint:
        """Store a checkpoint unless its or a later generation is there; return the stored one."""
        place, body = self._place(checkpoint), seal(checkpoint.to_dict())
        grown: list[str] = []
        with self._records.writing("checkpoint", checkpoint.scope, grown=grown) as writer:
            for row, held in writer.execute(self._sql.highest, place).fetchall():
                used = {"kind": "checkpoint", "used": self._records.now(), "id": row}
                writer.execute(self._sql.touch, used)
                return self._read(held)
            writer.execute(self._sql.insert, self._records.make_row(place, body))
            grown.append("checkpoint")
        return checkpoint

    def save_measured(self, checkpoint: Checkpoint) -> None:
        """Replace a stored checkpoint by the same one with its measured size.

        A late report on a checkpoint that has been replaced changes nothing.
        """
        with self._records.writing("checkpoint", checkpoint.scope) as writer:
            for row in self._find_same(writer, checkpoint):
                body = seal(checkpoint.to_dict())
                writer.execute(self._sql.replace, {"body": body, "id": row})

    def undo(self, checkpoint: Checkpoint) -> bool:
        """Remove a checkpoint; the one stored before it under its prefix holds again."""
        with self._records.writing("checkpoint", checkpoint.scope) as writer:
            found = self._find_same(writer, checkpoint)
            for row in found:
                writer.execute(self._sql.delete, {"id": row})
        return bool(found)

    def all(self) -> list[Checkpoint]:
        """Return the current checkpoint of each policy and prefix, least recently used first."""
        self._records.flush()
        return [self._read(body) for (body,) in self._records.database.read(self._sql.all, {})]

    def _place(self, made: Checkpoint) -> dict[str, Any]:
        return self._records.make_place(
            "checkpoint", made.scope, made.prefix, made.policy, made.generation
        )

    def _find_same(self, writer: Writer, checkpoint: Checkpoint) -> list[int]:
        """Return the row that holds exactly this checkpoint, or nothing."""
        rows = writer.execute(self._sql.held, self._place(checkpoint)).fetchall()
        return [row for row, body in rows if self._read(body).script == checkpoint.script]

    def _read(self, body: bytes) -> Checkpoint:
        return self._records.read_record(Checkpoint.from_dict, body)


class SqlConversations:
    """State of conversations from call to call."""

    def __init__(self, records: SqlRecords) -> None:
        self._records = records

    def load(self, scope: str, prefixes: Sequence[str]) -> Conversation | None:
        """Return the state under the first of `prefixes` that has one, or None."""
        body = self._records.read_first("conversation", scope, prefixes)
        return None if body is None else self._records.read_record(Conversation.from_dict, body)

    def save(self, conversation: Conversation) -> None:
        """Keep the state of a conversation; replace the old one under its prefix."""
        self.save_all([conversation])

    def save_all(self, conversations: Sequence[Conversation]) -> None:
        """Save several, with one transaction per scope."""
        kind, records = "conversation", self._records
        rows: dict[str, list[dict[str, Any]]] = {}
        for one in conversations:
            place = records.make_place(kind, one.scope, one.prefix)
            rows.setdefault(one.scope, []).append(records.make_row(place, seal(one.to_dict())))
        for scope, held in rows.items():
            with records.writing(kind, scope, grown=[kind] * len(held)) as writer:
                writer.executemany(records.engine.statements.state, held)


class KeptPassages(Index, Protocol):
    """The index of a store's originals."""

    def take_originals(self) -> None:
        """Index the originals that are new."""

    def list_waiting(self) -> Sequence[SearchSource]:
        """Return the originals that are not indexed yet."""
        ...


class SqlOriginals:
    """The texts that placeholders replace, with their search."""

    def __init__(self, records: SqlRecords, passages: KeptPassages) -> None:
        self._records, self.passages = records, passages
        self._objects = ObjectReader()

    def keep(self, items: Mapping[str, str]) -> None:
        """Keep texts by their references. A known reference keeps its text."""
        if not items:
            return
        records = self._records
        rows = [
            records.make_row(
                records.make_place("original", "", reference),
                text.encode("utf-8", "surrogatepass"),
                len(text),
            )
            for reference, text in items.items()
        ]
        with records.writing("original", grown=["original"]) as writer:
            writer.executemany(records.engine.statements.keep, rows)

    def read(self, reference: str) -> str | None:
        """Return the text of a reference, or None if it is unknown or gone.

        Raises LostText and StoreAway for a text in object storage that cannot be read.
        """
        body = self._records.read_first("original", "", [reference])
        return None if body is None else read_original(self._objects, body)

    def search(self, query: str, hits: int = HITS, area: SearchArea = EVERYWHERE) -> list[Hit]:
        """Return the passages that fit a query best; raises what `find_hits` raises."""
        try:
            self.passages.take_originals()
        except ReadOnlyStore:  # its index cannot grow: one in memory holds the rest
            beside = MemoryIndex()
            beside.take("", self.passages.list_waiting(), 0)
            return find_hits(JointIndex(self.passages, beside), query, hits, area)
        return find_hits(self.passages, query, hits, area)


class SqlStore(Unpicklable):
    """The three parts in one database, and small records that its processes share (`notes`).

    With `purge` it forgets expired records at once.
    """

    def __init__(
        self, records: SqlRecords, url: str, desk: Desk, passages: KeptPassages, *, purge: bool
    ) -> None:
        self.url, self.desk = url, desk
        self._records = records
        self.checkpoints = SqlCheckpoints(records)
        self.conversations = SqlConversations(records)
        self.originals = SqlOriginals(records, passages)
        self.notes = SqlNotes(records)
        if purge:
            try:
                self.purge(records.now())
            except StoreError:
                records.database.close()
                raise

    def purge(self, now: float) -> int:
        """Forget records expired at `now` (seconds since the epoch); return how many."""
        with self._forgetting_objects():
            return self._records.purge(now)

    def forget_tenant(self, mark: str) -> int:
        """Forget the checkpoints and conversations whose scope contains `mark`; return how many."""
        with self._forgetting_objects():
            return self._records.forget_tenant(mark)

    @contextmanager
    def _forgetting_objects(self) -> Iterator[None]:
        """Delete the objects of originals that are forgotten meanwhile."""
        before = dict(self.list_moved_originals())
        yield
        if before:
            left = dict(self.list_moved_originals())
            ObjectReader().forget(text for number, text in before.items() if number not in left)

    def list_originals(self, least: int, before: float, most: int) -> list[tuple[int, str]]:
        """Return up to `most` originals of `least` characters or more that are in the store."""
        asked = {"least": least, "before": before, "most": most, "mark": ELSEWHERE}
        return self._list_bodies(self._records.engine.statements.large, asked)

    def list_moved_originals(self) -> list[tuple[int, str]]:
        """Return the references to moved originals, each with its number."""
        return self._list_bodies(self._records.engine.statements.elsewhere, {"mark": ELSEWHERE})

    def swap_original(self, number: int, held: str, text: str) -> bool:
        """Replace a text if it is still there; return whether it was.

        A text stored elsewhere does not count against the limit of characters.
        """
        size = 0 if MovedText.read(text) is not None else len(text)
        row = {"id": number, "size": size, "body": pack_original(text), "held": pack_original(held)}
        with self._records.writing("original") as writer:
            return bool(writer.execute(self._records.engine.statements.swap, row).fetchall())

    def _list_bodies(self, sql: str, asked: dict[str, Any]) -> list[tuple[int, str]]:
        rows = self._records.database.read(sql, asked)
        return [(number, unpack_original(bytes(body))) for number, body in rows]

    def scrub(self) -> str:
        """Overwrite deleted data as far as the store can; return where some may still be."""
        return self._records.scrub()

    def close(self) -> None:
        """Write the order of use, and close the database. A second call does nothing."""
        database = self._records.database
        try:
            if not database.is_closed:
                with suppress(*self._records.engine.forgiven):  # the order of use is not a record
                    self._records.flush()
        finally:
            database.close()


def _list_names(body: bytes) -> frozenset[str]:
    """Return the originals that a record names."""
    return find_references(bytes(body).decode(errors="replace"))


def _number_scope(kind: str, scope: str) -> int:
    """Return the number of a scope's lock; two scopes with one number only wait for each other."""
    found = blake2b(f"{kind}|{scope}".encode("utf-8", "surrogatepass"), digest_size=4).digest()
    return int.from_bytes(found, "big", signed=True)
