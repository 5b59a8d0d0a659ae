"""The facts that outlive their messages: code carries them through every compaction.

`collect` folds messages into `Facts`, `render` writes them into a budget of tokens, `parse` reads
the result of `render`. No model takes part, so a rule stays in the user's own words. Only users
give constraints, tasks and said words; only arguments of tool calls give files and commands
(`calls`); tool output gives nothing. This module knows nothing of dialects, windows, policies or
token counting.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, filterfalse, takewhile
from operator import eq
from typing import Final, NamedTuple

from ullage.core.facts import sentences as prose
from ullage.core.facts.answers import list_answers, note_answer, read_answer
from ullage.core.facts.calls import COMMAND_MOST, PATH_MOST, TodoList, drop_span, read_calls
from ullage.core.facts.patterns import LatePattern
from ullage.core.facts.quoting import drop_quoted, join_typed, read_message
from ullage.core.facts.segments import GAP, find_series, mask_end, split_sentences
from ullage.core.facts.sentences import Judged, Profile
from ullage.core.facts.sheet import (
    ASSISTANT,
    LABELS,
    TODO,
    TOOL,
    UNKNOWN,
    Facts,
    find_section,
    parse,
    render,
)
from ullage.core.messages.thoughts import drop_thoughts
from ullage.core.messages.transcript import FINDING, Message, asks

__all__ = [
    "ASSISTANT",
    "BOUNDS",
    "LABELS",
    "TODO",
    "TOOL",
    "UNKNOWN",
    "Facts",
    "collect",
    "collect_held",
    "parse",
    "render",
]

WORDS: Final = ("said", "found", "results")
"""Sections of words that outlived their messages because of their worth (`salience`), not by
rule."""


class Bound(NamedTuple):
    """The limit of a section: number of lines, characters of one line, characters in total."""

    lines: int
    line: int
    chars: int


BOUNDS: Final[Mapping[str, Bound]] = {
    "goal": Bound(1, 4_000, 4_000),
    "done": Bound(40, prose.SENTENCE_MOST + 80, 6_000),
    "constraints": Bound(640, prose.SENTENCE_MOST + 80, 68_000),
    "tasks": Bound(100, prose.SENTENCE_MOST + 80, 12_000),
    "decisions": Bound(80, prose.SENTENCE_MOST + 80, 12_000),
    "failures": Bound(60, prose.VALUE_MOST + 80, 8_000),
    "changed": Bound(300, PATH_MOST, 24_000),
    "files": Bound(300, PATH_MOST + 40, 24_000),
    "commands": Bound(60, COMMAND_MOST, 6_000),
    "skills": Bound(40, PATH_MOST, 2_400),
    "identifiers": Bound(160, prose.VALUE_MOST + 80, 16_000),
    **dict.fromkeys(WORDS, Bound(20_000, 100_000, 4_000_000)),
}
"""All sections except words together stay under 45,000 tokens of English. A full section drops its
oldest lines first. `constraints` drops lines that are not rules before rules."""

_KEY: Final = FINDING + "facts"
_SECTION: Final[Mapping[str, str]] = {
    "task": "tasks",
    "decision": "decisions",
    "failure": "failures",
    "value": "identifiers",
}
"""The section of a line by its kind; rules, decisions and values of users are constraints."""


class _Line(NamedTuple):
    kind: str
    text: str
    profile: Profile


_Names = tuple[str, ...]
_Extract = tuple[tuple[_Line, ...], _Names, _Names, _Names, _Names, TodoList | None]
"""The content of one message, independent of earlier ones: lines, and the fields of `Told`.

A plain tuple of plain tuples: the garbage collector skips it."""

_NOTHING: Final[_Extract] = ((), (), (), (), (), None)


# ── one message ─────────────────────────────────────────────────────────────────────────────────


def _extract(message: Message) -> _Extract:
    """Return the content of a message, computed once for each message."""
    if message.role not in ("user", "assistant") and not list_answers(message):
        return _NOTHING
    known: _Extract | None = message.memo.get(_KEY)
    if known is None:
        known = message.memo[_KEY] = _read(message)
    return known


def _read(message: Message) -> _Extract:
    answers = list_answers(message)
    if message.role == "user" and not asks(message) and not answers:
        return _NOTHING
    user = message.role != "assistant"
    text = "\n".join([p.text for p in message.parts if p.kind == "text" and p.answers is None])
    text = join_typed(read_message(message, text)) if user else drop_thoughts(text)
    for number in sorted(answers):
        text += "\n" + drop_quoted(read_answer(message.parts[number].text))
    lines = tuple(_judge_text(text, user=user)) if text else ()
    if user or not message.calls:
        return (lines, (), (), (), (), None) if lines else _NOTHING
    return (lines, *read_calls(message.calls))


def _judge_text(text: str, *, user: bool) -> Iterator[_Line]:
    """Yield the lines from the text of a message; each sentence gives at most one.

    For a user message, `text` is only the text that the user typed.
    """
    label = "" if user else ASSISTANT
    opening = ""
    valued = user or prose.may_have_value(text)
    told = list(prose.sentences(text))
    series = find_series([sentence for _, sentence in told])
    for place, sentence in told:
        if user and not opening and _OPENS.fullmatch(sentence):
            opening = sentence + " "
            continue
        judged: Judged | None = prose.judge(place, opening + sentence, user=user, valued=valued)
        opening = ""
        listed = place in ("open", "closed") or not series or mask_end(sentence) not in series
        if judged is not None and listed:
            line = judged.text if judged.kind == "done" else label + judged.text
            yield _Line(judged.kind, line, prose.profile(judged.text))


_OPENS: Final = LatePattern(
    r"(?:ok,? |sorry,? |no,? |wait,? )?(?:scratch that|forget (?:that|it)|correction|actually"
    r"|on second thoughts?|change of plan)[.!:]?",
    re.IGNORECASE,
)
"""A sentence that only announces a change by the next one."""


# ── the fold ────────────────────────────────────────────────────────────────────────────────────


class _Shelf:
    """Lines in order, the newest last, within a bound; a repeated line moves to the end."""

    def __init__(self, bound: Bound) -> None:
        self.lines: dict[str, None] = {}
        self.weak: dict[str, None] = {}
        self.bound = bound
        self.chars = 0

    def add(self, line: str, *, weak: bool = False) -> None:
        """Add a line. If the shelf is too full, `weak` lines go first."""
        if not line or len(line) > self.bound.line:
            return
        self.drop(line)
        self.lines[line] = None
        if weak:
            self.weak[line] = None
        self.chars += len(line)
        while len(self.lines) > self.bound.lines or self.chars > self.bound.chars:
            self.drop(next(iter(self.weak or self.lines)))

    def drop(self, line: str) -> None:
        if line in self.lines:
            del self.lines[line]
            self.weak.pop(line, None)
            self.chars -= len(line)

    def copy(self) -> _Shelf:
        made = _Shelf(self.bound)
        made.lines, made.weak, made.chars = dict(self.lines), dict(self.weak), self.chars
        return made


class _Index:
    """Lines by masked sentence and by subject, to find lines about the same thing."""

    def __init__(self) -> None:
        self.lines: dict[str, dict[str, None]] = {}

    def add(self, line: str, known: Profile) -> None:
        for name in _names(known):
            self.lines.setdefault(name, {})[line] = None

    def like(self, known: Profile) -> list[str]:
        return [line for name in _names(known) for line in self.lines.pop(name, ())]

    def copy(self) -> _Index:
        made = _Index()
        made.lines = {name: dict(lines) for name, lines in self.lines.items()}
        return made


class _Holders:
    """Lines by their words, values, masked sentence and subject, to find lines to replace."""

    def __init__(self, lines: Iterable[str], profiles: Mapping[str, Profile]) -> None:
        self.lines: dict[str, list[str]] = {}
        for line in lines:
            self.add(line, profiles[line])

    def add(self, line: str, known: Profile) -> None:
        for name in chain(known.words, known.values, _list_whole(known)):
            self.lines.setdefault(name, []).append(line)

    def find(self, new: Profile) -> set[str]:
        """Return the lines that share something with a sentence, or with its discarded names."""
        names = chain(new.words, new.values, new.dropped, _list_whole(new))
        return {line for name in names for line in self.lines.get(name, ())}


def _list_whole(known: Profile) -> Iterator[str]:
    if known.key:
        yield "k " + known.key
    if known.subject:
        yield "s " + known.subject


def _names(known: Profile) -> Iterator[str]:
    if known.lifts and not known.prohibits:
        return
    if known.key:
        yield "k " + known.key
    if known.subject and not known.prohibits:
        yield "s " + known.subject


def _list_values(said: Iterable[str]) -> Iterator[str]:
    """Yield the sentences with a value among words that outlived their messages.

    They stand among other words, but a later value still replaces them. Only the first sentence of
    each piece counts, because a later one may depend on the sentence before it.
    """
    for line in said:
        for piece in line.split(GAP):
            first = split_sentences(piece)[:1]
            yield from filter(prose.is_plain_value, first)


_THEIRS: Final = ("decisions", "identifiers")
"""Sections in which a later sentence of the assistant replaces an older one."""


class _Ledger:
    """The state of the fold. It can be restored from the lines alone.

    Without `works` it ignores files, commands and skills.
    """

    def __init__(self, earlier: Facts, *, works: bool = True) -> None:
        self.works = works
        self.shelves = {name: _Shelf(bound) for name, bound in BOUNDS.items()}
        self.profiles: dict[str, Profile] = {}
        self.index, self.their_index = _Index(), _Index()
        self.holders: _Holders | None = None
        self.overtaken: set[str] = set()
        self.read = {drop_span(line): line for line in earlier.files}
        for value in _list_values(earlier.said):
            self.put("constraints", value, weak=True)
        for name in BOUNDS:
            for line in getattr(earlier, name):
                self.put(name, line)

    def copy(self) -> _Ledger:
        """Return an independent copy that can continue from here."""
        made = _Ledger(UNKNOWN, works=self.works)
        made.shelves = {name: shelf.copy() for name, shelf in self.shelves.items()}
        made.profiles = dict(self.profiles)
        made.index, made.their_index = self.index.copy(), self.their_index.copy()
        made.overtaken, made.read = set(self.overtaken), dict(self.read)
        return made

    def profile(self, line: str) -> Profile:
        known = self.profiles.get(line)
        if known is None:
            known = self.profiles[line] = prose.profile(_bare(line))
        return known

    def put(self, section: str, line: str, *, weak: bool | None = None) -> None:
        """Add a line to its shelf; `weak` means that it is not a rule, None means unknown."""
        section = find_section(section, line)
        if section == "constraints":
            self.index.add(line, self.profile(line))
            if self.holders is not None:
                self.holders.add(line, self.profile(line))
            weak = not prose.rule("prose", line) if weak is None else weak
            self.shelves[section].add(line, weak=weak)
            return
        if section in _THEIRS:
            self.their_index.add(line, self.profile(line))
        self.shelves[section].add(line)

    def take(self, extract: _Extract) -> None:
        """Add the content of one message to the state."""
        lines, changed, files, commands, skills, todo = extract
        for line in lines:
            self.profiles[line.text] = line.profile
            if line.kind == "done":
                self.close(line.profile)
            else:
                self.state(line)
        if self.works:
            for one in skills:
                self.put("skills", one)
            for one in commands:
                self.put("commands", one)
            if changed or files:
                self.note_files(changed, files)
        if todo is not None:
            self.list_tasks(todo)

    def note_files(self, changed: _Names, files: _Names) -> None:
        """Note the files that were changed and read."""
        for one in changed:
            self.shelves["files"].drop(self.read.pop(one, one))
            self.put("changed", one)
        for one in files:
            path = drop_span(one)
            if path not in self.shelves["changed"].lines:
                self.shelves["files"].drop(self.read.get(path, one))
                self.read[path] = one
                self.put("files", one)

    def list_tasks(self, todo: TodoList) -> None:
        """Replace the items of the previous to-do list with those of a new one."""
        for task in [t for t in self.shelves["tasks"].lines if t.startswith(TODO)]:
            self.shelves["tasks"].drop(task)
        for task in todo.left:
            self.put("tasks", task)
        for task in todo.done:
            self.put("done", task)

    def state(self, line: _Line) -> None:
        """Put a line into its section, and remove the lines that it replaces."""
        section = _SECTION.get(line.kind, "constraints")
        gone: list[str] = []
        if section in _THEIRS and not line.text.startswith(LABELS):
            section = "constraints"
        section = find_section(section, line.text)
        if section in _THEIRS:
            for old in self.their_index.like(line.profile):
                for name in _THEIRS:
                    self.shelves[name].drop(old)
        elif section == "constraints":
            gone = self.remove_overtaken(line)
        if line.kind != "lift" or gone or prose.rule("prose", line.text):
            self.put(section, line.text, weak=line.kind not in ("rule", "lift"))

    def remove_overtaken(self, line: _Line) -> list[str]:
        """Remove the lines that a sentence of the user replaces; return them."""
        new = line.profile
        gone = {old: None for old in self.index.like(new) if old != line.text}
        if new.changes or new.lifts or new.dropped:
            known = self.profiles  # it has the profiles of all constraints
            lines = self.shelves["constraints"].lines
            if self.holders is None:
                self.holders = _Holders(lines, known)
            for old in self.holders.find(new).intersection(lines):
                if old != line.text and prose.supersedes(new, known[old]):
                    gone[old] = None
        for old in gone:
            self.shelves["constraints"].drop(old)
            self.unsay(old, new)
        self.overtaken.update(gone)
        return list(gone)

    def unsay(self, old: str, new: Profile) -> None:
        """Remove the assistant's lines about a value that is no longer true."""
        known = self.profile(old)
        stale = known.values - new.values
        for shelf in (self.shelves[name] for name in _THEIRS):
            for line in list(shelf.lines):
                echo = self.profile(line)
                if not stale.isdisjoint(echo.values) and not known.words.isdisjoint(echo.words):
                    shelf.drop(line)

    def close(self, done: Profile) -> None:
        """Move a finished task from the open tasks to the done ones."""
        for task in list(self.shelves["tasks"].lines):
            if prose.same_task(done, self.profile(task)):
                self.shelves["tasks"].drop(task)
                self.put("done", task)

    def close_books(self) -> tuple[Facts, frozenset[str]]:
        """Return all facts by section, and the user's words that no longer hold."""
        facts = Facts(**{name: tuple(shelf.lines) for name, shelf in self.shelves.items()})
        return facts, frozenset(self.overtaken.difference(facts.constraints))


def _bare(line: str) -> str:
    return next((line[len(label) :] for label in LABELS if line.startswith(label)), line)


def collect(messages: Sequence[Message], earlier: Facts = UNKNOWN) -> Facts:
    """Return the facts worth keeping of `messages`, in addition to `earlier` ones.

    This is a fold: `collect(a + b)` equals `collect(b, earlier=collect(a))`. Summaries among the
    messages give nothing: `parse` their content and pass it as `earlier`. The result is bounded
    (`BOUNDS`), whatever a user pasted or a tool wrote.
    """
    return collect_held(messages, earlier)[0]


def collect_held(
    messages: Sequence[Message], earlier: Facts = UNKNOWN, *, works: bool = True
) -> tuple[Facts, frozenset[str]]:
    """Return the result of `collect`, and the user's words that a later sentence replaced.

    Without `works` it ignores files, commands and skills.
    """
    ledger = _Ledger(earlier, works=works)
    asked: dict[str, bool] = {}
    for message in messages:
        note_answer(message, asked)
        extract = _extract(message)
        if extract is not _NOTHING:
            ledger.take(extract)
    return ledger.close_books()


STOPS: Final = 8
"""The number of states that a fold keeps on its way."""

LEAST_STEP: Final = 64
"""At least this many messages are folded between two kept states."""


class _Fold(NamedTuple):
    """Positions that were folded in addition to `earlier` facts, and states on the way there."""

    earlier: Facts = UNKNOWN
    places: Sequence[int] = ()
    stops: tuple[tuple[int, _Ledger], ...] = ()


ENDS: Final = 4
"""Kept results of folds: one compaction asks for two or three."""


class Folds:
    """Folds of the messages of one history, at positions in order.

    A fold continues from the previous one, as far as both began with the same positions. A fold
    keeps its state a few times on its way, at intervals of at least `least` messages. Threads may
    share it.
    """

    def __init__(self, least: int = LEAST_STEP) -> None:
        self._least = least
        self._extracts: dict[int, _Extract] = {}
        self._last = _Fold()
        self._ends: tuple[tuple[tuple[int, ...], Facts, tuple[Facts, frozenset[str]]], ...] = ()

    def copy(self) -> Folds:
        """Return the folds for a longer history that begins with this one."""
        made = Folds(self._least)
        made._extracts = dict(self._extracts)
        made._last, made._ends = self._last, self._ends
        return made

    def collect_held(
        self, messages: Sequence[Message], places: tuple[int, ...], earlier: Facts = UNKNOWN
    ) -> tuple[Facts, frozenset[str]]:
        """Return the result of `collect_held` for the messages at these positions."""
        ends = self._ends
        for begun, known, found in ends:
            if begun == places and known == earlier:
                return found
        made = self._fold(messages, places, earlier)
        self._ends = ((places, earlier, made), *ends)[:ENDS]
        return made

    def _fold(
        self, messages: Sequence[Message], places: Sequence[int], earlier: Facts
    ) -> tuple[Facts, frozenset[str]]:
        extracts = self._extracts
        for place in filterfalse(extracts.__contains__, places):
            extracts[place] = _extract(messages[place])
        telling = [place for place in places if extracts[place] is not _NOTHING]
        stops = self._find_stops(telling, earlier)
        begun, ledger = (stops[-1][0], stops[-1][1].copy()) if stops else (0, _Ledger(earlier))
        step = max(len(telling) // STOPS, self._least)
        for number in range(begun, len(telling)):
            if number > begun and not (number - begun) % step:
                stops.append((number, ledger.copy()))
            ledger.take(extracts[telling[number]])
        self._last = _Fold(earlier, telling, tuple(stops))
        return ledger.close_books()

    def _find_stops(self, places: Sequence[int], earlier: Facts) -> list[tuple[int, _Ledger]]:
        """Return the states of the last fold that also lead to these positions."""
        last = self._last
        shared = _count_shared(places, last.places) if earlier == last.earlier else 0
        return [stop for stop in last.stops if stop[0] <= shared]


def _count_shared(one: Sequence[int], other: Sequence[int]) -> int:
    """Return the length of the common beginning of two lists of positions."""
    return sum(1 for _ in takewhile(bool, map(eq, one, other)))
