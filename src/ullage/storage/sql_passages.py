"""What a store or a log is searched by, in SQL: passages, their terms, and where they stand.

A passage is kept once, however many texts hold it: `spots` say where. It is forgotten with the last
of them. Nothing is written when a text is kept: a search takes in first what came since the last
one, in transactions of their own. This module knows no driver.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from ullage.core.search.index import SearchSource
from ullage.core.search.passages import cut_passages
from ullage.core.search.ranking import Hit, SearchArea
from ullage.core.search.terms import list_terms
from ullage.storage.objects import LostText, ObjectReader, read_original
from ullage.storage.sql_store import SqlDatabase, Writer

LOCK: Final = 1
"""The number of the lock under which passages are written."""

BATCH: Final = 200
"""Texts that are taken in by one transaction: another writer waits for no more."""


@dataclass(frozen=True, slots=True)
class PassageStatements:
    """The SQL of an index of passages, in one engine's words; parameters are named.

    `terms` is empty where `add` keeps the terms with the passage.
    """

    reached: str
    reach: str
    add: str
    terms: str
    spot: str
    records: str
    count: str
    find: str


@dataclass(frozen=True, slots=True)
class PassageEngine:
    """How an engine differs: its SQL, its lists, its terms, and a question for any of some terms.

    `lock` takes the one place of whoever writes passages until the transaction ends. A search looks
    at `most_looked_at` passages; of a term no more than `most_counted` are counted.
    """

    statements: PassageStatements
    write_term: Callable[[str], str]
    pack_terms: Callable[[Sequence[str]], object]
    pack_question: Callable[[Mapping[str, float]], Mapping[str, object]]
    pack_list: Callable[[Sequence[str]], object]
    lock: Callable[[Writer, int], None]
    most_looked_at: int
    most_counted: int


ALL: Final = 2**31 - 1
"""More texts than a store holds."""

MOST_COMMON: Final = 10_000
"""Terms that are known to be common, and not counted again."""


class _Cut(NamedTuple):
    source: SearchSource
    row: Mapping[str, object]


class SqlIndex:
    """Passages of a database: `kept` those of the originals of its store, else of its sessions."""

    def __init__(self, database: SqlDatabase, engine: PassageEngine, *, kept: bool) -> None:
        self._database, self._engine, self._kept = database, engine, kept
        self._sql, self.most_looked_at = engine.statements, engine.most_looked_at
        self._common: set[str] = set()
        self._objects = ObjectReader()

    def list_reached(self) -> Mapping[str, int]:
        """Return how far each session is taken in, the originals of a store under ""."""
        return dict(self._database.read(self._sql.reached, {}))

    def take(self, session: str, sources: Iterable[SearchSource], upto: int) -> None:
        """Take in the texts of a session up to an event, or of a store up to a record.

        Where another process was faster, nothing happens.
        """
        cuts = [cut for source in sources for cut in self._cut(source)]
        sql = self._sql
        with self._database.writing() as writer:
            self._engine.lock(writer, LOCK)
            place = {"session": session, "upto": upto}
            if not writer.execute(sql.reach, place).fetchall():
                return
            for cut in cuts:
                row = {**place, **cut.row, "seq": cut.source.order}
                for (made,) in writer.execute(sql.add, row).fetchall():
                    if sql.terms:
                        writer.execute(sql.terms, {**row, "id": made})
                writer.execute(sql.spot, row)

    def _cut(self, source: SearchSource) -> Iterable[_Cut]:
        for passage in cut_passages(source.text):
            text = passage.read().replace("\0", " ")
            row = {
                "digest": blake2b(text.encode(), digest_size=16).digest(),
                "text": text,
                "terms": self._engine.pack_terms(list_terms(text)),
                "reference": source.reference,
                "start": passage.start,
            }
            yield _Cut(source, row)

    def take_originals(self) -> None:
        """Take in the originals of the store that came since the last time."""
        while sources := self._list_waiting(BATCH):
            self.take("", sources, sources[-1].order)

    def list_waiting(self) -> list[SearchSource]:
        """Return the originals of the store that came since the last time."""
        return self._list_waiting(ALL)

    def _list_waiting(self, most: int) -> list[SearchSource]:
        rows = self._database.read(self._sql.records, {"most": most})
        return [
            SearchSource(name, self._read_original(bytes(body)), number)
            for number, name, body in rows
        ]

    def _read_original(self, body: bytes) -> str:
        """Return the text of an original; of one that is gone elsewhere nothing can be found."""
        try:
            return read_original(self._objects, body)
        except LostText:
            return ""

    def count(self, terms: Sequence[str]) -> tuple[int, Mapping[str, int]]:
        """Return how many passages there are, and how many have each of these terms."""
        engine, most = self._engine, self._engine.most_counted
        unknown = {engine.write_term(term): term for term in terms if term not in self._common}
        asked = {"asked": engine.pack_list(list(unknown)), "most": most}
        counted: dict[str, int] = dict(self._database.read(self._sql.count, asked))
        held = dict.fromkeys(terms, 0) | {term: most for term in terms if term in self._common}
        held |= {term: counted.get(written, 0) for written, term in unknown.items()}
        if len(self._common) > MOST_COMMON:
            self._common.clear()
        self._common.update(term for term, count in held.items() if count >= most)
        return counted.get("", 0), held

    def find(self, weights: Mapping[str, float], most: int, area: SearchArea) -> Sequence[Hit]:
        """Return up to `most` passages that have the most of these terms, the oldest first."""
        sessions = area.sessions
        names = None if area.references is None else sorted(area.references)
        asked: dict[str, Any] = {
            **self._engine.pack_question(weights),
            "most": most,
            "kept": self._kept,
            "names": None if names is None else self._engine.pack_list(names),
            "sessions": None if sessions is None else json.dumps(dict(sessions)),
        }
        rows = self._database.read(self._sql.find, asked)
        return [Hit(reference, start, text, 0.0, name) for text, reference, start, name in rows]
