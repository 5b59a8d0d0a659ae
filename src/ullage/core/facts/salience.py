"""Weigh how much a segment of a conversation is worth keeping, by language-independent evidence.

Numbers and names have worth, and rare words up to a limit: small talk has as many of them as a
fact. Repeated turns of phrase have little worth. Words that later messages repeat were worth
keeping. A person's words come before a model's answers. For tool results and pasted text, only
repeated words have worth, because such text is data and may ask to be kept. This module chooses
nothing and knows no tokens.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise, repeat
from math import exp, log
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from ullage.core.facts import cues
from ullage.core.facts.answers import list_answers
from ullage.core.facts.patterns import LatePattern
from ullage.core.facts.segments import (
    GAP,
    LONGEST,
    Segment,
    WordTable,
    cut_line,
    cut_message,
    find_lines,
    find_words,
    list_texts,
    split_sentences,
)
from ullage.core.facts.sentences import grade, grade_data
from ullage.core.facts.sheet import parse
from ullage.core.facts.weights import LEARNED
from ullage.core.messages.transcript import FINDING, asks, summarises

if TYPE_CHECKING:
    from ullage.core.facts.weights import Weights
    from ullage.core.messages.transcript import Message

Author = Literal["user", "assistant", "tool"]

OFTEN: Final = (6, 0.05)
"""A pair of words is a turn of phrase if this many messages have it: at least a number, and at
least a share of all messages."""

FIRST: Final = -1_000_000
"""The position for words said before the first message."""


class Valued(NamedTuple):
    """A segment, the position of its message and its own in it, its author, and its worth.

    `rare` are the words that identify another segment with the same content.
    """

    segment: Segment
    message: int
    place: int
    author: Author
    worth: float
    rare: frozenset[str]


@dataclass(slots=True, eq=False)
class _Word:
    """Data about a word as written, for all its occurrences.

    `worth` is 1 for a word in one message, 0 for a word in all. `used` is the same for a word that
    a later message repeats, because that repetition does not make it common. `form` is its written
    form: a capital letter counts if people and models never write the word in small letters. `last`
    is the last message of a person or model with this rare name or number. It is -1 if it is no
    such word, is in only one message, or is a small number, which repeats by chance. `mark`
    identifies a segment, "" for a word that is too common. All spellings of a word of letters alone
    share one object.
    """

    lower: str
    worth: float
    used: float
    form: int
    last: int
    mark: str


PLAIN: Final = 0
NUMBER: Final = 1
SIGNED: Final = 2
CAPITAL: Final = 3
"""Forms of words: letters alone, with a digit, with a sign inside, with a capital letter."""


LEAST_LONG: Final = 3
"""A repeated number counts only with this many characters: 15 days are not 15 MB."""


class _Words(dict[str, _Word]):
    """Words as written, each analysed when first requested.

    `spread` has the number of messages with each word, out of `number` messages. `last` has the
    last message of a person or a model with a word. `small` has the words that occur in small
    letters. `power` is the exponent for rarity.
    """

    def __init__(self, power: float) -> None:
        self.power = power
        self.spread: Counter[str] = Counter()
        self.last: dict[str, int] = {}
        self.small: set[str] = set()
        self.number = 0
        self._plain: dict[str, _Word] = {}
        self._rarities: dict[int, tuple[float, float]] = {}

    def __missing__(self, word: str) -> _Word:
        lower = word.casefold()
        form = self._find_form(word, lower)
        if not form:
            known = self[word] = self._find_plain(lower)
            return known
        spread = self.spread[lower]
        rarity, worth = self._find_rarity(spread)
        rare = rarity > _COMMON / 2  # a name or a number counts twice
        chance = form == NUMBER and len(word) < LEAST_LONG
        last = self.last.get(lower, -1) if rare and spread > 1 and not chance else -1
        mark = NAMED + lower if rare else ""
        used = self._find_rarity(spread - 1)[1]
        known = self[word] = _Word(lower, worth, used, form, last, mark)
        return known

    def may_tell(self, lower: str) -> bool:
        """Tell whether a word without its case may count as repeated, in any spelling.

        It must be rare, be in two messages or more, and not be a small number.
        """
        spread = self.spread[lower]
        if spread < 2 or self._find_rarity(spread)[0] <= _COMMON / 2:
            return False
        short = len(lower) < LEAST_LONG and lower.isascii()
        return not (short and not lower.isalpha() and _has_digit(lower))

    def list_known(self, words: Sequence[str]) -> list[_Word]:
        """Return the data of a segment's words, ignoring a capital letter at its start."""
        known = list(map(self.__getitem__, words))
        if known[0].form == CAPITAL:
            known[0] = self._find_plain(known[0].lower)
        return known

    def _find_plain(self, lower: str) -> _Word:
        known = self._plain.get(lower)
        if known is None:
            rarity, worth = self._find_rarity(self.spread.get(lower, 0))
            mark = lower if rarity > _COMMON else ""
            known = self._plain[lower] = _Word(lower, worth, worth, PLAIN, -1, mark)
        return known

    def _find_rarity(self, spread: int) -> tuple[float, float]:
        """Return the rarity of a word in so many messages, and its worth for that."""
        known = self._rarities.get(spread)
        if known is None:
            whole = log(self.number + 1.0) or 1.0
            rarity = max(1.0 - log(max(spread, 1)) / whole, 0.0)
            known = self._rarities[spread] = (rarity, rarity**self.power)
        return known

    def _find_form(self, word: str, lower: str) -> int:
        if word.isalpha():
            return CAPITAL if word[0].isupper() and lower not in self.small else PLAIN
        return NUMBER if _has_digit(word) else SIGNED


class WordSpread:
    """The number of messages with each word, and its last message of a person or a model.

    Data of the first messages is reused from `before`.
    """

    def __init__(
        self,
        messages: Sequence[Message],
        learned: Weights = LEARNED,
        before: WordSpread | None = None,
    ) -> None:
        self.learned = learned
        self.shares = {"user": 1.0, "assistant": learned.assistant, "tool": learned.tool}
        self.words = words = _Words(learned.rarity)
        self.pairs = Counter[tuple[str, str]]()
        self.size = len(messages)
        if before is not None:
            self._go_on(before)
        self._read(messages, 0 if before is None else before.size)
        self._often = max(OFTEN[0], OFTEN[1] * words.number)
        most = self._often - 1
        self._worn = {pair: min(n - 1, most) for pair, n in self.pairs.items() if n > 1}
        small = words.small
        self._names = frozenset(w for w in words.last if not w.isalpha() or w not in small)
        self._telling = frozenset(filter(words.may_tell, self._names))

    def _go_on(self, before: WordSpread) -> None:
        """Take over the data of the first messages."""
        words, known = self.words, before.words
        words.number, words.spread = known.number, known.spread.copy()
        words.last, words.small = known.last.copy(), known.small.copy()
        self.pairs = before.pairs.copy()

    def _read(self, messages: Sequence[Message], begun: int) -> None:
        """Add the words of messages from a position on."""
        words, table = self.words, WordTable()
        found = [_list_turns(message, table) for message in messages[begun:]]
        turns = list(chain.from_iterable(found))
        words.number += len(turns)
        words.spread.update(chain.from_iterable([said for said, _, _, _ in turns]))
        words.small.update(*[small for _, _, small, _ in turns if small])
        for index, told in enumerate(found, begun):
            for _, own, _, _ in told:
                if own:
                    words.last.update(dict.fromkeys(own, index))
        self.pairs.update(chain.from_iterable([pairs for _, _, _, pairs in turns if pairs]))

    def judge_wear(self, words: Sequence[str]) -> float:
        """Return how worn words are: 0 if no two occur together elsewhere, 1 if all often do."""
        pairs = len(words) - 1
        if pairs < 1:
            return 0.0
        found = sum(map(self._worn.get, pairwise(words), repeat(0)))
        return found / (self._often - 1) / pairs

    def is_taken_up(self, words: Sequence[str], place: int) -> bool:
        """Tell whether a person or a model uses a rare name or number of these words later."""
        known = self.words
        for number, word in enumerate(map(known.__getitem__, words)):
            if word.last > place and (number or word.form != CAPITAL):
                return True
        return False

    def list_taken_up(self, message: Message, place: int) -> frozenset[str]:
        """Return the words of a message that are used as names or numbers later.

        Most tool messages have no such words.
        """
        last, names = self.words.last, self._names
        turns = _list_turns(message, WordTable())
        found = chain.from_iterable([names.intersection(said) for said, _, _, _ in turns])
        return frozenset([word for word in found if last[word] > place])

    def list_telling(self, words: frozenset[str]) -> frozenset[str]:
        """Return the words that are rare enough to count as repeated."""
        return self._telling & words


LEAST_WORDS: Final = 2
"""A segment with fewer words and no number is worth nothing."""


def _has_digit(word: str) -> bool:
    if word.isascii():
        return any(map(word.__contains__, "0123456789"))  # a word of data may be long
    return any(map(str.isdigit, word))


_Turn = tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...], tuple[tuple[str, str], ...]]
"""The distinct words of one author in a message; the words of people and models; the words of these
in small letters; their pairs.

Tuples of strings take a quarter of the memory of sets, and the garbage collector stops tracking
plain ones after its second pass."""


def _list_turns(message: Message, table: WordTable) -> Sequence[_Turn]:
    """Return the words and pairs of words of each author in a message; computed once for each.

    A block has a line for each earlier message. Known words are taken from `table`, so that each
    word is in memory once and compares fast.
    """
    known: _Turn | list[_Turn] | None = message.memo.get(_KEY)
    if known is None:
        if summarises(message):
            held = parse(message.text)[0]
            lines = [
                (author, line) for author, name in WORDS.items() for line in getattr(held, name)
            ]
            known = [_list_words(author, cut_line(line), table) for author, line in lines]
        else:
            known = _read_message(message, table)
        message.memo[_KEY] = known
    return known if isinstance(known, list) else (known,)


WORDS: Final[Mapping[Author, str]] = {"user": "said", "assistant": "found", "tool": "results"}
"""The sections of a block that hold words, by author."""


def _read_message(message: Message, table: WordTable) -> _Turn:
    """Return the words of a message; only a person's words give pairs."""
    author = find_author(message)
    if author == "user":
        return _list_words(author, cut_message(message), table)
    text = "\n".join(list_texts(message))
    if author == "tool":
        return tuple(table.fold(text)), (), (), ()
    found = table.collect(text)
    words = table.fold_words(found)
    own = tuple(words)
    return own, own, tuple(words & found), ()


def _list_words(author: Author, segments: Iterable[Segment], table: WordTable) -> _Turn:
    own: set[str] = set()
    others: set[str] = set()
    small: set[str] = set()
    pairs: set[tuple[str, str]] = set()
    for segment in segments:
        lower = table.fold_all(segment.words)
        if segment.origin == "typed" and author != "tool":
            own.update(lower)
            small.update(filter(str.islower, segment.words))
            pairs.update(pairwise(lower))
        else:
            others.update(lower)
    mine = tuple(own)
    return (*mine, *others.difference(own)) if others else mine, mine, tuple(small), tuple(pairs)


_KEY: Final = FINDING + "vocabulary"


def find_author(message: Message) -> Author:
    """Return the author of a message; a user message that no person wrote counts as a tool's.

    A person's answer to a tool counts as theirs (`note_answer`).
    """
    if message.role == "assistant":
        return "assistant"
    return "user" if asks(message) or list_answers(message) else "tool"


def weigh(messages: Sequence[Message], place: int, spread: WordSpread) -> Iterator[Valued]:
    """Yield the segments of the message at a position with their worth."""
    author = find_author(messages[place])
    number, segments = _list_segments(messages, place, author, spread)
    learned = spread.learned
    bulk = spread.shares[author] / (1 + number / learned.bulk) ** 0.5
    if author == "assistant" and _reports(messages, place):
        bulk *= learned.report
    for at, whole in segments:
        data = author == "tool" or whole.origin != "typed"
        if data and not spread.is_taken_up(whole.words, place):
            continue
        segment, told = _drop_worn(whole, spread) if author == "user" else (whole, ())
        worth, rare = _weigh_segment(segment, place, spread)
        if worth > 0:
            share = bulk * _judge_origin(segment, told, learned)
            yield Valued(segment, place, at, author, worth * share, rare)


def _reports(messages: Sequence[Message], place: int) -> bool:
    """Tell whether a model reports the result of its work with tools: it calls no tool any more."""
    if messages[place].calls or not place:
        return False
    return find_author(messages[place - 1]) == "tool"


def _list_segments(
    messages: Sequence[Message], place: int, author: Author, spread: WordSpread
) -> tuple[int, Iterable[tuple[int, Segment]]]:
    """Return the number of segments of a message, and those that may have worth, with numbers."""
    message = messages[place]
    if author == "tool":
        later = spread.list_taken_up(message, place)
        if not later:
            return 0, ()
        telling = spread.list_telling(later)
        number, likely = find_lines(message, telling)
        return number, [line for line in likely if not _has_none(line[1], telling)]
    segments = cut_message(message)
    if author == "user" and len(segments) == 1:
        segments = [_add_question(segments[0], messages[place - 1] if place else None)]
    return len(segments), enumerate(segments)


def _has_none(segment: Segment, words: frozenset[str]) -> bool:
    """Tell whether a segment has none of these words of its message: most lines of data do not.

    A cut segment always may, because its last word may be cut too.
    """
    return len(segment.text) < LONGEST and words.isdisjoint(map(str.casefold, segment.words))


BEGS: Final = 3
"""A line of unused data is left out as an order if its cues are worth this much."""


class ResultLine(NamedTuple):
    """A line of a tool result: its number, its worth, and whether it is used later."""

    number: int
    text: str
    worth: float
    used: bool


def weigh_result(lines: Iterable[Segment], place: int, spread: WordSpread) -> Iterator[ResultLine]:
    """Yield the lines of a tool result with their worth; `place` is the position of its message."""
    for number, segment in enumerate(lines):
        worth, _ = _weigh_segment(segment, place, spread)
        if worth > 0:
            used = spread.is_taken_up(segment.words, place)
            yield ResultLine(number, segment.text, worth, used)


def gives_orders(text: str, *, used: bool) -> bool:
    """Tell whether a line of data asks to be kept.

    A line that is used later only counts if its orders are clear. Without this check, a line of
    orders would return because of one repeated word.
    """
    return grade_data(text) > (BEGS if used else BEGS - 1)


def _judge_origin(segment: Segment, sentences: Sequence[str], learned: Weights) -> float:
    """Return the factor for a person's segment by its origin and its cues.

    Without `sentences` a model or a tool wrote it.
    """
    if not sentences:
        return 1.0
    if segment.origin == "typed":
        sure = max(map(grade, sentences))
        share = learned.denial if not segment.question and _denies(segment) else 1.0
        return float(share * learned.cue ** (min(max(sure - UNSURE, 0), SURE) / 2))
    return learned.pasted if segment.is_quoted else learned.document


def _denies(segment: Segment) -> bool:
    """Tell whether a segment denies or forbids something."""
    lower = map(str.casefold, segment.words)
    if segment.text.isascii():
        return not cues.DENYING.isdisjoint(lower)
    if not cues.DENYING.isdisjoint(word.replace("\u2019", "'") for word in lower):
        return True
    return cues.DENYING_UNSPACED.search(segment.text) is not None


UNSURE: Final = 2
"""Cues of a sentence up to this worth mean nothing: small talk has as many."""

SURE: Final = 4
"""Cues above it count up to this worth; more add nothing."""


def _add_question(answer: Segment, before: Message | None) -> Segment:
    """Return a short answer with the question before it; any other segment is unchanged."""
    if len(answer.text) > ANSWER_MOST or answer.question:
        return answer
    if before is None or before.role != "assistant":
        return answer
    asked = cut_message(before)
    if not asked or not asked[-1].question or len(asked[-1].text) > QUESTION_MOST:
        return answer
    text = f"{answer.text}{ASKED}{asked[-1].text})"
    return answer._replace(text=text, words=(*answer.words, *asked[-1].words))


ANSWER_MOST: Final = 60
"""A turn with at most this many characters says little without the question before it."""

QUESTION_MOST: Final = 200
"""Characters of a question that is kept with its answer."""


def weigh_lines(
    lines: Sequence[str], author: Author, spread: WordSpread, first: int = FIRST
) -> Iterator[Valued]:
    """Yield the segments of lines that outlived their messages; they stand before all others.

    `first` is the position of the first line.
    """
    for number, line in enumerate(lines, first):
        for place, whole in _list_places(line):
            segment, told = _drop_worn(whole, spread) if author == "user" else (whole, ())
            worth, rare = _weigh_segment(segment, -1, spread)
            share = spread.shares[author] * _judge_origin(segment, told, spread.learned)
            yield Valued(segment, number, place, author, worth * share, rare)


def _list_places(line: str) -> Iterator[tuple[int, Segment]]:
    """Yield the segments of a line with their places; a gap in it takes one."""
    place = 0
    for piece in line.split(GAP):
        for segment in cut_line(piece):
            yield place, segment
            place += 1
        place += 1


def _drop_worn(segment: Segment, spread: WordSpread) -> tuple[Segment, Sequence[str]]:
    """Return a segment without sentences that are only turns of phrase, and its sentences."""
    sentences = split_sentences(segment.text)
    if len(sentences) < 2 or segment.is_quoted:
        return segment, sentences
    kept = [text for text in sentences if not _is_worn(text, spread)]
    if len(kept) == len(sentences):
        return segment, sentences
    text = " ".join(kept)
    left = segment._replace(text=text, words=tuple(find_words(text)))
    return left, split_sentences(text)


def _is_worn(text: str, spread: WordSpread) -> bool:
    return spread.judge_wear([word.casefold() for word in find_words(text)]) >= 1.0


def _weigh_segment(
    segment: Segment, index: int, spread: WordSpread
) -> tuple[float, frozenset[str]]:
    """Return the worth of a segment in the message at a position, and its rare words.

    Names and numbers among these are marked.
    """
    words = _list_known(segment, spread)
    if not words:
        return 0.0, _NO_WORDS
    learned, known = spread.learned, dict.fromkeys(words)
    named = [word for word in known if word.form]
    plain = [word.worth for word in known if not word.form]
    worth = learned.plain * (1.0 - exp(-sum(plain) / learned.plain))
    if named:
        worth = _add_named(worth, named, index, learned)
    if segment.question:
        worth *= 1.0 - (1.0 - learned.question) * _find_asked(segment)
    if segment.origin != "quoted":
        worth *= 1.0 - learned.worn * spread.judge_wear([word.lower for word in words]) ** 2
    return worth, _list_rare(known, named)


_NO_WORDS: Final = frozenset[str]()


def _list_rare(known: Iterable[_Word], named: Sequence[_Word]) -> frozenset[str]:
    """Return the marks of words; a name at the start of a sentence is not a plain word too."""
    rare = {word.mark for word in known}
    rare.discard("")
    if named:
        rare.difference_update([word.lower for word in named])
    return frozenset(rare)


def _list_known(segment: Segment, spread: WordSpread) -> list[_Word]:
    """Return the data of a segment's words, [] if they say nothing."""
    words = segment.words
    if len(words) < LEAST_WORDS and not any(map(_has_digit, words)):
        return []
    return spread.words.list_known(words)


ASKED: Final = " (asked: "
"""Text between an answer and its question; a bracket closes it."""


def _find_asked(segment: Segment) -> float:
    """Return the share of a question's words that ask: those of its last clause.

    The clauses before it state something: "my sister moved to Porto, what is the city like?"
    """
    asked = _CLAUSE.split(segment.text.rstrip(_ENDS))[-1]
    return min(len(find_words(asked)) / len(segment.words), 1.0)


_CLAUSE: Final = LatePattern(
    r"[,;:.!](?=\s)|[\u2014\u060c\u061b\u0964\u3001\u3002\uff01\uff0c\uff1a\uff1b]|\s[\u2013-]\s"
)
"""The end of a clause, in scripts with spaces and without."""

_ENDS: Final = "?!.\u061f\uff1f \"'”»)"


def _add_named(worth: float, words: Iterable[_Word], index: int, learned: Weights) -> float:
    """Return a worth with names and numbers added: the best ones of each form count."""
    told: dict[int, dict[str, float]] = {}
    for word in words:
        share = word.used * learned.taken_up if word.last > index else word.worth
        told.setdefault(word.form, {})[word.lower] = share
    weights = {NUMBER: learned.number, SIGNED: learned.signed, CAPITAL: learned.name}
    for form in sorted(told):
        worth += weights[form] * sum(sorted(told[form].values())[-MOST_NAMED:])
    return worth


MOST_NAMED: Final = 3
"""Names, or numbers, of a segment that count: a longer list is not better."""

NAMED: Final = "="
"""Prefix of a rare word that is a name or a number: with another one, the content differs."""

_COMMON: Final = 0.35
"""Words with a lower weight do not identify a segment."""
