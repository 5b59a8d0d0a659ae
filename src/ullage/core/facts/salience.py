"""What a segment of a conversation is worth keeping, by evidence that needs no language.

Rare words, numbers and names carry; turns of phrase that come again carry little; what later
messages take up was worth keeping; what a person wrote comes before what a model answered. Of what
tools returned and people pasted, only what was taken up is worth anything: it is data, and may ask
to be kept. It chooses nothing and knows no tokens.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from math import exp, log
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from ullage.core.facts.segments import (
    Segment,
    cut_message,
    cut_text,
    find_words,
    list_texts,
    split_sentences,
)
from ullage.core.facts.sheet import parse
from ullage.core.facts.weights import LEARNED
from ullage.core.messages.transcript import asks, summarises

if TYPE_CHECKING:
    from ullage.core.facts.weights import Weights
    from ullage.core.messages.transcript import Message

Author = Literal["user", "assistant", "tool"]

OFTEN: Final = (6, 0.05)
"""Messages in which a pair of words has come before it is a turn of phrase: so many, and so large
a share of them all."""

COMMON_FROM: Final = 2
"""Messages from which on a word tells a voice."""

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


class WordSpread:
    """In how many messages each word stands, and in which of a person or a model it does last."""

    def __init__(self, messages: Sequence[Message], learned: Weights = LEARNED) -> None:
        self.learned = learned
        self.shares = {"user": 1.0, "assistant": learned.assistant, "tool": learned.tool}
        self.spread: Counter[str] = Counter()
        self.last: dict[str, int] = {}
        self.pairs: Counter[tuple[str, str]] = Counter()
        self._theirs: Counter[str] = Counter()
        number = people = 0
        for index, message in enumerate(messages):
            for author, words, own, pairs in _list_turns(message):
                number += 1
                self.spread.update(words)
                self.pairs.update(pairs)
                if author == "user":
                    people += 1
                    self._theirs.update(words)
                self.last.update(dict.fromkeys(own, index))
        self._top = log(number + 1.0) or 1.0
        self._odds = log((number - people + 1) / (people + 1))
        self._voices: dict[str, float] = {}
        self._often = max(OFTEN[0], OFTEN[1] * number)
        self._weights: dict[str, float] = {}

    def weigh_word(self, word: str) -> float:
        """Return what a word as written is worth, wherever it stands."""
        known = self._weights.get(word)
        if known is None:
            rarity = 1.0 - log(max(self.spread[word.casefold()], 1)) / self._top
            known = self._weights[word] = max(rarity, 0.0) * self._judge_form(word)
        return known

    def _judge_form(self, word: str) -> float:
        if _has_digit(word):
            return self.learned.number
        if not word.isalpha():
            return self.learned.signed
        return self.learned.name if word[0].isupper() else 1.0

    def judge_wear(self, words: Sequence[str]) -> float:
        """Return how worn words are: 0 if no two stand together elsewhere, 1 if all often do."""
        most = self._often - 1
        found = [self.pairs.get(pair, 0) for pair in pairwise(words)]
        return (
            sum(min(number - 1, most) for number in found if number > 1) / most / max(len(found), 1)
        )

    def is_taken_up(self, rare: Iterable[str], place: int) -> bool:
        """Tell whether a person or a model later used a rare name or number."""
        named = (word.removeprefix(NAMED) for word in rare if word.startswith(NAMED))
        return any(self.last.get(word, -1) > place for word in named)

    def judge_voice(self, words: Sequence[str]) -> float:
        """Return how many times more likely people use these common words here than others do."""
        found = [v for word in words if (v := self._find_voice(word)) is not None]
        if not found:
            return 1.0
        mean = sum(found) / len(found)
        most = self.learned.voice_most
        return exp(self.learned.voice * max(-most, min(most, mean)))

    def _find_voice(self, word: str) -> float | None:
        """Return the log ratio of people's use of a word to the others', None of a rare one."""
        known = self._voices.get(word)
        if known is None:
            spread = self.spread[word]
            if spread < COMMON_FROM:
                return None
            people = self._theirs[word]
            known = log((people + 0.5) / (spread - people + 0.5)) + self._odds
            self._voices[word] = known
        return known


LEAST_WORDS: Final = 2
"""Words below which a segment without a number says nothing."""


def _has_digit(word: str) -> bool:
    return any(map(str.isdigit, word))


class _Turn(NamedTuple):
    """Who says which words in a message, which of them are their own, and the pairs of these."""

    author: Author
    words: frozenset[str]
    own: frozenset[str]
    pairs: frozenset[tuple[str, str]]


def _list_turns(message: Message) -> Sequence[_Turn]:
    """Return who says which words and pairs of words in a message; worked out once for each.

    A block that stands for earlier messages has a line for each of them.
    """
    known: Sequence[_Turn] | None = message.memo.get(_KEY)
    if known is None:
        if summarises(message):
            held = parse(message.text)[0]
            lines = [
                (author, line) for author, name in WORDS.items() for line in getattr(held, name)
            ]
            known = [_list_words(author, cut_text(line)) for author, line in lines]
        else:
            known = [_read_message(message)]
        message.memo[_KEY] = known
    return known


WORDS: Final[Mapping[Author, str]] = {"user": "said", "assistant": "found", "tool": "results"}
"""The sections of a block that hold words, by who wrote them."""


def _read_message(message: Message) -> _Turn:
    """Return the words of a message; pairs are read of what a person wrote alone."""
    author = find_author(message)
    if author == "user":
        return _list_words(author, cut_message(message))
    found = {word.casefold() for text in list_texts(message) for word in find_words(text)}
    words = frozenset(found)
    return _Turn(author, words, words if author == "assistant" else frozenset(), frozenset())


def _list_words(author: Author, segments: Iterable[Segment]) -> _Turn:
    words: set[str] = set()
    own: set[str] = set()
    pairs: set[tuple[str, str]] = set()
    for segment in segments:
        lower = [word.casefold() for word in segment.words]
        words.update(lower)
        if not segment.pasted and author != "tool":
            own.update(lower)
            pairs.update(pairwise(lower))
    return _Turn(author, frozenset(words), frozenset(own), frozenset(pairs))


_KEY: Final = "vocabulary"


def find_author(message: Message) -> Author:
    """Return who wrote a message; what no person wrote in the role of a user is a tool's."""
    if message.role == "assistant":
        return "assistant"
    return "user" if asks(message) else "tool"


def weigh(messages: Sequence[Message], place: int, spread: WordSpread) -> Iterator[Valued]:
    """Yield the segments of the message at a place with their worth."""
    message = messages[place]
    author = find_author(message)
    segments = cut_message(message)
    if author == "user" and len(segments) == 1:
        segments = [_add_question(segments[0], messages[place - 1] if place else None)]
    learned = spread.learned
    bulk = spread.shares[author] / (1 + len(segments) / learned.bulk) ** 0.5
    for number, whole in enumerate(segments):
        segment = _drop_worn(whole, spread) if author == "user" else whole
        worth, rare = _weigh_segment(segment, place, spread)
        data = author == "tool" or segment.pasted
        if worth > 0 and not (data and not spread.is_taken_up(rare, place)):
            share = bulk * (learned.pasted if segment.pasted and author == "user" else 1.0)
            yield Valued(segment, place, number, author, worth * share, rare)


def _add_question(answer: Segment, before: Message | None) -> Segment:
    """Return a short answer with the question before it; any other segment as it is."""
    if len(answer.text) > ANSWER_MOST or answer.question:
        return answer
    if before is None or before.role != "assistant":
        return answer
    asked = cut_message(before)
    if not asked or not asked[-1].question or len(asked[-1].text) > QUESTION_MOST:
        return answer
    text = f"{answer.text} (asked: {asked[-1].text})"
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
        for place, whole in enumerate(cut_text(line)):
            segment = _drop_worn(whole, spread) if author == "user" else whole
            worth, rare = _weigh_segment(segment, -1, spread)
            yield Valued(segment, number, place, author, worth * spread.shares[author], rare)


def _drop_worn(segment: Segment, spread: WordSpread) -> Segment:
    """Return a segment without its sentences that are turns of phrase through and through."""
    sentences = split_sentences(segment.text)
    if len(sentences) < 2 or segment.pasted:
        return segment
    kept = [text for text in sentences if not _is_worn(text, spread)]
    if len(kept) == len(sentences):
        return segment
    return segment._replace(text=" ".join(kept), words=tuple(find_words(" ".join(kept))))


def _is_worn(text: str, spread: WordSpread) -> bool:
    return spread.judge_wear([word.casefold() for word in find_words(text)]) >= 1.0


def _weigh_segment(
    segment: Segment, index: int, spread: WordSpread
) -> tuple[float, frozenset[str]]:
    if len(segment.words) < LEAST_WORDS and not any(map(_has_digit, segment.words)):
        return 0.0, frozenset()
    rare: dict[str, float] = {}
    names: set[str] = set()
    last, learned, lower_words = spread.last, spread.learned, []
    for number, word in enumerate(segment.words):
        worth = spread.weigh_word(word)
        lower = word.casefold()
        lower_words.append(lower)
        plain = word.isalpha()
        if number == 0 and plain and word[0].isupper():
            worth /= learned.name  # a sentence begins with a capital letter
        if worth > _COMMON and last.get(lower, -1) > index and spread.spread[lower] > 1:
            worth *= learned.taken_up
        if worth > rare.get(lower, 0.0):
            rare[lower] = worth
        if not plain or (number > 0 and word[0].isupper()):
            names.add(lower)
    worth = sum(rare.values()) * spread.judge_voice(lower_words)
    if segment.question:
        worth *= learned.question
    worth *= 1.0 - learned.worn * spread.judge_wear(lower_words) ** 2
    told = (word for word, weight in rare.items() if weight > _COMMON)
    return worth, frozenset(NAMED + word if word in names else word for word in told)


NAMED: Final = "="
"""Stands before a rare word that is a name or a number: another one says another thing."""

_COMMON: Final = 0.35
"""The weight of a word below which it tells nothing apart."""
