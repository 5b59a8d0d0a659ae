"""What a summariser wrote, read as lines under fixed headings, and written out again in one form.

Small models decorate: Markdown headings, bold, numbers, fences, prose before, thinking. All of it
is read; only the canonical form leaves. It does not judge whether a line is true (`faithful`) and
asks nobody (`summary`).
"""

from __future__ import annotations

import json
import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

SECTIONS: Final = (
    "Goal",
    "Done",
    "In progress",
    "Blocked",
    "Decisions and reasons",
    "Failed attempts",
    "Open questions",
    "Next steps",
)
"""The headings of a summary, in the order in which they are written. What else the specification
names (constraints, preferences, exact identifiers) is carried by code and never by a model."""

CORE: Final = frozenset({"Goal", "Done", "Next steps"})
"""A record without a line under any of these says nothing to go on with."""

LEAST_IMPORTANT: Final = (
    "Open questions",
    "Blocked",
    "Done",
    "Failed attempts",
    "Decisions and reasons",
    "In progress",
    "Next steps",
    "Goal",
)
"""Where lines are left out first when a record is over its budget. Failed attempts outlive what is
done: they keep somebody from trying again."""

LONGEST: Final = 600
"""Characters of a line. A longer one is left out: cutting it could cut its "not" off."""

MOST_TEXT: Final = 100_000
"""Characters of an answer that are read, some 25,000 tokens: far beyond what is asked for."""

MOST_LINES: Final = 400
"""Lines of an answer that are kept; a model that loops writes the same few for ever."""


class Line(NamedTuple):
    """One line of a record: the heading that it stands under, and one line of text."""

    section: str
    text: str


def parse(text: str) -> list[Line]:
    """Return the lines that an answer holds, in the order of `SECTIONS`; [] without a heading.

    Headings in another language are told by their shape: of as many as ours the order tells which
    they are; of others the first is the goal, the last what is next, and the rest is done.

    Empty lines ("none"), those that are too long, and what was said before are left out: small
    models write one fact under every heading.
    """
    text = _FENCE.sub("", _strip_thinking(text[:MOST_TEXT]))
    fields = _object(text)
    found = list(_of_text(text) if fields is None else _of_object(fields))
    found = found or list(_of_foreign(text))
    kept: dict[str, Line] = {}
    for line in found:
        if _says(line.text):
            kept.setdefault(line.text.casefold(), line)
        if len(kept) == MOST_LINES:
            break
    return sort_lines(kept.values())


def sort_lines(lines: Iterable[Line]) -> list[Line]:
    """Return lines in the order of their headings; under one heading as they came."""
    return sorted(lines, key=lambda line: SECTIONS.index(line.section))


def render(lines: Sequence[Line]) -> str:
    """Return a record in its one form: `parse` gives the same lines back.

    No line can open a section, close a quotation of tags, or begin like a summary's own mark.
    """
    out = []
    for section in SECTIONS:
        texts = [line.text for line in lines if line.section == section]
        if texts:
            out.append(f"{section}:")
            out += (f"- {text}" for text in texts)
    return "\n".join(out)


def cut_record(
    lines: Sequence[Line], tokens: int, count: Callable[[str], int]
) -> tuple[list[Line], list[Line]]:
    """Return the lines that fit, the least important left out first, and those left out.

    Old ones go first where a section tells what happened. [] where not even one that matters fits.
    """
    kept, out = list(lines), []
    for section in LEAST_IMPORTANT:
        of_it = [row for row in kept if row.section == section]
        told = section in ("Done", "Failed attempts", "Decisions and reasons")
        for row in of_it if told else reversed(of_it):
            if count(render(kept)) <= tokens:
                break
            kept.remove(row)
            out.append(row)
    return (kept if any(row.section in CORE for row in kept) else []), out


def clean(text: str) -> str:
    """Return text as one line that can open, close or mark nothing; doing it twice changes nothing.

    `<` becomes `&lt;` before all that could be a tag or a control token of a chat template.
    """
    flat = " ".join(_CONTROL.sub(" ", text).split())
    return _MARK.sub(r"(\1", _TAG.sub("&lt;", flat))


_CONTROL: Final = re.compile(
    r"[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u2028\u2029\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff"
    r"\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e0fff]"
)
_TAG: Final = re.compile(r"<(?=[/|!?\w])")
_MARK: Final = re.compile(r"\[(/?(?:ullage|facts|end of facts)\b)", re.IGNORECASE)
"""How blocks of this library begin: a summary, a placeholder, the facts that code carries."""

_NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        name: section
        for section, names in {
            "Goal": "goal;goals;objective;objectives;main goal;overall goal;task;purpose",
            "Done": "done;completed;finished;accomplished;what was done;work done;progress so far;"
            "completed steps;completed tasks",
            "In progress": "in progress;ongoing;in-progress;current state;current status;"
            "current work;work in progress",
            "Blocked": "blocked;blockers;blocking;blocked by;blocking issues",
            "Decisions and reasons": "decisions and reasons;decisions;decision;key decisions;"
            "decisions made;decisions & reasons;decisions and reasoning;decisions with reasons",
            "Failed attempts": "failed attempts;failures;failed;failed attempt;what failed;"
            "failed approaches;unsuccessful attempts",
            "Open questions": "open questions;questions;question;open question;open issues;"
            "unresolved questions;unanswered questions",
            "Next steps": "next steps;next;next step;to do;todo;to-do;remaining;remaining work;"
            "remaining tasks;open tasks;pending",
        }.items()
        for name in names.split(";")
    }
)
"""How models call the headings, in lower case."""

_ELSEWHERE: Final = frozenset(
    {
        "constraints", "constraints and preferences", "preferences", "rules", "exact identifiers",
        "identifiers", "recorded elsewhere", "user constraints", "user preferences", "notes",
        "note", "summary", "record",
    }
)  # fmt: skip
"""Headings whose lines are dropped: what they hold is carried by code, or is talk about it."""

_BULLET: Final = re.compile(
    r"^(?:[-*+\u2022\u2013\u25e6](?:\s+|$)|\(?\d{1,3}[.)](?:\s+|$)|>\s?|\[[ xX]?\](?:\s+|$))+"
)
_EMPHASIS: Final = re.compile(r"(\*\*|__)(?=\S)(.{1,200}?)(?<=\S)\1")
_HEADING: Final = re.compile(
    r"^(?P<hash>#{1,6}\s*)?(?:\(?\d{1,2}[.)]\s*)?(?P<bold>\*{1,3}|_{2,3})?"
    r"(?P<name>[A-Za-z][A-Za-z &-]{2,30}?)(?=\s*(?:[:(*_\u2013\u2014]|-\s|$))\s*"
    r"(?:\([^()]{0,40}\)\s*)?"
    r"(?P<colon>:)?\s*(?P<close>\*{1,3}|_{2,3})?\s*(?P<after>:|[\u2013\u2014-]\s)?\s*(?P<rest>.*)$"
)
_SENTENCE: Final = re.compile(r"(?<=[.!?])\s+(?=[A-Z\"'`])")
_ANY: Final = re.DOTALL | re.IGNORECASE
_THINKING: Final = re.compile(r"<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)", _ANY)
_THOUGHT: Final = re.compile(r"\A.*</think(?:ing)?>", _ANY)
_FENCE: Final = re.compile(r"^[ \t]*(?:```|~~~)[\w-]*[ \t]*$", re.MULTILINE)
_NOTHING: Final = re.compile(
    r"(?:none|nothing|n/?a|null|nil|unknown|not applicable|empty|no(?:ne)? (?:yet|so far|known)|"
    r"there (?:is|are|were|was) (?:none|nothing|no\b[\w\s]{0,30})|(?:no|none|not) "
    r"(?:further |open |failed |blocking |specific |explicit |current )?(?:questions?|"
    r"attempts?|blockers?|decisions?|items?|steps?|goals?|tasks?|issues?|specified|mentioned|stated|blocked|failures?)"
    r"(?: (?:yet|so far|mentioned|specified|stated|remain(?:ing)?|at this time|found))*|\W*)\W*",
    re.IGNORECASE,
)


def _strip_thinking(text: str) -> str:
    """Return an answer without the model's thinking, also where its beginning is missing."""
    return _THOUGHT.sub("", _THINKING.sub("", text))


def _says(text: str) -> bool:
    return 0 < len(text) <= LONGEST and _NOTHING.fullmatch(text) is None


def _of_text(text: str) -> Iterator[Line]:
    section: str | None = None
    for raw in text.splitlines():
        head, rest = _heading(raw.strip())
        if head is not None:
            section = head or None
        if section is not None:
            for piece in _pieces(rest):
                yield Line(section, piece)


LEAST_FOREIGN: Final = 3
"""Headings that are not ours from which on they make a record: two are talk about one."""

_FOREIGN: Final = re.compile(
    r"(?:#{1,6}\s*)(?P<hash>[^\s#].{0,60}?)[:\uff1a]?|(?P<bold>\*\*.{2,60}?\*\*)[:\uff1a]?"
    r"|(?P<colon>[^\W\d_][^.!?:\uff1a]{1,60}?)\s?[:\uff1a]"
)
"""A line that is a heading by its shape: marked, or short with a colon at its end."""


def _of_foreign(text: str) -> Iterator[Line]:
    groups: list[list[str]] = []
    for raw in text.splitlines():
        line = raw.strip()
        bare = _BULLET.sub("", line)
        if (bare == line or line[0].isdigit()) and _FOREIGN.fullmatch(bare):
            groups.append([])
        elif groups and bare:
            groups[-1].append(bare)
    told = [group for group in groups if group]
    if len(told) < LEAST_FOREIGN:
        return
    whole = len(groups) == len(SECTIONS)
    between = ["Goal", *["Done"] * (len(told) - 2), "Next steps"]
    for section, group in zip(
        SECTIONS if whole else between, groups if whole else told, strict=True
    ):
        for line in group:
            yield from (Line(section, piece) for piece in _pieces(line))


def _heading(line: str) -> tuple[str | None, str]:
    """Return the section that a line opens and what follows in it; None where it opens none.

    "" is a heading whose lines are not kept. Another heading than ours is no line.
    """
    section: str | None = None
    while True:
        bare = _BULLET.sub("", line)
        opened = _read_heading(bare, bulleted=bare != line and not line[0].isdigit())
        if opened is None:
            return section, "" if bare.startswith("#") else bare
        section, line = opened


def _read_heading(line: str, *, bulleted: bool) -> tuple[str, str] | None:
    match = _HEADING.match(line)
    if match is None:
        return None
    name, rest = match["name"].strip().casefold(), match["rest"].strip()
    known = _NAMES.get(name)
    if known is None and name not in _ELSEWHERE:
        return None
    marked = match["colon"] or match["after"] or match["hash"] or (match["bold"] and match["close"])
    if not marked and (rest or bulleted):
        return None  # "Done with the parser" is a sentence, "- Done" an answer
    return known or "", rest


def _pieces(text: str) -> Iterator[str]:
    """Return a line, or its sentences where it is a paragraph, each as it may stand in a record."""
    flat = clean(_EMPHASIS.sub(r"\2", text))
    for piece in [flat] if len(flat) <= LONGEST // 2 else _SENTENCE.split(flat):
        _, rest = _heading(piece.strip())
        if rest:
            yield rest


def _object(text: str) -> dict[str, Any] | None:
    """Return the JSON object that an answer is, when it has one of our headings as a key."""
    start = text.find("{")
    if start < 0:
        return None
    try:
        fields, _ = json.JSONDecoder().raw_decode(text, start)
    except (ValueError, RecursionError):
        return None
    known = any(_name(key) in _NAMES for key in fields)
    return fields if known else None


def _of_object(fields: Mapping[str, Any]) -> Iterator[Line]:
    for key, value in fields.items():
        section = _NAMES.get(_name(key))
        if section is not None:
            for text in _texts(value):
                for piece in text.splitlines():
                    yield from (Line(section, p) for p in _pieces(piece.strip()))


def _name(key: str) -> str:
    return key.replace("_", " ").strip(" :#*").casefold()


def _texts(value: Any, depth: int = 3) -> Iterator[str]:
    """Return the texts of a JSON value: lists are lines, the fields of an object one line."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list) and depth:
        for item in value:
            yield from _texts(item, depth - 1)
    elif isinstance(value, dict) and depth:
        yield "; ".join(t for item in value.values() for t in _texts(item, depth - 1))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield str(value)
