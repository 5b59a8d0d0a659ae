"""What a store or a log is searched by, in SQL: passages, their terms, and where they stand.

A passage is kept once, however many texts hold it: `spots` say where. It is forgotten with the last
of them. Nothing is written when a text is kept: a search takes in first what came since the last
one, in transactions of their own. This module knows no driver.
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
"""The number of the lock under which passages are written."""

BATCH: Final = 200
"""Texts that are taken in by one transaction: another writer waits for no more."""


@dataclass(frozen=True, slots=True)
class PassageStatements:
    """The SQL of an index of passages, in one engine's words; parameters are named.

    `terms` is empty where `add` keeps the terms with the passage, `sample` where `count` counts
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

MOST_KNOWN: Final = 10_000
"""Terms of which it is known how common they are."""

SAMPLED: Final = 300
"""Passages, spread over all, in which common terms are counted."""

GROWN: Final = 2
"""How much more passages there are when all terms are sampled anew."""

SEEN: Final = 4
"""Passages of a sample that make a term a common one: it stands in about one of a hundred."""


class _Cut(NamedTuple):
    source: SearchSource
    row: Mapping[str, object]


class SqlIndex:
    """Passages of a database: `kept` those of the originals of its store, else of its sessions."""

    similar: Similar | None = None

    def __init__(self, database: SqlDatabase, engine: PassageEngine, *, kept: bool) -> None:
        self._database, self._engine, self._kept = database, engine, kept
        self._sql, self.most_looked_at = engine.statements, engine.most_looked_at
        self.most_counted = engine.most_counted
        self._shares: Mapping[str, float] = {}
        self._sampled = 0
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
        """Return how many passages there are, and how many have each of these terms.

        Of a common term about how many: it is counted in a sample.
        """
        engine = self._engine
        common = self._find_common(terms)
        rest = {engine.write_term(term): term for term in terms if term not in common}
        asked = {"asked": engine.pack_list(list(rest)), "most": engine.most_counted + 1}
        counted: dict[str, int] = dict(self._database.read(self._sql.count, asked))
        total = counted.get("", 0)
        if total > GROWN * self._sampled:  # what was common in few passages may be rare in many
            self._shares, self._sampled = {}, total
        held = dict.fromkeys(terms, 0)
        held |= {term: round(share * total) for term, share in common.items()}
        held |= {term: counted.get(written, 0) for written, term in rest.items()}
        return total, held

    def _find_common(self, terms: Sequence[str]) -> Mapping[str, float]:
        """Return which terms are common, and the share of the passages that have each."""
        if not self._sql.sample:
            return {}
        shares = self._shares if len(self._shares) <= MOST_KNOWN else {}
        unknown = {self._engine.write_term(t): t for t in terms if t not in shares}
        if unknown:
            asked = {"asked": self._engine.pack_list(list(unknown)), "sampled": SAMPLED}
            seen: dict[str, int] = dict(self._database.read(self._sql.sample, asked))
            sampled = seen.pop("", 0)
            least = SEEN if 2 * sampled >= SAMPLED else ALL  # of few passages none is common
            found = {
                unknown[written]: count / sampled if count >= least else 0.0
                for written, count in seen.items()
            }
            shares = self._shares = {**shares, **found}  # another thread may have one of its own
        return {term: share for term in terms if (share := shares[term])}

    def find(self, weights: Mapping[str, float], most: int, area: SearchArea) -> Sequence[Hit]:
        """Return up to `most` passages that have the most of these terms, the oldest first.

        Each stands where it was said last.
        """
        asked = {**self._pack_area(area), **self._engine.pack_question(weights), "most": most}
        rows = self._database.read(self._sql.find, asked)
        return [Hit(reference, start, text, 0.0, name) for text, reference, start, name in rows]

    def list_passages(self, area: SearchArea, most: int) -> Sequence[bytes]:
        """Return the hashes of the newest `most` passages of an area, the newest first."""
        rows = self._database.read(self._sql.newest, {**self._pack_area(area), "most": most})
        return [bytes(digest) for (digest,) in rows]

    def read_passages(self, names: Sequence[Hashable], area: SearchArea) -> Mapping[Hashable, Hit]:
        """Return those of these passages that an area holds, each where it stands last."""
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
