"""What outlives the messages that said it: facts carried by code, compaction after compaction.

`collect` folds messages into `Facts`, `render` writes them into a budget of tokens, `parse` reads
back what `render` wrote. No model takes part, so a rule comes through in the user's own words.
Only users give constraints, tasks and what was said; only arguments of tool calls give files, and
whether they were written; tool output gives nothing. It knows nothing of dialects, windows,
policies or how tokens are counted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ullage.core.facts import sentences as prose
from ullage.core.facts.segments import drop_quoted, find_series, mask_end
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
from ullage.core.messages.transcript import Call, Message, asks

__all__ = [
    "ASSISTANT",
    "BOUNDS",
    "LABELS",
    "TODO",
    "TOOL",
    "UNKNOWN",
    "WRITES",
    "Facts",
    "collect",
    "collect_held",
    "parse",
    "render",
]

WORDS: Final = ("said", "found", "results")
"""Sections of words that outlived their messages by their worth (`salience`): no rule finds any."""

PATH_MOST: Final = 240
"""Characters of a path; Windows ends at 260 (MAX_PATH), and longer ones are no help to a reader."""

ARGUMENTS_MOST: Final = 2_000_000
"""Characters of arguments that are parsed for paths: a file of 1 MB written by a tool is."""


class Bound(NamedTuple):
    """How much of a section is kept: lines, characters of one line, characters of all."""

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
    "files": Bound(300, PATH_MOST, 24_000),
    "skills": Bound(40, PATH_MOST, 2_400),
    "identifiers": Bound(160, prose.VALUE_MOST + 80, 16_000),
    **dict.fromkeys(WORDS, Bound(20_000, 100_000, 4_000_000)),
}
"""All but words together stay under 45,000 tokens of English. What is over it goes, oldest first;
of constraints what is no rule in itself goes before what is."""

_KEY: Final = "facts"
_SECTION: Final[Mapping[str, str]] = {
    "task": "tasks",
    "decision": "decisions",
    "failure": "failures",
    "value": "identifiers",
}
"""Where a line goes by its kind; rules, decisions and values of users are constraints."""


class _Line(NamedTuple):
    kind: str
    text: str
    profile: Profile


class _List(NamedTuple):
    """The items of a to-do list that are open, and those that are done."""

    left: tuple[str, ...]
    done: tuple[str, ...]


class _Extract(NamedTuple):
    """What one message gives, whatever came before it."""

    lines: tuple[_Line, ...] = ()
    changed: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    skills: tuple[str, ...] = ()
    todo: _List | None = None


_NOTHING: Final = _Extract()


# ── one message ─────────────────────────────────────────────────────────────────────────────────


def _extract(message: Message) -> _Extract:
    """Return what a message gives, worked out once for each message."""
    if message.role not in ("user", "assistant"):
        return _NOTHING
    known: _Extract | None = message.memo.get(_KEY)
    if known is None:
        known = message.memo[_KEY] = _read(message)
    return known


def _read(message: Message) -> _Extract:
    if message.role == "user" and not asks(message):
        return _NOTHING
    user = message.role == "user"
    text = "\n".join(p.text for p in message.parts if p.kind == "text" and p.answers is None)
    text = text if user else drop_thoughts(text)
    lines = tuple(_judge_text(text, user=user)) if text else ()
    if user or not message.calls:
        return _Extract(lines) if lines else _NOTHING
    changed: list[str] = []
    files: list[str] = []
    skills: list[str] = []
    todo: _List | None = None
    for call in message.calls:
        arguments = _arguments(call)
        paths = changed if _writes(call.name, arguments) else files
        paths += _paths(arguments)
        skills += _skills(call.name, arguments)
        listed = _todo(call.name, arguments)
        todo = todo if listed is None else listed
    skills += [p for p in (_skill_of(f) for f in files) if p]
    return _Extract(lines, tuple(changed), tuple(files), tuple(skills), todo)


def _judge_text(text: str, *, user: bool) -> Iterator[_Line]:
    """Yield the lines that the text of a message gives, each sentence in one of them at most."""
    label = "" if user else ASSISTANT
    opening = ""
    told = list(prose.sentences(drop_quoted(text) if user else text))
    series = find_series([sentence for _, sentence in told])
    for place, sentence in told:
        if user and not opening and _OPENS.fullmatch(sentence):
            opening = sentence + " "
            continue
        judged: Judged | None = prose.judge(place, opening + sentence, user=user)
        opening = ""
        listed = place in ("open", "closed") or mask_end(sentence) not in series
        if judged is not None and listed:
            line = judged.text if judged.kind == "done" else label + judged.text
            yield _Line(judged.kind, line, prose.profile(judged.text))


_OPENS: Final = re.compile(
    r"(?:ok,? |sorry,? |no,? |wait,? )?(?:scratch that|forget (?:that|it)|correction|actually"
    r"|on second thoughts?|change of plan)[.!:]?",
    re.IGNORECASE,
)
"""A sentence that says only that the next one changes something."""


def _arguments(call: Call) -> Mapping[str, Any]:
    """Return the arguments of a call; none where they are no JSON object."""
    text = call.arguments
    if len(text) > ARGUMENTS_MOST or not text.lstrip().startswith("{"):
        return {}
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


_PATH_NAMES: Final = (
    "path file_path filepath filename file directory dir folder notebook_path target_file source "
    "destination old_path new_path absolute_path relative_path target_directory paths files "
    "file_paths filenames directories"
)
_PATHS: Final = frozenset(_PATH_NAMES.split())
"""Arguments that are paths by the schemas of common file tools."""


WRITES: Final = re.compile(
    r"write|edit|patch|replace|create|insert|append|delete|remove|move|rename|save", re.IGNORECASE
)
"""How tools that change a file are named. One that only reads and is taken for one of these makes a
result go a little earlier, or its file stand with those that were changed: no more."""

_TEXT_NAMES: Final = (
    "content contents new_string new_str new_text file_text insert_text new_content new_source "
    "patch diff edits replacement"
)
_TEXTS: Final = frozenset(_TEXT_NAMES.split())
"""Arguments that are text for a file by the schemas of common file tools."""


def _writes(tool: str, arguments: Mapping[str, Any]) -> bool:
    """Tell whether a call changes the files that it names: by its name or by a text for them."""
    return WRITES.search(tool) is not None or not _TEXTS.isdisjoint(arguments)


def _paths(arguments: Mapping[str, Any]) -> Iterator[str]:
    for key, value in arguments.items():
        if key in _PATHS:
            for one in value if isinstance(value, list) else (value,):
                path = _path_in(one)
                if path is not None and 0 < len(path) <= PATH_MOST and path.isprintable():
                    yield path


def _path_in(value: object) -> str | None:
    """Return a path, or that of an object which has one."""
    if isinstance(value, dict):
        value = next((value[k] for k in ("path", "file_path", "file") if k in value), None)
    return value if isinstance(value, str) else None


_SKILL: Final = re.compile(r"([^/\\]{1,100})[/\\]SKILL\.md$")


def _skill_of(path: str) -> str | None:
    found = _SKILL.search(path)
    return found[1] if found else None


def _skills(tool: str, arguments: Mapping[str, Any]) -> list[str]:
    if tool.lower() not in ("skill", "load_skill", "use_skill"):
        return []
    named = (arguments.get(k) for k in ("name", "skill", "skill_name", "command"))
    found = next((v for v in named if isinstance(v, str)), "")
    return [found] if 0 < len(found) <= PATH_MOST and found.isprintable() else []


def _todo(tool: str, arguments: Mapping[str, Any]) -> _List | None:
    """Return the items that a call to a to-do or plan tool leaves; None from other calls."""
    if not any(word in tool.lower() for word in ("todo", "plan", "task")):
        return None
    keys = ("todos", "plan", "items", "tasks")
    items = next((arguments[k] for k in keys if isinstance(arguments.get(k), list)), None)
    if items is None:
        return None
    left: list[str] = []
    done: list[str] = []
    for item in items:
        if isinstance(item, dict) and (text := _name_item(item)):
            status = item.get("status")
            if status in ("completed", "done"):
                done.append(TODO + text)
            elif status not in ("cancelled", "canceled"):
                left.append(TODO + text + (NOW if status == "in_progress" else ""))
    return _List(tuple(left), tuple(done))


NOW: Final = " (in progress)"
"""How the item of a to-do list ends that is being worked on."""


def _name_item(item: Mapping[str, Any]) -> str:
    named = (item.get(k) for k in ("content", "step", "text", "title", "description"))
    text = " ".join(next((v for v in named if isinstance(v, str)), "").split())
    return text if len(text) <= prose.SENTENCE_MOST else ""


# ── the fold ────────────────────────────────────────────────────────────────────────────────────


class _Shelf:
    """Lines in order, the newest last, within a bound; a line that comes again moves to the end."""

    def __init__(self, bound: Bound) -> None:
        self.lines: dict[str, None] = {}
        self.weak: dict[str, None] = {}
        self.bound = bound
        self.chars = 0

    def add(self, line: str, *, weak: bool = False) -> None:
        """Add a line; those that are `weak` go first where there are too many."""
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


class _Index:
    """Which lines say something of the same: by masked sentence and by subject."""

    def __init__(self) -> None:
        self.lines: dict[str, dict[str, None]] = {}

    def add(self, line: str, known: Profile) -> None:
        for name in _names(known):
            self.lines.setdefault(name, {})[line] = None

    def like(self, known: Profile) -> list[str]:
        return [line for name in _names(known) for line in self.lines.pop(name, ())]


def _names(known: Profile) -> Iterator[str]:
    if known.lifts and not known.prohibits:
        return
    if known.key:
        yield "k " + known.key
    if known.subject and not known.prohibits:
        yield "s " + known.subject


_THEIRS: Final = ("decisions", "identifiers")
"""Sections in which a later sentence of the assistant takes the place of an older one."""


class _Ledger:
    """The state of the fold. All of it can be had back from the lines alone."""

    def __init__(self, earlier: Facts) -> None:
        self.shelves = {name: _Shelf(bound) for name, bound in BOUNDS.items()}
        self.profiles: dict[str, Profile] = {}
        self.index, self.their_index = _Index(), _Index()
        self.overtaken: set[str] = set()
        for name in BOUNDS:
            for line in getattr(earlier, name):
                self.put(name, line)

    def profile(self, line: str) -> Profile:
        known = self.profiles.get(line)
        if known is None:
            known = self.profiles[line] = prose.profile(_bare(line))
        return known

    def put(self, section: str, line: str, *, weak: bool | None = None) -> None:
        """Add a line to its shelf; `weak` tells whether it is no rule, None: not known."""
        section = find_section(section, line)
        if section == "constraints":
            self.index.add(line, self.profile(line))
            weak = not prose.rule("prose", line) if weak is None else weak
            self.shelves[section].add(line, weak=weak)
            return
        if section in _THEIRS:
            self.their_index.add(line, self.profile(line))
        self.shelves[section].add(line)

    def take(self, extract: _Extract) -> None:
        """Fold what one message gives into what is known."""
        for line in extract.lines:
            self.profiles[line.text] = line.profile
            if line.kind == "done":
                self.close(line.profile)
            else:
                self.state(line)
        for one in extract.skills:
            self.put("skills", one)
        for one in extract.changed:
            self.shelves["files"].drop(one)
            self.put("changed", one)
        for one in extract.files:
            if one not in self.shelves["changed"].lines:
                self.put("files", one)
        if extract.todo is not None:
            self.list_tasks(extract.todo)

    def list_tasks(self, todo: _List) -> None:
        """Put the items of a to-do list in the place of those of the one before it."""
        for task in [t for t in self.shelves["tasks"].lines if t.startswith(TODO)]:
            self.shelves["tasks"].drop(task)
        for task in todo.left:
            self.put("tasks", task)
        for task in todo.done:
            self.put("done", task)

    def state(self, line: _Line) -> None:
        """Put a line where it belongs, and take away those whose place it takes."""
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
        """Take away the lines whose place a sentence of the user takes; return them."""
        new = line.profile
        gone = {old: None for old in self.index.like(new) if old != line.text}
        if new.changes or new.lifts or new.dropped:
            for old in self.shelves["constraints"].lines:
                if old != line.text and prose.supersedes(new, self.profile(old)):
                    gone[old] = None
        for old in gone:
            self.shelves["constraints"].drop(old)
            self.unsay(old, new)
        self.overtaken.update(gone)
        return list(gone)

    def unsay(self, old: str, new: Profile) -> None:
        """Take away what the assistant said of a value that holds no more."""
        known = self.profile(old)
        stale = known.values - new.values
        for shelf in (self.shelves[name] for name in _THEIRS):
            for line in list(shelf.lines):
                echo = self.profile(line)
                if not stale.isdisjoint(echo.values) and not known.words.isdisjoint(echo.words):
                    shelf.drop(line)

    def close(self, done: Profile) -> None:
        """Move a task to what is done that is said to be."""
        for task in list(self.shelves["tasks"].lines):
            if prose.same_task(done, self.profile(task)):
                self.shelves["tasks"].drop(task)
                self.put("done", task)

    def facts(self) -> Facts:
        """Return what is known, section by section."""
        return Facts(**{name: tuple(shelf.lines) for name, shelf in self.shelves.items()})


def _bare(line: str) -> str:
    return next((line[len(label) :] for label in LABELS if line.startswith(label)), line)


def collect(messages: Sequence[Message], earlier: Facts = UNKNOWN) -> Facts:
    """Return what is worth keeping of `messages`, on top of what was known before them.

    A fold: `collect(a + b)` equals `collect(b, earlier=collect(a))`. Summaries among the messages
    give nothing: `parse` what they carry and pass it as `earlier`. What comes back is bounded
    (`BOUNDS`), whatever a user pasted or a tool wrote.
    """
    return collect_held(messages, earlier)[0]


def collect_held(
    messages: Sequence[Message], earlier: Facts = UNKNOWN
) -> tuple[Facts, frozenset[str]]:
    """Return what `collect` does, and what people said that a later sentence took the place of."""
    ledger = _Ledger(earlier)
    for message in messages:
        extract = _extract(message)
        if extract is not _NOTHING:
            ledger.take(extract)
    facts = ledger.facts()
    return facts, frozenset(ledger.overtaken.difference(facts.constraints))
