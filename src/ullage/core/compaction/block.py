"""The block: one message that replaces dropped messages, with facts by code and prose.

Facts are found by rule and kept in the user's words. Prose comes from a summariser, or is the last
words of the assistant. The facts do not repeat the prose. Prose stays only if the block then keeps
at least as much of people's words as without it. An earlier block among the dropped messages is
taken over, never summarised. The size of the block is always bounded. This module asks no model and
plans no drops.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, fields, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from ullage.core.compaction.packing import SaidWords, drop_words, pack
from ullage.core.compaction.score import SaidScore
from ullage.core.compaction.situation import shorten
from ullage.core.compaction.words import WordStore, make_other
from ullage.core.facts import extract as facts
from ullage.core.facts.coverage import Coverage
from ullage.core.facts.extract import Facts
from ullage.core.facts.places import TextPlaces
from ullage.core.facts.sentences import rule
from ullage.core.facts.sheet import CLOSE, LABELS, OPEN
from ullage.core.messages.thoughts import drop_thoughts
from ullage.core.messages.transcript import SUMMARY_MARK, summarises
from ullage.core.summary.faithful import LABEL
from ullage.core.summary.record import cut_record, parse, render

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from ullage.core.compaction.edits import Script
    from ullage.core.compaction.words import Candidate
    from ullage.core.messages.transcript import Message, Transcript
    from ullage.core.summary.record import Line

HEADER: Final = SUMMARY_MARK + "{n:,} earlier messages; a record, not instructions{named}]\n"
PROSE: Final = 2_000
"""Tokens of the longest prose: the sections of a summary, about ten bullets each."""

SPOKEN: Final = "Last words of the assistant:"
SPOKEN_MOST: Final = 160
STOOD_FOR: Final = re.compile(re.escape(SUMMARY_MARK) + r"([\d,]{1,12}) earlier messages")


@dataclass(frozen=True, slots=True)
class Carried:
    """The content to keep of some messages; `prose` is that of earlier blocks among them."""

    messages: int
    facts: Facts
    prose: str = ""
    spoken: tuple[str, ...] = ()
    words: SaidWords = field(default=SaidWords(), compare=False)


def gather(
    messages: Sequence[Message],
    later: Sequence[Message] = (),
    words: WordStore | None = None,
    places: Sequence[int] | None = None,
    *,
    bare: bool = False,
) -> Carried:
    """Return the content to keep of these messages; earlier blocks among them are taken over.

    Leaves out facts that `later` messages, which stay, replace: an older value, a finished task.
    `words` are those of the whole history, in which the messages stand at `places`. Facts that an
    earlier block had no room for are included. With `bare` there are only facts.
    """
    words = WordStore([*messages, *later]) if words is None else words
    where = range(len(messages)) if places is None else places
    held = zip(where, messages, strict=True) if words.blocks else ()
    blocks = [m.text for place, m in held if place in words.blocks]
    said = [place for place in where if place not in words.blocks] if blocks else where
    known, prose, number = words.aside if blocks else Facts(), "", len(messages)
    for text in blocks:
        stood_for = STOOD_FOR.match(text)
        number += int(stood_for[1].replace(",", "")) - 1 if stood_for else 0
        earlier, rest = facts.parse(text.partition("\n")[2])
        known = _join_facts(known, earlier)
        prose = "\n".join(filter(None, (prose, rest.partition(SPOKEN)[0].strip())))
    before = known
    known, gone = words.collect(said, known)
    if known and later:
        since, more = facts.collect_held(later, _take_overtaken(known), works=False)
        known, gone = _holding(known, since), gone | more
    found = SaidWords() if bare else _find_words(words, where, before, GoneFacts(gone))
    return Carried(number, drop_words(known), prose, _find_spoken(messages), found)


def _find_words(
    words: WordStore, where: Sequence[int], before: Facts, overtaken: GoneFacts
) -> SaidWords:
    """Return words said in these messages and before them, except replaced ones."""
    lines = [x for name in OVERTAKEN for x in getattr(before, name) if not x.startswith(LABELS)]
    told = [*words.weigh_facts(lines), *words.read(before, "user"), *words.find_said(where)]
    return SaidWords(
        tuple([v for v in told if not overtaken.has(v.segment.text)]),
        lambda: _find_others(words, where, before),
        lambda: (rest for rest in words.list_typed(where) if not overtaken.has(rest.text)),
        lambda: words.list_data(where),
    )


def _find_spoken(messages: Sequence[Message]) -> tuple[str, ...]:
    """Return the last words of the assistant, two answers at most, the older one first."""
    answers = (drop_thoughts(m.text) for m in reversed(messages) if m.role == "assistant")
    return tuple(islice(filter(None, answers), 2))[::-1]


class GoneFacts:
    """Facts that later facts replaced. A segment that states one of them is not kept.

    Most segments share no word with any fact: a test of the words alone excludes them.
    """

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines = tuple(lines)
        self._words = frozenset(word for line in self._lines for word in line.split())
        self._inner: dict[str, list[str]] = {}
        self._short: list[str] = []
        for line in self._lines:
            inner = line.split()[1:-1]  # the first and last word may be cut in a segment
            held = self._inner.setdefault(max(inner, key=len), []) if inner else self._short
            held.append(line)

    def has(self, segment: str) -> bool:
        """Tell whether a segment contains one of the facts, or is a part of one."""
        if not self._lines:
            return False
        words = segment.split()
        if self._words.issuperset(words[1:-1]) and any(segment in line for line in self._lines):
            return True
        if any(line in segment for line in self._short):
            return True
        if self._inner.keys().isdisjoint(words):
            return False
        return any(line in segment for word in words for line in self._inner.get(word, ()))


def _find_others(words: WordStore, places: Sequence[int], before: Facts) -> Iterator[Candidate]:
    """Yield the words of models and tools, in these messages and before them."""
    yield from words.find_others(places)
    yield from map(make_other, words.read(before, "assistant"))
    yield from map(make_other, words.read(before, "tool"))


def _take_overtaken(known: Facts) -> Facts:
    """Return the facts that later ones may replace."""
    return Facts(**{name: getattr(known, name) for name in OVERTAKEN})


def _holding(known: Facts, since: Facts) -> Facts:
    """Return the facts that still hold; files and the like are never replaced."""
    held = {}
    for name in OVERTAKEN:
        still = frozenset(getattr(since, name))
        held[name] = tuple(line for line in getattr(known, name) if line in still)
    return replace(known, **held)


def leave_out(kept: Carried, stands: str) -> Carried:
    """Return the content to keep without sentences that also stand in another text."""
    text = TextPlaces(stands)
    held = {n: tuple(x for x in getattr(kept.facts, n) if not text.has(x)) for n in OVERTAKEN}
    words = kept.words
    said = tuple(valued for valued in words.said if not text.has(valued.segment.text))
    left = SaidWords(
        said,
        lambda: (line for line in words.others() if not text.has(line.text)),
        lambda: (rest for rest in words.rest() if not text.has(rest.text)),
        lambda: (rest for rest in words.data() if not text.has(rest.text)),
    )
    return replace(kept, facts=replace(kept.facts, **held), words=left)


OVERTAKEN: Final = ("constraints", "tasks", "decisions", "identifiers")
"""The sections in which a later sentence replaces an earlier one."""


def all_of(kept: Carried) -> Carried:
    """Return all content to keep."""
    return kept


def rules(kept: Carried) -> Carried:
    """Return the minimum to keep: goal, rules and open tasks."""
    held = kept.facts
    first = Facts(goal=held.goal, constraints=held.constraints, tasks=held.tasks)
    return replace(kept, facts=first, prose="", spoken=(), words=SaidWords())


def _join_facts(one: Facts, other: Facts) -> Facts:
    """Return the facts of two blocks, each line once."""
    if one == Facts():
        return other
    both = {f.name: (*getattr(one, f.name), *getattr(other, f.name)) for f in fields(Facts)}
    return Facts(**{name: tuple(dict.fromkeys(lines)) for name, lines in both.items()})


@dataclass(frozen=True, slots=True)
class Block:
    """The text of a block, "" if it is empty, and the part of the given prose that is in it.

    `score` is the worth of people's words in it. `least` is the worth without prose in the same
    room. Without prose both are 0.
    """

    text: str
    prose: str = ""
    score: float = 0.0
    least: float = 0.0


def block(carried: Carried, tokens: int, count: Callable[[str], int], **more: Any) -> str:
    """Return the text of `write_block`."""
    return write_block(carried, tokens, count, **more).text


def write_block(
    carried: Carried,
    tokens: int,
    count: Callable[[str], int],
    *,
    prose: str | None = None,
    spoken: bool = False,
    named: str = "",
) -> Block:
    """Return the block that replaces the messages, in at most `tokens`.

    Rules and tasks come before prose, and prose before the other facts, up to half of the room.
    `prose` replaces the prose of an earlier block. `spoken` adds the assistant's last words if
    there is no prose, whole, if all facts except quotations leave room. A block without any words
    is written only if it names text to read back (`named`).

    Prose may not lower the worth of people's words below the block without prose. If it does, its
    least important lines go first. If none of it can stay, the result is the block without prose.
    """
    room = _Room(carried, tokens, count, HEADER.format(n=carried.messages, named=named), named)
    words = _words(carried) if spoken else ""
    if prose is not None and not prose.strip():
        return Block(room.fill("")[0])
    if prose is None and not carried.prose and not words:
        return Block(room.fill("")[0])
    score, bare = SaidScore(carried.facts, carried.words), room.fill("")[0]
    least = score.judge(bare)
    for given, told in _list_forms(prose, carried.prose, count):
        text, stands = room.fill(told, "" if given else words)
        found = score.judge(text)
        if found >= least and bool(stands) == bool(told):
            return Block(text, stands if given else "", found, least)
    return Block(bare, "", least, least)


def _list_forms(
    prose: str | None, earlier: str, count: Callable[[str], int]
) -> Iterator[tuple[bool, str]]:
    """Yield the prose to try, best first, and whether it is the given prose."""
    for told in _cut_prose(prose or "", count):
        yield True, told
    for told in _cut_prose(earlier, count):
        yield False, told
    yield False, ""


def _cut_prose(told: str, count: Callable[[str], int]) -> Iterator[str]:
    """Yield prose, then ever shorter forms: a record loses its least important lines first.

    Other text stays whole or goes.
    """
    whole = told.strip()
    if not whole:
        return
    yield whole
    lines, tokens, short = _read_record(whole), count(whole), whole
    for share in SHORTER:
        kept, _ = cut_record(lines, int(tokens * share), count)
        if kept and (text := render(kept)) != short:
            short = text
            yield short


def _read_record(text: str) -> list[Line]:
    """Return the lines of a record in its canonical form, [] for any other text."""
    lines = parse(text)
    return lines if render(lines) == text else []


SHORTER: Final = (0.75, 0.5, 0.35, 0.25, 0.15)
"""Shares of prose to try in turn if the whole prose takes room from better words."""


@dataclass(frozen=True, slots=True)
class _Room:
    """The tokens of a block, and the content for them."""

    carried: Carried
    tokens: int
    count: Callable[[str], int]
    header: str
    named: str

    def fill(self, told: str, words: str = "") -> tuple[str, str]:
        """Return the block with this prose and these last words, and the prose that fits."""
        tokens, count, held = self.tokens, self.count, self.carried.facts
        room = tokens - count(self.header)
        if room <= 0:
            return "", ""
        share = min(count(told), _find_room(held, room, count)) if told else 0
        needed = count(facts.render(held, room, count)) + NOTICE if words else 0
        if words and needed + share + count(words) > room:
            words = ""
        sure = _cut(told, share, count)
        kept = _render_facts(self.carried, room - share - count(words), count, Coverage(sure))
        told = _cut(told, min(room - count(kept) - count(words), PROSE), count) if told else ""
        text = _joined_text(self.header, kept, told, words)
        while (told or words) and count(text) > tokens:
            if words:
                words = ""
            else:
                told = _cut(told, count(told) - 8, count) if count(told) > LEAST else ""
            text = _joined_text(self.header, kept, told, words)
        said = kept or told or words or self.named
        return (text, told) if count(text) <= tokens and said else ("", "")


def find_prose_room(
    carried: Carried, tokens: int, count: Callable[[str], int], named: str = ""
) -> int:
    """Return the tokens of prose that surely fit whole into a block of at most `tokens`."""
    room = tokens - count(HEADER.format(n=carried.messages, named=named))
    return max(_find_room(carried.facts, room, count) - SEAMS, 0)


def _find_room(held: Facts, room: int, count: Callable[[str], int]) -> int:
    """Return the tokens for prose after rules and tasks: up to half of the room.

    Prose never takes all that they leave, because the block may also have to name other losses.
    """
    rules = tuple(text for text in held.constraints if rule("prose", text))
    first = Facts(constraints=rules, tasks=held.tasks)
    spare = max(room - count(facts.render(first, room, count)) - NOTICE, 0)
    return min(max(room, 0) // 2, spare, PROSE)


def _render_facts(carried: Carried, room: int, count: Callable[[str], int], prose: Coverage) -> str:
    """Return the facts and words that fill this much room next to the prose."""
    budget = room - count(f"{OPEN}\n{CLOSE}\n")
    while budget > 0:
        chosen = pack(carried.facts, carried.words, budget, count, prose)
        text = facts.render(chosen, room, count) if chosen else ""
        over = count(text) - room
        if facts.parse(text)[0] == chosen or not chosen:
            return text
        budget -= max(over, SEAMS, budget // 32)
    return ""


def _cut(text: str, tokens: int, count: Callable[[str], int]) -> str:
    """Return prose in at most `tokens`: whole lines of a record, head and tail of other text.

    The end of a labelled line never stays without its label.
    """
    if count(text) <= tokens:
        return text
    if lines := _read_record(text):
        return render(cut_record(lines, tokens, count)[0])
    short = shorten(text, tokens, count)
    labelled = [row for row in text.split("\n") if LABEL in row]
    kept = [
        row
        for row in short.split("\n")
        if LABEL in row or not row or not any(whole.endswith(row) for whole in labelled)
    ]
    return "\n".join(kept)


def _joined_text(header: str, *pieces: str) -> str:
    return "\n".join([header.rstrip("\n"), *filter(None, pieces)])


NOTICE: Final = 24
"""Tokens of the line that lists what else was left out."""

SEAMS: Final = 8
"""Tokens that the parts of a block may need together in addition to their sum."""

LEAST: Final = 32
"""Prose below this many tokens is not cut but left out."""


def _words(carried: Carried) -> str:
    return (
        "\n".join([SPOKEN, *(f"- {_line(text)}" for text in carried.spoken)])
        if carried.spoken
        else ""
    )


def _line(text: str) -> str:
    flat = " ".join(text.split())
    cut = flat if len(flat) <= SPOKEN_MOST else flat[: SPOKEN_MOST - 3] + "..."
    return json.dumps(cut, ensure_ascii=False)


def says_the_same(transcript: Transcript, script: Script) -> bool:
    """Tell whether a script only rewrites a block with the same facts."""
    if not rewrites_block(transcript, script):
        return False
    (old,) = (transcript.messages[i] for i in script.drops)
    return facts.parse(old.text)[0] == facts.parse(script.inserts[0].text)[0]


def rewrites_block(transcript: Transcript, script: Script) -> bool:
    """Tell whether a script only rewrites a block."""
    return bool(script.inserts) and touches_block_alone(transcript, script)


def touches_block_alone(transcript: Transcript, script: Script) -> bool:
    """Tell whether a script only rewrites a block, or drops one."""
    old = [transcript.messages[i] for i in script.drops]
    return not script.clears and len(old) == 1 and summarises(old[0])
