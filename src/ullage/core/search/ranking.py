"""Rank passages for a query: BM25, and the share of the query that they hold.

Any kind of index narrows the passages down; the order is made here, the same for all.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

from ullage.core.errors import ConfigurationError
from ullage.core.search.terms import STEMMED, list_terms

HITS: Final = 10
"""Hits of a search without a given number."""

MOST_HITS: Final = 100
MOST_TERMS: Final = 64
"""Different words of a query that are searched: the first ones."""

CANDIDATES: Final = 60
"""Passages that an index returns for ranking; for more than ten hits, six per hit."""

RARE: Final = 50
"""If a word has at most this many passages, words with the same beginning are searched too."""

FUSED: Final = 5
"""Added to a rank: the smaller, the more the top of a ranking counts. With the usual 60, passages
that only one ranking finds are buried; 1 to 10 find the same (bench/search.py)."""

K1: Final = 1.2
B: Final = 0.75
"""The constants of BM25 (Robertson and Zaragoza, 2009, 3.5)."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A found passage: `reference` names its text, and `offset` is its first character there.

    `session` is its session in a log, empty for a text of a store. `score` orders the hits of one
    search and cannot be compared with other searches.
    """

    reference: str
    offset: int
    text: str
    score: float
    session: str = ""

    def to_dict(self) -> dict[str, object]:
        """Return the hit as plain data."""
        where = {"session": self.session} if self.session else {}
        found = {"reference": self.reference, "offset": self.offset, **where}
        return {**found, "score": round(self.score, 3), "text": self.text}


@dataclass(frozen=True, slots=True)
class SearchArea:
    """The area of a search: references, and sessions up to an event; `None` means all."""

    references: frozenset[str] | None = None
    sessions: Mapping[str, int] | None = None

    def holds(self, hit: Hit, order: int) -> bool:
        """Tell whether a passage of this event is in the area."""
        if self.references is not None and hit.reference not in self.references:
            return False
        return self.sessions is None or order <= self.sessions.get(hit.session, -1)


EVERYWHERE: Final = SearchArea()


class Passages(Protocol):
    """Passages by name: a hash of their text, or the text; equal texts have one name."""

    def list_passages(self, area: SearchArea, most: int) -> Sequence[Hashable]:
        """Return the names of the newest `most` passages of an area, the newest first."""
        ...

    def read_passages(self, names: Sequence[Hashable], area: SearchArea) -> Mapping[Hashable, Hit]:
        """Return the named passages that an area holds, each at its last position."""
        ...


class Similar(Protocol):
    """Search for passages with the meaning of a query, also in other words."""

    def find(self, passages: Passages, query: str, most: int, area: SearchArea) -> list[Hit]:
        """Return up to `most` passages of an area that are most like a query, the best first."""
        ...


class Index(Passages, Protocol):
    """Passages by their terms.

    `most_looked_at` is the number of passages that a search reads, those with the rarest terms; at
    most `most_counted` for one term. `similar` finds more, if it is turned on.
    """

    similar: Similar | None

    @property
    def most_looked_at(self) -> int:
        """Passages that a search reads."""
        ...

    @property
    def most_counted(self) -> int:
        """Passages of one term that a search reads; a term with more is a common one."""
        ...

    def count(self, terms: Sequence[str]) -> tuple[int, Mapping[str, int]]:
        """Return the number of passages, and the number of passages with each term."""
        ...

    def find(self, weights: Mapping[str, float], most: int, area: SearchArea) -> Sequence[Hit]:
        """Return up to `most` passages that have the most of these terms, the oldest first."""
        ...


def find_hits(
    index: Index, query: str, hits: int = HITS, area: SearchArea = EVERYWHERE
) -> list[Hit]:
    """Return the passages that fit a query best, the best one first.

    `query` is words in any language. Raises ConfigurationError for a query without words and for an
    invalid number of hits.
    """
    if type(hits) is not int or not 1 <= hits <= MOST_HITS:
        raise ConfigurationError(f"hits is a number from 1 to {MOST_HITS}, not {hits!r}")
    words, beginnings = _read_query(query)
    if not words:
        raise ConfigurationError(f"the query {query!r:.80} has no words to look for")
    total, held = index.count(words)
    more = [beginnings[word] for word in words if word in beginnings and held[word] <= RARE]
    held = {**held, **(index.count(more)[1] if more else {})}
    weights = {
        term: math.log(1 + (total - count + 0.5) / (count + 0.5))
        for term, count in held.items()
        if count
    }
    most = max(CANDIDATES, 6 * hits)
    chosen = _choose_rarest(weights, held, index, everywhere=area == EVERYWHERE)
    found = _order(index.find(chosen, most, area), weights) if chosen else []
    if index.similar is not None:
        found = fuse_hits(found, index.similar.find(index, query, most, area))
    return found[:hits]


def fuse_hits(*rankings: Sequence[Hit]) -> list[Hit]:
    """Return the hits of several rankings as one ranking, by their ranks alone.

    Each rank is worth 1 / (FUSED + rank): reciprocal rank fusion (Cormack, Clarke and Buettcher,
    2009).
    """
    worth: dict[str, float] = {}
    hits: dict[str, Hit] = {}
    for ranking in rankings:
        for rank, hit in enumerate(ranking, 1):
            text = _flatten(hit)
            worth[text] = worth.get(text, 0.0) + 1 / (FUSED + rank)
            hits.setdefault(text, hit)
    best = sorted(worth, key=lambda text: -worth[text])
    return [replace(hits[text], score=worth[text]) for text in best]


def _read_query(query: str) -> tuple[list[str], dict[str, str]]:
    """Return the words of a query, each once, and the beginnings of the longer ones."""
    words: dict[str, None] = {}
    beginnings: dict[str, str] = {}
    last = ""
    for term in list_terms(query):
        if term.endswith(STEMMED):
            beginnings[last] = term
        else:
            words[term], last = None, term
    return list(words)[:MOST_TERMS], beginnings


def _choose_rarest(
    weights: Mapping[str, float], held: Mapping[str, int], index: Index, *, everywhere: bool
) -> dict[str, float]:
    """Return the terms to look passages up by: the rarest, at least one.

    Skips a common term if the rarer ones give enough passages to rank. In a limited area their
    number is unknown, so no term is skipped for that.
    """
    chosen: dict[str, float] = {}
    looked = 0
    for term in sorted(weights, key=held.__getitem__):
        common = held[term] > index.most_counted
        if chosen and common and everywhere and looked >= CANDIDATES:
            break
        looked += min(held[term], index.most_counted)
        if chosen and looked > index.most_looked_at:
            break
        chosen[term] = weights[term]
    return chosen


def _order(found: Sequence[Hit], weights: Mapping[str, float]) -> list[Hit]:
    """Return passages ordered by score; each text only once, the newest."""
    distinct = {_flatten(hit): hit for hit in found}.values()
    counted = [(hit, list_terms(hit.text)) for hit in distinct]
    mean = sum(len(terms) for _, terms in counted) / max(len(counted), 1)
    whole = sum(weights.values())
    scored = []
    for hit, terms in counted:
        times = Counter(term for term in terms if term in weights)
        norm = K1 * (1 - B + B * len(terms) / mean)
        sums = sum(weights[t] * n * (K1 + 1) / (n + norm) for t, n in times.items())
        share = sum(weights[t] for t in times) / whole
        scored.append(Hit(hit.reference, hit.offset, hit.text, sums * (1 + share), hit.session))
    return sorted(scored, key=lambda hit: -hit.score)


def _flatten(hit: Hit) -> str:
    """Return the identity of a passage: its words without its spaces."""
    return " ".join(hit.text.split())
