"""The words of a history with their worth: worked out once, and kept with its first message.

A history that grew, or is compacted again, goes on from there. It chooses nothing and fills no
room.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import filterfalse
from operator import is_
from typing import TYPE_CHECKING, Final, NamedTuple

from ullage.core.facts.answers import note_answer
from ullage.core.facts.extract import Folds
from ullage.core.facts.salience import (
    FIRST,
    WORDS,
    WordSpread,
    find_author,
    gives_orders,
    weigh,
    weigh_lines,
    weigh_result,
)
from ullage.core.facts.segments import cut_message, cut_part, split_sentences
from ullage.core.facts.sheet import UNKNOWN
from ullage.core.facts.weights import LEARNED
from ullage.core.messages.transcript import FINDING, summarises

if TYPE_CHECKING:
    from ullage.core.facts.salience import Author, ResultLine, Valued
    from ullage.core.facts.sheet import Facts
    from ullage.core.facts.weights import Weights
    from ullage.core.messages.transcript import Message

LOOKED_AT: Final = 2_000
"""Of so many messages that go, the newest, what nobody typed is looked at: a transcript of
300,000 tokens has as many (`bench/transcript.py`)."""

FRAME: Final = 2.0
"""Tokens that a segment takes besides its own: its bullet, or its gap."""

BYTES: Final = 4.2
"""Bytes of UTF-8 that a token has about: 3.9 to 4.2 of English, German, Chinese and Japanese by
o200k_base, up to 7 of Hindi and Arabic. For the order, and for how much room is kept."""


class _Findings:
    """What was worked out of a history, all but of its first message, which keeps it.

    It holds no first message: so both go at once. Nothing in it depends on who asks.
    """

    def __init__(self, rest: tuple[Message, ...]) -> None:
        self.rest = rest
        self.folds = Folds()
        self.authors: tuple[Author, ...] = ()
        self.blocks: frozenset[int] = frozenset()
        self.vocabulary: WordSpread | None = None
        self.begun: WordSpread | None = None
        self.typed: dict[int, tuple[RestWords, ...]] = {}
        self.known: dict[int, tuple[Sequence[Valued], Sequence[Candidate]]] = {}
        self.results: dict[tuple[int, int], tuple[ResultLine, ...]] = {}
        self.lines: dict[Author, tuple[Sequence[str], tuple[Valued, ...]]] = {}

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        """Stay in this process: elsewhere it is worked out again."""
        return type(None), ()

    def is_begun_by(self, rest: tuple[Message, ...]) -> bool:
        """Tell whether these are the messages, and perhaps more behind them."""
        return len(self.rest) <= len(rest) and all(map(is_, self.rest, rest))

    def grow(self, rest: tuple[Message, ...]) -> _Findings:
        """Return what holds of it for a history that goes on.

        Worth does not: with each message words are spread otherwise.
        """
        made = _Findings(rest)
        made.folds, made.typed = self.folds.copy(), dict(self.typed)
        made.authors, made.blocks = self.authors, self.blocks
        made.begun = self.vocabulary or self.begun
        return made

    def note_authors(self, messages: Sequence[Message]) -> None:
        """Note who wrote the messages, and which of them stand for others."""
        begun = len(self.authors)
        first = begun
        while 0 < first < len(messages) and messages[first].results:  # to the call of a result
            first -= 1
        asked: dict[str, bool] = {}
        for message in messages[first:]:
            note_answer(message, asked)
        new = messages[begun:]
        blocks = [number for number, message in enumerate(new, begun) if summarises(message)]
        self.blocks = self.blocks.union(blocks)
        self.authors = (*self.authors, *map(find_author, new))


_KEY: Final = FINDING + "words"


def _find_findings(messages: Sequence[Message]) -> _Findings:
    """Return what was worked out of these messages, or of the first ones of them."""
    rest = tuple(messages[1:])
    known: _Findings | None = messages[0].memo.get(_KEY) if messages else None
    if known is None or not known.is_begun_by(rest):
        made = _Findings(rest)
    elif len(known.rest) == len(rest):
        return known
    else:
        made = known.grow(rest)
    made.note_authors(messages)
    if messages:
        messages[0].memo[_KEY] = made
    return made


class WordStore:
    """The segments of a history with their worth, worked out once for each message.

    What was worked out of the same messages before is used again. `aside` are rules and tasks that
    a block among the messages had no room for.
    """

    def __init__(self, messages: Sequence[Message], aside: Facts = UNKNOWN) -> None:
        self._messages = messages
        self.aside = aside
        self._findings = _find_findings(messages)

    @property
    def vocabulary(self) -> WordSpread:
        """How the words of the history are spread."""
        held = self._findings
        if held.vocabulary is None:
            held.vocabulary = WordSpread(self._messages, before=held.begun)
        return held.vocabulary

    @property
    def authors(self) -> Sequence[Author]:
        """Who wrote each message."""
        return self._findings.authors

    @property
    def blocks(self) -> frozenset[int]:
        """Where messages stand for others that were left out."""
        return self._findings.blocks

    def collect(self, places: Sequence[int], earlier: Facts) -> tuple[Facts, frozenset[str]]:
        """Return the facts of the messages at these places, as `collect_held` does."""
        return self._findings.folds.collect_held(self._messages, tuple(places), earlier)

    def find_said(self, places: Iterable[int]) -> Iterator[Valued]:
        """Yield people's own words in the messages at these places."""
        authors = self.authors
        for place in places:
            if authors[place] == "user":
                yield from self._weigh(place)[0]

    def find_others(self, places: Iterable[int]) -> Iterator[Candidate]:
        """Yield what models answered, tools returned and people pasted at these places.

        Of more than `LOOKED_AT` places it is that of the last ones: the others are far away.
        """
        for place in [*places][-LOOKED_AT:]:
            yield from self._weigh(place)[1]

    def list_typed(self, places: Sequence[int]) -> Iterator[RestWords]:
        """Yield all sentences that people typed at these places, the newest message first."""
        authors = self.authors
        for place in reversed(places):
            if authors[place] == "user":
                yield from self._list_sentences(place)

    def _list_sentences(self, message: int) -> tuple[RestWords, ...]:
        """Return the sentences that a person typed in a message, worked out once."""
        known = self._findings.typed.get(message)
        if known is None:
            known = self._findings.typed[message] = tuple(
                RestWords(text, message, place)
                for place, segment in enumerate(cut_message(self._messages[message]))
                if segment.origin == "typed"
                for text in split_sentences(segment.dated_text)
            )
        return known

    def list_data(self, places: Sequence[int]) -> Iterator[RestWords]:
        """Yield what people quoted at these places, the newest message first, but for orders."""
        authors = self.authors
        for message in reversed(places):
            if authors[message] != "user":
                continue
            for place, segment in enumerate(cut_message(self._messages[message])):
                data = segment.origin != "typed"
                if data and not gives_orders(segment.text, used=False):
                    yield RestWords(segment.text, message, place)

    def read(self, facts: Facts, author: Author) -> Iterator[Valued]:
        """Yield words that outlived their messages: they stand before all others."""
        lines = getattr(facts, WORDS[author])
        known = self._findings.lines.get(author)
        if known is None or known[0] != lines:
            found = tuple(weigh_lines(lines, author, self.vocabulary))
            known = self._findings.lines[author] = (lines, found)
        return iter(known[1])

    def read_result(self, place: int, part: int) -> tuple[ResultLine, ...]:
        """Return the lines of what a tool returned, in a part of a message, with their worth."""
        known = self._findings.results.get((place, part))
        if known is None:
            lines = cut_part(self._messages[place], part)
            known = tuple(weigh_result(lines, place, self.vocabulary))
            self._findings.results[place, part] = known
        return known

    def weigh_facts(self, lines: Sequence[str]) -> Iterator[Valued]:
        """Yield people's words that outlived their messages as facts."""
        return weigh_lines(lines, "user", self.vocabulary, 2 * FIRST)

    def _weigh(self, place: int) -> tuple[Sequence[Valued], Sequence[Candidate]]:
        """Return people's own words in a message with their worth, and the lines of all else."""
        known = self._findings.known.get(place)
        if known is None:
            found = tuple(weigh(self._messages, place, self.vocabulary))
            said = tuple(filter(is_said, found)) if self.authors[place] == "user" else ()
            others = tuple(map(make_other, filterfalse(is_said, found) if said else found))
            known = self._findings.known[place] = (said, others) if found else _SILENT
        return known


class Candidate(NamedTuple):
    """What may be told: its section, its text, its worth, and whether it is a person's own word.

    Lines are chosen by their `order`, the least first.
    """

    section: str
    text: str
    worth: float
    said: bool
    message: int
    place: int
    rare: frozenset[str] = frozenset()
    order: float = 0.0


_SILENT: Final[tuple[Sequence[Valued], Sequence[Candidate]]] = ((), ())
"""The words of a message that says nothing."""


def estimate(text: str) -> float:
    """Return about how many tokens a segment takes."""
    size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    return size / BYTES + FRAME


def is_said(valued: Valued) -> bool:
    """Tell whether a segment is a person's own words."""
    return valued.author == "user" and valued.segment.origin == "typed"


def rank(worth: float, text: str, learned: Weights = LEARNED) -> float:
    """Return by what a segment is chosen: its worth for the room that it takes."""
    return float(worth / estimate(text) ** learned.length)


class RestWords(NamedTuple):
    """A sentence that a person typed, its message, and its segment in it."""

    text: str
    message: int
    place: int


def make_other(valued: Valued) -> Candidate:
    """Return the line of a segment that is no person's own word."""
    return make_line(valued, "results" if valued.author == "user" else WORDS[valued.author], 1.0)


def make_line(valued: Valued, section: str, share: float) -> Candidate:
    """Return the line of a segment in a section; its worth counts by a share."""
    text, worth = valued.segment.dated_text, valued.worth * share
    where = (valued.message, valued.place, valued.rare)
    return Candidate(section, text, worth, is_said(valued), *where, -rank(worth, text))
