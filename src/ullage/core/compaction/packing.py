"""Fill a room with the most valuable dropped content: facts, people's words, then the rest.

People's words come before model answers and tool results. Within each group the text with the most
information per token comes first, and nothing is repeated. This module finds no facts and computes
no worth.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, chain
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from ullage.core.compaction.told import SAME_WORD, ToldWords, is_named
from ullage.core.compaction.words import Candidate, RestWords, estimate, make_line, rank
from ullage.core.facts.coverage import Coverage
from ullage.core.facts.salience import ASKED, FIRST, NAMED, WORDS, gives_orders
from ullage.core.facts.segments import GAP
from ullage.core.facts.sentences import grade, is_plain_value, is_telling, rule
from ullage.core.facts.sheet import ASSISTANT, HEADINGS, LABELS, TOOL, Facts, quote

if TYPE_CHECKING:
    from ullage.core.facts.salience import Valued

Count = Callable[[str], int]

BESIDE: Final[Mapping[str, float]] = {
    "goal": 0.15,
    "changed": 0.12,
    "files": 0.15,
    "commands": 0.02,
    "done": 0.02,
    "skills": 0.01,
    "failures": 0.06,
}
"""Shares of the room that facts other than words may take before people's words."""

RULES: Final = 0.5
"""The share of the room that plain rules may take before people's other words."""

PLAIN: Final = 3
"""A sentence with at least this grade is a plain rule. Sentences of stories reach two."""


MARGIN: Final = 1.1
"""Size of people's words in a block relative to their estimate: marks and line ends. By hand."""

HEAD: Final = 96
"""Tokens of a block before its first line: its header, its frame, and the headings."""

_PLACE: Final = attrgetter("message", "place")
_ORDER: Final = attrgetter("order")


class SaidWords(NamedTuple):
    """Words of a history: people's own, and functions that find other words if there is room.

    `rest` yields all sentences that people typed. `data` yields what they quoted, from the newest
    messages first.
    """

    said: tuple[Valued, ...] = ()
    others: Callable[[], Iterable[Candidate]] = tuple
    rest: Callable[[], Iterable[RestWords]] = tuple
    data: Callable[[], Iterable[RestWords]] = tuple


NOTHING: Final = Coverage("")
"""Coverage without prose: it carries no text."""


def pack(
    facts: Facts, words: SaidWords, tokens: int, count: Count, prose: Coverage = NOTHING
) -> Facts:
    """Return as much of the facts and words as a sheet of so many tokens holds.

    Leaves out what the `prose` already carries, except rules and tasks.
    """
    return _Pack(tokens, count, prose).fill(facts, words)


class _Pack:
    """A room that is being filled: the chosen lines and the tokens that are left."""

    def __init__(self, tokens: int, count: Count, prose: Coverage) -> None:
        self.count = count
        self.prose = prose
        self.tokens = self.left = tokens
        self.chosen: dict[tuple[str, str], Candidate] = {}
        self.opened: set[str] = set()
        self.told = ToldWords()
        self.texts = set[str]()
        self.in_prose: set[tuple[int, int]] = set()

    def fill(self, facts: Facts, words: SaidWords) -> Facts:
        """Fill the room and return its content."""
        works = bool(facts.files or facts.changed or facts.commands)
        for name, share in BESIDE.items():
            if works or name != "failures":  # without work, failures are other people's
                self._take_newest(name, getattr(facts, name), share)
        lines = list(_list_lines(facts, words.said))
        self._take_best(filter(_lays_down, lines), RULES)
        self._take_best(line for line in lines if line.said)
        if self.left > LEAST_LEFT:  # all that people typed, if it fits, before words of models
            self._take_rest("said", words.rest())
        if self.left > LEAST_LEFT:
            self._take_best(chain((line for line in lines if not line.said), words.others()))
        for name in BESIDE:
            self._take_newest(name, getattr(facts, name), 1.0)
        if self.left > self.tokens * EMPTY:
            self._take_rest("results", words.data())
        return self._make()

    def _take_rest(self, section: str, sentences: Iterable[RestWords]) -> None:
        """Take sentences in their order, as long as there is room.

        Skips words that were already taken, and words already told of the same message.
        """
        told: dict[int, str] = {}
        for line in self.chosen.values():
            told[line.message] = f"{told.get(line.message, '')}\n{line.text}"
        seen = {line.text for line in self.chosen.values()}
        misses = 0
        for text, message, place in sentences:
            if text in seen or (message, place) in self.in_prose or text in told.get(message, ""):
                continue
            seen.add(text)
            if not self._take(
                Candidate(section, text, 0.0, section == "said", message, place), self.left
            ):
                misses += 1
            if misses > MISSES:
                return

    def _take_newest(self, name: str, lines: Sequence[str], share: float) -> None:
        """Take lines of a section, the newest first, up to a share of the room."""
        limit = min(self.left, int(self.tokens * share))
        for place in range(len(lines) - 1, -1, -1):
            line = Candidate(name, lines[place], 0.0, said=False, message=0, place=place)
            limit -= self._take(line, limit)

    def _take_best(self, lines: Iterable[Candidate], share: float = 1.0) -> None:
        """Take lines with new information, best first, up to a share of the room."""
        self._take_lines(sorted(lines, key=_ORDER), share)

    def _take_lines(self, lines: Iterable[Candidate], share: float = 1.0) -> None:
        """Take lines with new information, in their order, up to a share of the room."""
        misses, limit = 0, min(self.left, int(self.tokens * share))
        for line in lines:
            if estimate(line.text) / 2 > limit:
                misses += 1
                if misses > MISSES:
                    return
            elif self._is_left_out(line):
                continue
            elif cost := self._take(line, limit):
                limit -= cost
                self.told.note(line.rare)

    def _take(self, line: Candidate, limit: int) -> int:
        """Take a line if it fits into so many tokens; return its cost in tokens, 0 if not taken."""
        key = (line.section, line.text)
        if key in self.chosen:
            return 0
        cost = self.count(f"- {quote(line.text)}\n")
        if line.section not in self.opened:
            cost += self.count(HEADINGS[line.section] + "\n")
        if cost > limit:
            return 0
        self.left -= cost
        self.opened.add(line.section)
        self.chosen[key] = line
        self.texts.update(_list_texts(line.text))
        return cost

    def _is_left_out(self, line: Candidate) -> bool:
        """Tell whether to skip a line: prose or another line has it, or it gives orders."""
        if (line.section, line.text) in self.chosen:
            return True
        if not line.said and line.text in self.texts:
            return True  # a model's words among the facts, or a question next to its answer
        if self.prose.carries(line.text, line.rare) and not is_verbatim(line):
            self.in_prose.add((line.message, line.place))
            return True
        if self.told.tells(line.rare):
            return True
        return line.section == "results" and gives_orders(line.text, used=True)

    def _list_placed(self) -> Iterator[Candidate]:
        """Yield the chosen lines; bare values and stories move to the section of plain words."""
        for line in self.chosen.values():
            is_weak = line.section == "constraints" and line.message >= FIRST
            if is_weak and (is_plain_value(line.text) or is_telling(line.text)):
                yield line._replace(section="said")
            else:
                yield line

    def _make(self) -> Facts:
        held: dict[str, list[Candidate]] = {name: [] for name in HEADINGS}
        for line in self._list_placed():
            held[line.section].append(line)
        made: dict[str, tuple[str, ...]] = {}
        for name, lines in held.items():
            lines.sort(key=_PLACE)
            if name in WORDS.values():
                made[name] = tuple(join_lines(lines))
            else:
                made[name] = tuple(line.text for line in lines)
        return Facts(**made)


def _list_texts(text: str) -> Iterator[str]:
    """Yield a line as it was said, and the question that it answers."""
    for label in LABELS:
        text = text.removeprefix(label)
    yield text
    if text.endswith(")"):
        yield text[:-1].rpartition(ASKED)[2]


def _list_lines(facts: Facts, mine: Sequence[Valued]) -> Iterator[Candidate]:
    """Yield facts and people's words; a segment with a fact goes to the section of that fact."""
    told = [_encode(valued.segment.text) for valued in mine]
    ends, whole = list(accumulate(len(text) + 1 for text in told)), b"\n".join(told)
    sections: dict[int, str] = {}
    for name, share in CUES.items():
        for place, text in enumerate(getattr(facts, name)):
            at = whole.find(_encode(text)) if not text.startswith(LABELS) else -1
            place_of = bisect_right(ends, at) if at >= 0 else _find_rest(mine, text)
            if place_of is not None:
                sections.setdefault(place_of, name)
            else:
                said = not text.startswith((ASSISTANT, TOOL))
                worth = share * UNFOUND * estimate(text)
                order = -rank(worth, text)
                yield Candidate(name, text, worth, said, message=-1, place=place, order=order)
    stale = _find_stale(mine)
    for number, valued in enumerate(mine):
        name = sections.get(number, "said")
        share = CUES.get(name, 1.0) * (STALE if number in stale else 1.0)
        yield make_line(valued, name, share)


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")  # four times faster to search


def is_plain_rule(text: str) -> bool:
    """Tell whether a person's sentence is clearly a rule."""
    return bool(rule("prose", text)) and grade(text) >= PLAIN


def _lays_down(line: Candidate) -> bool:
    """Tell whether a line is clearly a person's rule."""
    return line.section == "constraints" and line.said and is_plain_rule(line.text)


def is_verbatim(line: Candidate) -> bool:
    """Tell whether a line stays in the user's own words even if prose has it: a rule, a task."""
    rules = line.section == "constraints" and rule("prose", line.text)
    return rules or line.section == "tasks"


def list_said(facts: Facts, words: SaidWords) -> list[Candidate]:
    """Return people's own words, and facts among them, with their worth for packing."""
    return [line for line in _list_lines(facts, words.said) if line.said]


def _find_stale(mine: Sequence[Valued]) -> frozenset[int]:
    """Return the segments that a later one seems to repeat with another number.

    The later segment is in another message and has most of the rare words and all names of the
    older one. This is no proof, so a stale segment is only worth less and goes if the room is
    small. If more than `SERIES` segments are alike, each is about something else, and none is
    stale.
    """
    alike = list(_pair_alike(mine))
    number = Counter(chain.from_iterable(alike))
    return frozenset(old for old, new in alike if max(number[old], number[new]) < SERIES)


def _pair_alike(mine: Sequence[Valued]) -> Iterator[tuple[int, int]]:
    """Yield each segment with a later one that says most of the same with another number."""
    numbers = [_list_numbers(v.rare) for v in mine]
    holders: dict[str, list[int]] = {}
    for place in range(len(mine) - 1, -1, -1):
        old = mine[place]
        words = old.rare - numbers[place]
        if len(numbers[place]) != 1 or not words:
            continue
        seen = Counter(other for word in words for other in holders.get(word, ())[-SAME_WORD:])
        for other, shared in seen.items():
            new = mine[other]
            anew = new.message != old.message and numbers[place] != numbers[other]
            if anew and shared >= RESAID * len(words) and not any(map(is_named, words - new.rare)):
                yield place, other
        for word in words:
            holders.setdefault(word, []).append(place)


def _list_numbers(rare: frozenset[str]) -> frozenset[str]:
    """Return the rare words that contain a digit. Plain words of letters are skipped."""
    return frozenset([word for word in rare if word[0] == NAMED and any(map(str.isdigit, word))])


def _find_rest(mine: Sequence[Valued], text: str) -> int | None:
    """Return the segment that is the core of a fact without turns of phrase, or None."""
    if text.startswith(LABELS):
        return None
    return next((n for n, v in enumerate(mine) if v.segment.text in text), None)


EMPTY: Final = 0.5
"""If more than this share of the room is empty, quoted data that nobody used may fill it."""

LEAST_LEFT: Final = 16
"""Below this many tokens no other words are tried: not one line would fit."""

CUES: Final[Mapping[str, float]] = {
    "constraints": 1.2,
    "tasks": 1.2,
    "decisions": 1.1,
    "identifiers": 1.1,
}
"""Factors for the worth of sentences with cues: rules, tasks, decisions, values."""

RESAID: Final = 0.6
"""The share of its rare words that a stale segment shares with the later one."""

SERIES: Final = 3
"""More similar segments than this make a series: a value seldom changes so often."""

STALE: Final = 0.1
"""The worth of a stale segment, as a share of its normal worth."""

UNFOUND: Final = 0.3
"""The worth of a token of a fact whose sentence is not at hand, as a share."""

MISSES: Final = 60
"""Segments that may be too large for the rest before the room counts as full."""


def join_lines(lines: Iterable[Candidate]) -> Iterator[str]:
    """Yield one line per message: its segments in order, with a mark if some are missing."""
    text, before = "", Candidate("", "", 0.0, said=False, message=-1, place=-1)
    for line in lines:
        if text and line.message == before.message:
            text += (" " if line.place == before.place + 1 else GAP) + line.text
        else:
            if text:
                yield text
            text = line.text
        before = line
    if text:
        yield text


def drop_words(facts: Facts) -> Facts:
    """Return facts without the words that outlived their messages."""
    return replace(facts, said=(), found=(), results=())
