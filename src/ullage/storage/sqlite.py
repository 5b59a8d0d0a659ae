"""A store in one SQLite file, shared by threads and processes: a finished write is on disk.

This module defines how SQLite differs from other engines; `sql_store` does the work. A write
transaction locks the whole file, so a scope needs no lock of its own.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ullage.core.errors import BusyWriter
from ullage.storage.database import WAIT_S, Database
from ullage.storage.protocol import STANDARD, StoreLimits
from ullage.storage.sql_passages import PassageEngine, PassageStatements, SqlIndex
from ullage.storage.sql_store import Engine, SqlRecords, SqlStore, Writer, make_statements
from ullage.storage.threaded import Desk
from ullage.threads import Threads

# CROSS JOIN makes SQLite keep the order of the tables: the wanted names come first, and each is one
# look-up in the index (sqlite.org, "The SQLite Query Optimizer Overview").
FIRST: Final = """
    SELECT r.id, r.body FROM json_each(:wanted) AS wanted
    CROSS JOIN records AS r ON r.kind = :kind AND r.scope = :scope AND r.name = wanted.value
    ORDER BY wanted.key, r.generation DESC, r.id DESC LIMIT 1
"""
NEXT_TURN: Final = "(SELECT coalesce(max(turn), 0) + 1 FROM records WHERE kind = :kind)"
BY_TIME: Final = "+kind"
"""Makes SQLite find expired rows by the index of times of use. By the index of kinds it would read
every row of a kind: 8,000 rows in 6 ms (sqlite.org, "The SQLite Query Optimizer Overview")."""

TOUCH_NOTED: Final = """
    UPDATE records SET used = :used, turn =
        (SELECT max(turn) + 1 FROM records WHERE kind = (SELECT kind FROM records WHERE id = :id))
    WHERE id = :id
"""


def make_key(text: str) -> str:
    """Return a key that UTF-8 can encode: lone surrogates are escaped."""
    return text.encode("utf-8", "backslashreplace").decode()


def _pack_names(names: Sequence[str]) -> str:
    if not "".join(names).isascii():
        names = [make_key(name) for name in names]
    return json.dumps(names)


def _lock_nothing(_writer: Writer, _number: int) -> None:
    """Do nothing: BEGIN IMMEDIATE has locked the file."""


@contextmanager
def _touch_noted(writer: Writer, noted: Mapping[int, float]) -> Iterator[None]:
    writer.executemany(TOUCH_NOTED, [{"id": row, "used": used} for row, used in noted.items()])
    yield


ENGINE: Final = Engine(
    statements=make_statements(first=FIRST, table="records", next_turn=NEXT_TURN, any_kind=BY_TIME),
    make_key=make_key,
    pack_names=_pack_names,
    lock=_lock_nothing,
    touch_noted=_touch_noted,
    forgiven=(BusyWriter,),
    advice="move the file away and start a new store",
)

_HOLDS: Final = """
    (s.session = '') = :kept
    AND (:names IS NULL OR s.reference IN (SELECT value FROM json_each(:names)))
    AND (:sessions IS NULL OR EXISTS (
        SELECT 1 FROM json_each(:sessions) AS j WHERE j.key = s.session AND s.seq <= j.value))
"""
PASSAGES: Final = PassageEngine(
    statements=PassageStatements(
        reached="SELECT session, upto FROM reached",
        reach="""
            INSERT INTO reached (session, upto) VALUES (:session, :upto)
            ON CONFLICT (session) DO UPDATE SET upto = excluded.upto WHERE excluded.upto > upto
            RETURNING upto
        """,
        add="""
            INSERT INTO passages (digest, text) SELECT :digest, :text
            WHERE :session <> '' OR EXISTS (SELECT 1 FROM records WHERE id = :seq)
            ON CONFLICT DO NOTHING RETURNING id
        """,
        terms="INSERT INTO passage_terms (rowid, terms) VALUES (:id, :terms)",
        spot="""
            INSERT INTO spots (passage, session, seq, reference, start)
            SELECT id, :session, :seq, :reference, :start FROM passages WHERE digest = :digest
            AND (:session <> '' OR EXISTS (SELECT 1 FROM records WHERE id = :seq))
        """,
        records="""
            SELECT id, name, body FROM records WHERE kind = 'original'
            AND id > coalesce((SELECT upto FROM reached WHERE session = ''), 0)
            ORDER BY id LIMIT :most
        """,
        count="""
            SELECT '', count(*) FROM passages UNION ALL
            SELECT term, doc FROM passage_words WHERE term IN (SELECT value FROM json_each(:asked))
        """,
        sample="",
        find="""
            WITH best AS MATERIALIZED (
                SELECT f.rowid AS id FROM passage_terms AS f WHERE f.passage_terms MATCH :question
                AND EXISTS (SELECT 1 FROM spots AS s WHERE s.passage = f.rowid AND HOLDS)
                ORDER BY f.rank LIMIT :most)
            SELECT p.text, s.reference, s.start, s.session FROM best
            JOIN passages AS p ON p.id = best.id
            JOIN spots AS s ON s.rowid = (
                SELECT max(s.rowid) FROM spots AS s WHERE s.passage = best.id AND HOLDS)
            ORDER BY s.rowid
        """.replace("HOLDS", _HOLDS),
        newest="""
            SELECT p.digest FROM (
                SELECT DISTINCT s.passage AS id FROM spots AS s WHERE HOLDS
                ORDER BY id DESC LIMIT :most) AS newest
            JOIN passages AS p ON p.id = newest.id ORDER BY p.id DESC
        """.replace("HOLDS", _HOLDS),
        read="""
            SELECT p.digest, p.text, s.reference, s.start, s.session
            FROM json_each(:digests) AS named JOIN passages AS p ON p.digest = unhex(named.value)
            JOIN spots AS s ON s.passage = p.id AND HOLDS ORDER BY s.rowid
        """.replace("HOLDS", _HOLDS),
    ),
    write_term=str,
    pack_terms=" ".join,
    pack_question=lambda weights: {"question": " OR ".join(f'"{term}"' for term in weights)},
    pack_list=json.dumps,
    lock=_lock_nothing,
    most_looked_at=4_000,
    most_counted=sys.maxsize - 1,
)


class SqliteStore(SqlStore):
    """The three parts in one file; `now` returns seconds since the epoch.

    `create=False` raises StoreError if there is no file. `wait_s` is how long it waits for another
    program's lock before it raises BusyWriter.
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
        self._database = Database(path, create=create, wait_s=wait_s)
        records = SqlRecords(self._database, ENGINE, str(path), limits, now)
        desk = Desk(Threads("ullage-sqlite-reader", 1), Threads("ullage-sqlite-writer", 1))
        passages = SqlIndex(self._database, PASSAGES, kept=True)
        super().__init__(records, f"sqlite:{path}", desk, passages, purge=create)
