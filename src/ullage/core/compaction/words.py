"""The words of a history with their worth, computed once and kept with its first message.

If the history grows or is compacted again, the work continues from there. This module chooses
nothing and fills no room.
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
"""Only this many of the dropped messages, the newest, are searched for text that nobody typed. A
transcript of 300,000 tokens has about this many (`bench/transcript.py`)."""

FRAME: Final = 2.0
"""Tokens of overhead per segment: its bullet, or its gap."""

BYTES: Final = 4.2
"""Average bytes of UTF-8 per token: 3.9 to 4.2 for English, German, Chinese and Japanese by
o200k_base, up to 7 for Hindi and Arabic. Used for the order, and for the reserved room."""


class _Findings:
    """Results for a history, except its first message, which keeps them.

    It does not refer to the first message, so that both are freed together. Nothing in it depends
    on the caller.
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
        """Stay in this process: another process computes it again."""
        return type(None), ()

    def is_begun_by(self, rest: tuple[Message, ...]) -> bool:
        """Tell whether the messages begin with these, and maybe go on."""
        return len(self.rest) <= len(rest) and all(map(is_, self.rest, rest))

    def grow(self, rest: tuple[Message, ...]) -> _Findings:
        """Return the results that still hold for a longer history.

        Worth does not: each new message changes the frequency of words.
        """
        made = _Findings(rest)
        made.folds, made.typed = self.folds.copy(), dict(self.typed)
        made.authors, made.blocks = self.authors, self.blocks
        made.begun = self.vocabulary or self.begun
        return made

    def note_authors(self, messages: Sequence[Message]) -> None:
        """Note the authors of the messages, and which messages are blocks."""
        begun = len(self.authors)
        first = begun
        while 0 < first < len(messages) and messages[first].results:  # back to the call of a result
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
    """Return the results for these messages, reused if their beginning is known."""
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
    """The segments of a history with their worth, computed once for each message.

    Earlier results for the same messages are reused. `aside` are rules and tasks that did not fit
    into a block among the messages.
    """

    def __init__(self, messages: Sequence[Message], aside: Facts = UNKNOWN) -> None:
        self._messages = messages
        self.aside = aside
        self._findings = _find_findings(messages)

    @property
    def vocabulary(self) -> WordSpread:
        """The frequency of words in the history."""
        held = self._findings
        if held.vocabulary is None:
            held.vocabulary = WordSpread(self._messages, before=held.begun)
        return held.vocabulary

    @property
    def authors(self) -> Sequence[Author]:
        """The author of each message."""
        return self._findings.authors

    @property
    def blocks(self) -> frozenset[int]:
        """The positions of blocks that replaced earlier messages."""
        return self._findings.blocks

    def collect(self, places: Sequence[int], earlier: Facts) -> tuple[Facts, frozenset[str]]:
        """Return the facts of the messages at these positions, as `collect_held` does."""
        return self._findings.folds.collect_held(self._messages, tuple(places), earlier)

    def find_said(self, places: Iterable[int]) -> Iterator[Valued]:
        """Yield people's own words in the messages at these positions."""
        authors = self.authors
        for place in places:
            if authors[place] == "user":
                yield from self._weigh(place)[0]

    def find_others(self, places: Iterable[int]) -> Iterator[Candidate]:
        """Yield model answers, tool results and pasted text at these positions.

        Reads at most the last `LOOKED_AT` positions, because the others are far away.
        """
        for place in [*places][-LOOKED_AT:]:
            yield from self._weigh(place)[1]

    def list_typed(self, places: Sequence[int]) -> Iterator[RestWords]:
        """Yield all sentences that people typed at these positions, the newest message first."""
        authors = self.authors
        for place in reversed(places):
            if authors[place] == "user":
                yield from self._list_sentences(place)

    def _list_sentences(self, message: int) -> tuple[RestWords, ...]:
        """Return the sentences that a person typed in a message, computed once."""
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
        """Yield quoted data at these positions, the newest message first, without orders."""
        authors = self.authors
        for message in reversed(places):
            if authors[message] != "user":
                continue
            for place, segment in enumerate(cut_message(self._messages[message])):
                data = segment.origin != "typed"
                if data and not gives_orders(segment.text, used=False):
                    yield RestWords(segment.text, message, place)

    def read(self, facts: Facts, author: Author) -> Iterator[Valued]:
        """Yield words that outlived their messages; they count as older than all others."""
        lines = getattr(facts, WORDS[author])
        known = self._findings.lines.get(author)
        if known is None or known[0] != lines:
            found = tuple(weigh_lines(lines, author, self.vocabulary))
            known = self._findings.lines[author] = (lines, found)
        return iter(known[1])

    def read_result(self, place: int, part: int) -> tuple[ResultLine, ...]:
        """Return the lines of a tool result, in a part of a message, with their worth."""
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
        """Return people's own words in a message with their worth, and the lines of the rest."""
        known = self._findings.known.get(place)
        if known is None:
            found = tuple(weigh(self._messages, place, self.vocabulary))
            said = tuple(filter(is_said, found)) if self.authors[place] == "user" else ()
            others = tuple(map(make_other, filterfalse(is_said, found) if said else found))
            known = self._findings.known[place] = (said, others) if found else _SILENT
        return known


class Candidate(NamedTuple):
    """A line to choose: its section, text and worth, and whether it is a person's own word.

    Lines are chosen by their `order`, the lowest first.
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
"""The words of a message without segments."""


def estimate(text: str) -> float:
    """Return the approximate number of tokens of a segment."""
    size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    return size / BYTES + FRAME


def is_said(valued: Valued) -> bool:
    """Tell whether a segment is a person's own words."""
    return valued.author == "user" and valued.segment.origin == "typed"


def rank(worth: float, text: str, learned: Weights = LEARNED) -> float:
    """Return the rank of a segment: its worth relative to its size."""
    return float(worth / estimate(text) ** learned.length)


class RestWords(NamedTuple):
    """A sentence that a person typed, its message, and its segment in it."""

    text: str
    message: int
    place: int


def make_other(valued: Valued) -> Candidate:
    """Return the line of a segment that is not a person's own word."""
    return make_line(valued, "results" if valued.author == "user" else WORDS[valued.author], 1.0)


def make_line(valued: Valued, section: str, share: float) -> Candidate:
    """Return the line of a segment in a section; its worth is multiplied by `share`."""
    text, worth = valued.segment.dated_text, valued.worth * share
    where = (valued.message, valued.place, valued.rare)
    return Candidate(section, text, worth, is_said(valued), *where, -rank(worth, text))
