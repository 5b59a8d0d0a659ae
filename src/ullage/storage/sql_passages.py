"""The search index of a store or a log, in SQL: passages, their terms, and their positions.

A passage is kept once, even if many texts hold it: `spots` lists its positions. The last removed
position removes the passage. Keeping a text does not change the index: a search first indexes the
new texts, in separate transactions. This module knows no driver.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from ullage.core.search.index import SearchSource
from ullage.core.search.passages import cut_passages
from ullage.core.search.ranking import Hit, SearchArea, Similar
from ullage.core.search.terms import list_terms
from ullage.storage.objects import LostText, ObjectReader, read_original
from ullage.storage.sql_store import SqlDatabase, Writer

LOCK: Final = 1
"""The number of the lock for writing passages."""

BATCH: Final = 200
"""Texts indexed in one transaction, so that other writers wait only briefly."""


@dataclass(frozen=True, slots=True)
class PassageStatements:
    """The SQL of an index of passages, in one engine's words; parameters are named.

    `terms` is empty if `add` keeps the terms with the passage. `sample` is empty if `count` counts
    common terms as fast as rare ones.
    """

    reached: str
    reach: str
    add: str
    terms: str
    spot: str
    records: str
    count: str
    sample: str
    find: str
    newest: str
    read: str


@dataclass(frozen=True, slots=True)
class PassageEngine:
    """How an engine differs: its SQL, its lists, its terms, and its query for any of some terms.

    `lock` takes the only lock for writing passages until the transaction ends. A search looks at
    `most_looked_at` passages, and counts at most `most_counted` of a term.
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
"""More texts than any store holds."""

MOST_KNOWN: Final = 10_000
"""Terms whose frequency is cached."""

SAMPLED: Final = 300
"""Passages, spread over all, in which common terms are counted."""

GROWN: Final = 2
"""Growth factor of the passages after which all terms are sampled again."""

SEEN: Final = 4
"""Passages of a sample that make a term common: about one in a hundred passages has it."""


class _Cut(NamedTuple):
    source: SearchSource
    row: Mapping[str, object]


class SqlIndex:
    """Passages of a database: with `kept` of its store's originals, else of its sessions."""

    similar: Similar | None = None

    def __init__(self, database: SqlDatabase, engine: PassageEngine, *, kept: bool) -> None:
        self._database, self._engine, self._kept = database, engine, kept
        self._sql, self.most_looked_at = engine.statements, engine.most_looked_at
        self.most_counted = engine.most_counted
        self._shares: Mapping[str, float] = {}
        self._sampled = 0
        self._objects = ObjectReader()

    def list_reached(self) -> Mapping[str, int]:
        """Return how far each session is indexed; the originals of a store are under ""."""
        return dict(self._database.read(self._sql.reached, {}))

    def take(self, session: str, sources: Iterable[SearchSource], upto: int) -> None:
        """Index the texts of a session up to an event, or of a store up to a record.

        Does nothing if another process was faster.
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
        """Index the store's new originals."""
        while sources := self._list_waiting(BATCH):
            self.take("", sources, sources[-1].order)

    def list_waiting(self) -> list[SearchSource]:
        """Return the originals of the store that are not indexed yet."""
        return self._list_waiting(ALL)

    def _list_waiting(self, most: int) -> list[SearchSource]:
        rows = self._database.read(self._sql.records, {"most": most})
        return [
            SearchSource(name, self._read_original(bytes(body)), number)
            for number, name, body in rows
        ]

    def _read_original(self, body: bytes) -> str:
        """Return the text of an original, or "" if its object is lost, so nothing is found."""
        try:
            return read_original(self._objects, body)
        except LostText:
            return ""

    def count(self, terms: Sequence[str]) -> tuple[int, Mapping[str, int]]:
        """Return how many passages there are, and how many have each of these terms.

        The number for a common term is an estimate from a sample.
        """
        engine = self._engine
        common = self._find_common(terms)
        rest = {engine.write_term(term): term for term in terms if term not in common}
        asked = {"asked": engine.pack_list(list(rest)), "most": engine.most_counted + 1}
        counted: dict[str, int] = dict(self._database.read(self._sql.count, asked))
        total = counted.get("", 0)
        if total > GROWN * self._sampled:  # terms common in few passages may be rare in many
            self._shares, self._sampled = {}, total
        held = dict.fromkeys(terms, 0)
        held |= {term: round(share * total) for term, share in common.items()}
        held |= {term: counted.get(written, 0) for written, term in rest.items()}
        return total, held

    def _find_common(self, terms: Sequence[str]) -> Mapping[str, float]:
        """Return the common terms, each with the share of passages that have it."""
        if not self._sql.sample:
            return {}
        shares = self._shares if len(self._shares) <= MOST_KNOWN else {}
        unknown = {self._engine.write_term(t): t for t in terms if t not in shares}
        if unknown:
            asked = {"asked": self._engine.pack_list(list(unknown)), "sampled": SAMPLED}
            seen: dict[str, int] = dict(self._database.read(self._sql.sample, asked))
            sampled = seen.pop("", 0)
            least = SEEN if 2 * sampled >= SAMPLED else ALL  # few passages: no term is common
            found = {
                unknown[written]: count / sampled if count >= least else 0.0
                for written, count in seen.items()
            }
            shares = self._shares = {**shares, **found}  # another thread may have its own
        return {term: share for term in terms if (share := shares[term])}

    def find(self, weights: Mapping[str, float], most: int, area: SearchArea) -> Sequence[Hit]:
        """Return up to `most` passages that have the most of these terms, the oldest first.

        Each comes with its last position.
        """
        asked = {**self._pack_area(area), **self._engine.pack_question(weights), "most": most}
        rows = self._database.read(self._sql.find, asked)
        return [Hit(reference, start, text, 0.0, name) for text, reference, start, name in rows]

    def list_passages(self, area: SearchArea, most: int) -> Sequence[bytes]:
        """Return the hashes of the newest `most` passages of an area, the newest first."""
        rows = self._database.read(self._sql.newest, {**self._pack_area(area), "most": most})
        return [bytes(digest) for (digest,) in rows]

    def read_passages(self, names: Sequence[Hashable], area: SearchArea) -> Mapping[Hashable, Hit]:
        """Return the passages that an area holds, each with its last position."""
        wanted = self._engine.pack_list([name.hex() for name in names if isinstance(name, bytes)])
        rows = self._database.read(self._sql.read, {**self._pack_area(area), "digests": wanted})
        return {
            bytes(digest): Hit(reference, start, text, 0.0, name)
            for digest, text, reference, start, name in rows
        }

    def _pack_area(self, area: SearchArea) -> dict[str, Any]:
        names, sessions = area.references, area.sessions
        return {
            "kept": self._kept,
            "names": None if names is None else self._engine.pack_list(sorted(names)),
            "sessions": None if sessions is None else json.dumps(dict(sessions)),
        }
