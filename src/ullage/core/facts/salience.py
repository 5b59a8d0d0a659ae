"""What a segment of a conversation is worth keeping, by evidence that needs no language.

Numbers and names carry, and rare words up to a point: small talk has as many of them as a fact.
Turns of phrase that come again carry little; what later messages take up was worth keeping; what
a person wrote comes before what a model answered. Of what
tools returned and people pasted, only what was taken up is worth anything: it is data, and may ask
to be kept. It chooses nothing and knows no tokens.
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
"""Messages in which a pair of words has come before it is a turn of phrase: so many, and so large
a share of them all."""

FIRST: Final = -1_000_000
"""Stands for the position of what was said before the first message."""


class Valued(NamedTuple):
    """A segment, the position of its message and of itself in it, who wrote it, and its worth.

    `rare` are the words by which another segment may say the same.
    """

    segment: Segment
    message: int
    place: int
    author: Author
    worth: float
    rare: frozenset[str]


@dataclass(slots=True, eq=False)
class _Word:
    """What is known of a word as written, wherever it stands.

    `worth` is 1 for one that stands in one message, 0 for one that stands in all; `used` is the
    same where a later message takes it up, which makes it no commoner. `form` is what it is as it
    is written: a capital letter counts where people and models use no small one. `last` is where
    one of them uses a rare name or number last (-1: it is none, stands in one message alone, or is
    a small number, which comes again by chance). `mark` is by what it tells a segment apart, ""
    where it is too common. A word of letters alone is one object however it is written.
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
"""Forms of words: of letters alone, with a digit, with a sign within, with a capital letter."""


LEAST_LONG: Final = 3
"""Characters of a number that is taken up by who says it again: 15 days are not 15 MB."""


class _Words(dict[str, _Word]):
    """Words as written, each looked at when it is asked for first.

    `spread` has in how many of `number` messages a word stands, `last` where one that a person or a
    model uses stands last, `small` which words stand without a capital letter. A rarity counts by
    `power`.
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
        """Tell whether a word without its case may be one that is taken up, however it is written.

        It is rare, it stands in two messages or more, and is no small number.
        """
        spread = self.spread[lower]
        if spread < 2 or self._find_rarity(spread)[0] <= _COMMON / 2:
            return False
        short = len(lower) < LEAST_LONG and lower.isascii()
        return not (short and not lower.isalpha() and _has_digit(lower))

    def list_known(self, words: Sequence[str]) -> list[_Word]:
        """Return what is known of the words of a segment: it begins with a capital letter."""
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
        """Return how rare a word is that stands in so many messages, and its worth for that."""
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
    """In how many messages each word stands, and in which of a person or a model it does last.

    What is known of the first messages `before` is gone on with.
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
        """Take over what is known of the first messages."""
        words, known = self.words, before.words
        words.number, words.spread = known.number, known.spread.copy()
        words.last, words.small = known.last.copy(), known.small.copy()
        self.pairs = before.pairs.copy()

    def _read(self, messages: Sequence[Message], begun: int) -> None:
        """Note the words of messages from a place on."""
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
        """Return how worn words are: 0 if no two stand together elsewhere, 1 if all often do."""
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

        Most messages of tools have none.
        """
        last, names = self.words.last, self._names
        turns = _list_turns(message, WordTable())
        found = chain.from_iterable([names.intersection(said) for said, _, _, _ in turns])
        return frozenset([word for word in found if last[word] > place])

    def list_telling(self, words: frozenset[str]) -> frozenset[str]:
        """Return those of some words that are rare enough to be taken up."""
        return self._telling & words


LEAST_WORDS: Final = 2
"""Words below which a segment without a number says nothing."""


def _has_digit(word: str) -> bool:
    if word.isascii():
        return any(map(word.__contains__, "0123456789"))  # a word of data may be long
    return any(map(str.isdigit, word))


_Turn = tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...], tuple[tuple[str, str], ...]]
"""Which words somebody says in a message, each once; those of people and models; those of them
that stand without a capital letter; the pairs of these.

Tuples of strings take a quarter of the memory of sets, and the collector passes over plain ones:
over those in a tuple from its second look on.
"""


def _list_turns(message: Message, table: WordTable) -> Sequence[_Turn]:
    """Return who says which words and pairs of words in a message; worked out once for each.

    A block that stands for earlier messages has a line for each of them. The words are taken from
    `table` where they stand in it: so a word takes its memory once, and is told apart at once.
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
"""The sections of a block that hold words, by who wrote them."""


def _read_message(message: Message, table: WordTable) -> _Turn:
    """Return the words of a message; pairs are read of what a person wrote alone."""
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
    """Return who wrote a message; what no person wrote in the role of a user is a tool's.

    What a person answered to a tool is theirs (`note_answer`).
    """
    if message.role == "assistant":
        return "assistant"
    return "user" if asks(message) or list_answers(message) else "tool"


def weigh(messages: Sequence[Message], place: int, spread: WordSpread) -> Iterator[Valued]:
    """Yield the segments of the message at a place with their worth."""
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
    """Tell whether a model says what its work with tools came to: it calls none any more."""
    if messages[place].calls or not place:
        return False
    return find_author(messages[place - 1]) == "tool"


def _list_segments(
    messages: Sequence[Message], place: int, author: Author, spread: WordSpread
) -> tuple[int, Iterable[tuple[int, Segment]]]:
    """Return how many segments a message has, and those with their numbers that may have worth."""
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

    The last word of one that was cut off is none of its message.
    """
    return len(segment.text) < LONGEST and words.isdisjoint(map(str.casefold, segment.words))


BEGS: Final = 3
"""The worth of cues from which on a line of data that nobody used gives orders, and is left out."""


class ResultLine(NamedTuple):
    """A line of what a tool returned: its number, its worth, and whether it is used later."""

    number: int
    text: str
    worth: float
    used: bool


def weigh_result(lines: Iterable[Segment], place: int, spread: WordSpread) -> Iterator[ResultLine]:
    """Yield the lines of what a tool returned with their worth; `place` is that of its message."""
    for number, segment in enumerate(lines):
        worth, _ = _weigh_segment(segment, place, spread)
        if worth > 0:
            used = spread.is_taken_up(segment.words, place)
            yield ResultLine(number, segment.text, worth, used)


def gives_orders(text: str, *, used: bool) -> bool:
    """Tell whether a line of data begs to be kept; of one that is used later that must be plain.

    It would otherwise come back for one word that is said again.
    """
    return grade_data(text) > (BEGS if used else BEGS - 1)


def _judge_origin(segment: Segment, sentences: Sequence[str], learned: Weights) -> float:
    """Return what a person's segment counts by whence it comes, and what it sounds like.

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
    """Tell whether a segment says what is not so, or is not to be."""
    lower = map(str.casefold, segment.words)
    if segment.text.isascii():
        return not cues.DENYING.isdisjoint(lower)
    if not cues.DENYING.isdisjoint(word.replace("\u2019", "'") for word in lower):
        return True
    return cues.DENYING_UNSPACED.search(segment.text) is not None


UNSURE: Final = 2
"""What the cues of a sentence are worth up to which they tell nothing: small talk has as many."""

SURE: Final = 4
"""The worth of cues above it beyond which more of them tell no more."""


def _add_question(answer: Segment, before: Message | None) -> Segment:
    """Return a short answer with the question before it; any other segment as it is."""
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
"""Characters of a turn that says little without the question before it."""

QUESTION_MOST: Final = 200
"""Characters of a question that is told with its answer."""


def weigh_lines(
    lines: Sequence[str], author: Author, spread: WordSpread, first: int = FIRST
) -> Iterator[Valued]:
    """Yield the segments of lines that outlived their messages, which stand before all others.

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
    """Return a segment without its sentences that are turns of phrase through and through.

    With it come its sentences.
    """
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

    Among these, names and numbers are marked as such.
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
    """Return the marks of words; at the head of a sentence a name is no other word."""
    rare = {word.mark for word in known}
    rare.discard("")
    if named:
        rare.difference_update([word.lower for word in named])
    return frozenset(rare)


def _list_known(segment: Segment, spread: WordSpread) -> list[_Word]:
    """Return what is known of the words of a segment, [] where they say nothing."""
    words = segment.words
    if len(words) < LEAST_WORDS and not any(map(_has_digit, words)):
        return []
    return spread.words.list_known(words)


ASKED: Final = " (asked: "
"""What stands between an answer and the question behind it, which a bracket closes."""


def _find_asked(segment: Segment) -> float:
    """Return the share of a question's words that ask: those of its last clause.

    What stands before it is told: "my sister moved to Porto, what is the city like?"
    """
    asked = _CLAUSE.split(segment.text.rstrip(_ENDS))[-1]
    return min(len(find_words(asked)) / len(segment.words), 1.0)


_CLAUSE: Final = LatePattern(
    r"[,;:.!](?=\s)|[\u2014\u060c\u061b\u0964\u3001\u3002\uff01\uff0c\uff1a\uff1b]|\s[\u2013-]\s"
)
"""What ends a clause, in scripts with spaces and without."""

_ENDS: Final = "?!.\u061f\uff1f \"'”»)"


def _add_named(worth: float, words: Iterable[_Word], index: int, learned: Weights) -> float:
    """Return a worth with that of names and numbers: of each form the best ones count."""
    told: dict[int, dict[str, float]] = {}
    for word in words:
        share = word.used * learned.taken_up if word.last > index else word.worth
        told.setdefault(word.form, {})[word.lower] = share
    weights = {NUMBER: learned.number, SIGNED: learned.signed, CAPITAL: learned.name}
    for form in sorted(told):
        worth += weights[form] * sum(sorted(told[form].values())[-MOST_NAMED:])
    return worth


MOST_NAMED: Final = 3
"""Names, or numbers, of a segment that count: a list of more is no better."""

NAMED: Final = "="
"""Stands before a rare word that is a name or a number: another one says another thing."""

_COMMON: Final = 0.35
"""The weight of a word below which it tells nothing apart."""
