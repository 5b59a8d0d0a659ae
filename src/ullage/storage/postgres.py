"""A store in PostgreSQL, shared by processes on any number of hosts.

This module defines how PostgreSQL differs from other engines; `sql_store` does the work. A writer
holds the lock of its scope until its transaction ends; a reader waits for nobody. Changes to rows
of other scopes (their order of use, removals) come last and skip rows that another writer has
locked, so nobody waits while holding a row of somebody else.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple
from hashlib import blake2b
from typing import Final, TypeVar

from ullage.core.errors import BusyWriter
from ullage.core.search.terms import STEMMED
from ullage.storage.postgres_database import WAIT_S, ConnectionLost, PostgresDatabase
from ullage.storage.protocol import STANDARD, StoreLimits
from ullage.storage.sql_passages import PassageEngine, PassageStatements, SqlIndex
from ullage.storage.sql_store import (
    Engine,
    SqlRecords,
    SqlStore,
    Statements,
    Writer,
    make_statements,
)
from ullage.storage.threaded import MOST, Desk
from ullage.threads import Threads

WRITER: Final = 0x756C6C68
"""The first number of the writers' advisory locks; the second is a hash of the scope."""

SEAT: Final = "SELECT pg_advisory_xact_lock(%(writer)s::int, %(number)s::int)"
DRAW: Final = "SELECT nextval('ullage.turns') FROM generate_series(1, %(count)s)"
TOUCH_NOTED: Final = """
    UPDATE ullage.records AS one SET used = noted.used, turn = noted.turn
    FROM unnest(%(ids)s::bigint[], %(used)s::double precision[], %(turns)s::bigint[])
        AS noted (id, used, turn)
    WHERE one.id = noted.id AND one.turn < noted.turn
    AND one.id IN (SELECT id FROM ullage.records WHERE id = ANY(%(ids)s) FOR UPDATE SKIP LOCKED)
"""
FIRST: Final = """
    SELECT id, body FROM ullage.records
    JOIN unnest(CAST(:wanted AS text[])) WITH ORDINALITY AS wanted (wanted, nth) ON name = wanted
    WHERE kind = :kind AND scope = :scope ORDER BY nth, generation DESC, id DESC LIMIT 1
"""

LONGEST_KEY: Final = 150
"""Longest key stored as it is, in characters: an index entry takes 2,704 bytes and holds three
keys."""

HASHED: Final = "blake2b:"


def key(text: str) -> str:
    """Return a key that PostgreSQL can store and index; any other becomes its hash."""
    fits = len(text) <= LONGEST_KEY and text.isprintable() and not text.startswith(HASHED)
    if fits:
        return text
    return HASHED + blake2b(text.encode("utf-8", "surrogatepass"), digest_size=32).hexdigest()


def _pack_names(names: Sequence[str]) -> list[str]:
    return [key(name) for name in names]


def _lock_scope(writer: Writer, number: int) -> None:
    writer.execute(SEAT, {"writer": WRITER, "number": number})


@contextmanager
def _touch_noted(writer: Writer, noted: Mapping[int, float]) -> Iterator[None]:
    """Draw the turns first, so that rows written inside are newer; write the turns last."""
    if not noted:
        yield
        return
    turns = [turn for (turn,) in writer.execute(DRAW, {"count": len(noted)}).fetchall()]
    yield
    values = {"ids": list(noted), "used": list(noted.values()), "turns": turns}
    writer.execute(TOUCH_NOTED, values)


Sql = TypeVar("Sql", Statements, PassageStatements)


def _write_parameters(statements: Sql) -> Sql:
    """Return statements with their parameters as psycopg writes them: `%(name)s`."""
    written = (re.sub(r":(\w+)", r"%(\1)s", sql) for sql in astuple(statements))
    return type(statements)(*written)


ENGINE: Final = Engine(
    statements=_write_parameters(
        make_statements(
            first=FIRST,
            table="ullage.records",
            next_turn="nextval('ullage.turns')",
            unlocked="FOR UPDATE SKIP LOCKED",
        )
    ),
    make_key=key,
    pack_names=_pack_names,
    lock=_lock_scope,
    touch_noted=_touch_noted,
    forgiven=(BusyWriter, ConnectionLost),
    advice="somebody changed table ullage.records, restore it or start with another database",
)


MOST_COUNTED: Final = 400
"""Passages of a term that a search looks at; a term with more is a common one."""


def _pack_terms(terms: Sequence[str]) -> list[str]:
    """Return the words of a passage without stems, because a prefix query finds those."""
    return sorted({term for term in terms if not term.endswith(STEMMED)})


def _write_query(term: str) -> str:
    """Return a term as a tsquery; terms contain neither quotes nor backslashes."""
    return f"'{term[:-1]}':*" if term.endswith(STEMMED) else f"'{term}'"


def _pack_question(weights: Mapping[str, float]) -> Mapping[str, object]:
    """Return terms with weights, and the rarest combined, as a common term finds too many."""
    asked = {_write_query(term): weight for term, weight in weights.items()}
    rarest = list(asked)
    for count in range(2, min(len(rarest), 3) + 1):
        asked[" & ".join(rarest[:count])] = 0.0
    found = {"asked": list(asked), "weights": list(asked.values())}
    return {**found, "looked": MOST_COUNTED}


_HOLDS: Final = """
    (s.session = '') = :kept
    AND (CAST(:names AS text[]) IS NULL OR s.reference = ANY (CAST(:names AS text[])))
    AND (CAST(:sessions AS jsonb) IS NULL
        OR s.seq <= CAST(CAST(:sessions AS jsonb) ->> s.session AS bigint))
"""

PASSAGES: Final = PassageEngine(
    statements=_write_parameters(
        PassageStatements(
            reached="SELECT session, upto FROM ullage.reached",
            reach="""
                INSERT INTO ullage.reached AS one (session, upto) VALUES (:session, :upto)
                ON CONFLICT (session) DO UPDATE SET upto = excluded.upto
                WHERE excluded.upto > one.upto RETURNING upto
            """,
            add="""
                INSERT INTO ullage.passages (digest, text, terms)
                SELECT :digest, :text, array_to_tsvector(CAST(:terms AS text[]))
                WHERE CAST(:session AS text) <> ''
                OR EXISTS (SELECT FROM ullage.records WHERE id = :seq)
                ON CONFLICT DO NOTHING RETURNING id
            """,
            terms="",
            spot="""
                INSERT INTO ullage.spots (passage, session, seq, reference, start)
                SELECT id, :session, :seq, :reference, :start FROM ullage.passages
                WHERE digest = :digest AND (CAST(:session AS text) <> ''
                OR EXISTS (SELECT FROM ullage.records WHERE id = :seq))
            """,
            records="""
                SELECT id, name, body FROM ullage.records WHERE kind = 'original'
                AND id > coalesce((SELECT upto FROM ullage.reached WHERE session = ''), 0)
                ORDER BY id LIMIT :most
            """,
            count="SELECT term, held FROM ullage.count_passages(CAST(:asked AS text[]), :most)",
            sample="""
                WITH sampled AS MATERIALIZED (
                    SELECT terms FROM ullage.passages WHERE id = ANY (ARRAY(
                        SELECT 1 + nth * last / :sampled
                        FROM generate_series(0, :sampled - 1) AS nth,
                        (SELECT max(id) AS last FROM ullage.passages) AS newest)))
                SELECT '', count(*) FROM sampled UNION ALL
                SELECT one, (SELECT count(*) FROM sampled WHERE terms @@ CAST(one AS tsquery))
                FROM unnest(CAST(:asked AS text[])) AS one
            """,
            find="""
                SELECT passage, reference, start, session FROM (
                    SELECT DISTINCT ON (passage) * FROM ullage.find_passages(
                        CAST(:asked AS text[]), CAST(:weights AS double precision[]), :looked,
                        :most, :kept, CAST(:names AS text[]), CAST(:sessions AS jsonb)
                    ) WITH ORDINALITY AS spot (passage, reference, start, session, nth)
                    ORDER BY passage, nth DESC) AS newest
                ORDER BY nth
            """,
            newest="""
                SELECT p.digest FROM (
                    SELECT DISTINCT s.passage AS id FROM ullage.spots AS s WHERE HOLDS
                    ORDER BY id DESC LIMIT :most) AS newest
                JOIN ullage.passages AS p ON p.id = newest.id ORDER BY p.id DESC
            """.replace("HOLDS", _HOLDS),
            read="""
                SELECT p.digest, p.text, s.reference, s.start, s.session
                FROM unnest(CAST(:digests AS text[])) AS named
                JOIN ullage.passages AS p ON p.digest = decode(named, 'hex')
                JOIN ullage.spots AS s ON s.passage = p.id AND HOLDS ORDER BY s.number
            """.replace("HOLDS", _HOLDS),
        )
    ),
    write_term=_write_query,
    pack_terms=_pack_terms,
    pack_question=_pack_question,
    pack_list=list,
    lock=_lock_scope,
    most_looked_at=1_200,
    most_counted=MOST_COUNTED,
)


class PostgresStore(SqlStore):
    """The three parts in one database; `now` returns seconds since the epoch.

    `create=False` raises StoreError if the database holds no store. `wait_s` is how long it waits
    for another program's lock before it raises BusyWriter.
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
        records = SqlRecords(self._database, ENGINE, self._database.url, limits, now)
        threads = Threads("ullage-postgres", MOST)
        passages = SqlIndex(self._database, PASSAGES, kept=True)
        desk = Desk(threads, threads)
        super().__init__(records, self._database.url, desk, passages, purge=create)
