"""An index of passages in memory. It grows with the dropped texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from typing import Final, Protocol

from ullage.core.search.passages import cut_passages
from ullage.core.search.ranking import Hit, Index, SearchArea, Similar
from ullage.core.search.terms import list_terms

MEAN: Final = 200
"""Terms of a usual passage; in a longer one the same term is worth less."""


@dataclass(frozen=True, slots=True)
class SearchSource:
    """A searchable text: its name, and the event or record that holds it."""

    reference: str
    text: str
    order: int


class GrowingIndex(Index, Protocol):
    """An index that takes texts in their order."""

    def list_reached(self) -> Mapping[str, int]:
        """Return how far each session is indexed; the originals of a store are under ""."""
        ...

    def take(self, session: str, sources: Iterable[SearchSource], upto: int) -> None:
        """Index the texts of a session up to an event, or of a store up to a record."""
        ...


class MemoryIndex:
    """Passages by their terms."""

    most_looked_at: Final = 4_000
    most_counted: Final = 2**31 - 1

    def __init__(self) -> None:
        self.similar: Similar | None = None
        self._passages: dict[int, tuple[Hit, int]] = {}
        self._lengths: dict[int, int] = {}
        self._postings: dict[str, dict[int, int]] = {}
        self._of: dict[str, list[int]] = {}
        self._reached: dict[str, int] = {}
        self._made = 0

    def list_reached(self) -> Mapping[str, int]:
        """Return how far each session is indexed; the originals of a store are under ""."""
        return self._reached

    def take(self, session: str, sources: Iterable[SearchSource], upto: int) -> None:
        """Index the texts of a session up to an event, or of a store up to a record."""
        for source in sources:
            numbers = self._of.setdefault(source.reference, [])
            for passage in cut_passages(source.text):
                said, number = passage.read(), self._made
                terms = list_terms(said)
                hit = Hit(source.reference, passage.start, said, 0.0, session)
                self._passages[number] = (hit, source.order)
                self._lengths[number] = len(terms)
                self._made += 1
                numbers.append(number)
                for term, times in Counter(terms).items():
                    self._postings.setdefault(term, {})[number] = times
        self._reached[session] = upto

    def forget(self, reference: str) -> None:
        """Remove a text if it is indexed."""
        for number in self._of.pop(reference, ()):
            self._drop(number)

    def forget_session(self, session: str, upto: int) -> None:
        """Remove the texts of a session, and never index its events up to `upto` again."""
        for reference, numbers in list(self._of.items()):
            left = [n for n in numbers if self._passages[n][0].session != session]
            for number in set(numbers).difference(left):
                self._drop(number)
            self._of[reference] = left
        self._reached[session] = upto

    def _drop(self, number: int) -> None:
        hit, _ = self._passages.pop(number)
        del self._lengths[number]
        for term in set(list_terms(hit.text)):
            held = self._postings[term]
            del held[number]
            if not held:
                del self._postings[term]

    def count(self, terms: Sequence[str]) -> tuple[int, Mapping[str, int]]:
        """Return the number of passages, and the number of passages with each term."""
        found = ((term, len(self._postings.get(term, ()))) for term in terms)
        return len(self._passages), dict(found)

    def find(self, weights: Mapping[str, float], most: int, area: SearchArea) -> Sequence[Hit]:
        """Return up to `most` passages that have the most of these terms, the oldest first."""
        scores: dict[int, float] = {}
        for term, weight in weights.items():
            for number, times in islice(
                reversed(self._postings.get(term, {}).items()), self.most_looked_at
            ):
                length = 1 + self._lengths[number] / MEAN
                scores[number] = scores.get(number, 0.0) + weight * times / (times + length)
        allowed = (number for number in scores if area.holds(*self._passages[number]))
        best = sorted(allowed, key=scores.__getitem__, reverse=True)[:most]
        return [self._passages[number][0] for number in sorted(best)]

    def list_passages(self, area: SearchArea, most: int) -> Sequence[bytes]:
        """Return the hashes of the newest `most` passages of an area, the newest first."""
        newest = (hit for hit, order in reversed(self._passages.values()) if area.holds(hit, order))
        return list(islice(dict.fromkeys(map(_digest, newest)), most))

    def read_passages(self, names: Sequence[Hashable], area: SearchArea) -> Mapping[Hashable, Hit]:
        """Return the named passages that an area holds, each at its last position."""
        wanted = set(names)
        named = ((_digest(hit), hit, order) for hit, order in self._passages.values())
        return {n: hit for n, hit, order in named if n in wanted and area.holds(hit, order)}


def _digest(hit: Hit) -> bytes:
    """Return the name of a passage: it reveals nothing of an erased text."""
    return blake2b(hit.text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


class JointIndex:
    """Two indexes searched as one: passages of both are counted and weighed alike.

    The second one has the newer passages.
    """

    def __init__(self, first: Index, second: Index) -> None:
        self._first, self._second = first, second
        self.similar = first.similar
        self.most_looked_at = min(first.most_looked_at, second.most_looked_at)
        self.most_counted = min(first.most_counted, second.most_counted)

    def count(self, terms: Sequence[str]) -> tuple[int, Mapping[str, int]]:
        """Return the number of passages, and the number of passages with each term."""
        (some, held), (more, newer) = self._first.count(terms), self._second.count(terms)
        return some + more, {term: held[term] + newer[term] for term in terms}

    def find(self, weights: Mapping[str, float], most: int, area: SearchArea) -> Sequence[Hit]:
        """Return up to `most` passages of each index that have the most of these terms."""
        found = self._first.find(weights, most, area)
        return [*found, *self._second.find(weights, most, area)]

    def list_passages(self, area: SearchArea, most: int) -> Sequence[Hashable]:
        """Return the names of the newest `most` passages of an area, the newest first."""
        newer = self._second.list_passages(area, most)
        return [*newer, *self._first.list_passages(area, most)][:most]

    def read_passages(self, names: Sequence[Hashable], area: SearchArea) -> Mapping[Hashable, Hit]:
        """Return the named passages that an area holds, each at its last position."""
        first = self._first.read_passages(names, area)
        return {**first, **self._second.read_passages(names, area)}
