"""Read a summariser's answer as lines under fixed headings, and write them in one form.

Small models decorate: Markdown headings, bold, numbers, fences, prose before, thinking. All of it
is read; only the canonical form is written. This module does not judge whether a line is true
(`faithful`) and asks no model (`request`).
"""

from __future__ import annotations

import json
import re
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ullage.core.facts.patterns import LatePattern
from ullage.core.summary.headings import (
    ASKED,
    CORE,
    ELSEWHERE,
    LEAST_IMPORTANT,
    NAMES,
    OTHER,
    SECTIONS,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

LONGEST: Final = 600
"""Characters of a line. A longer one is left out: cutting it could remove its "not"."""

MOST_TEXT: Final = 100_000
"""Characters of an answer that are read, about 25,000 tokens: far more than requested."""

MOST_LINES: Final = 400
"""Lines of an answer that are kept; a looping model repeats the same few forever."""


class Line(NamedTuple):
    """One line of a record: its heading, and its text."""

    section: str
    text: str


def parse(text: str) -> list[Line]:
    """Return the lines of an answer, in the order of `SECTIONS`; [] without a heading.

    Foreign headings are recognised by their shape. If no heading is known and their number is that
    of our headings, their order decides; otherwise their lines stand under `OTHER` with their
    names.

    Leaves out empty lines ("none"), too long lines and repetitions: small models write one fact
    under every heading.
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
    """Return lines in the order of their headings; lines of one heading keep their order."""
    return sorted(lines, key=lambda line: SECTIONS.index(line.section))


def render(lines: Sequence[Line]) -> str:
    """Return a record in its canonical form: `parse` returns the same lines.

    No line can open a section, close quoted tags, or begin like the mark of a summary.
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

    In sections about the past, old lines go first. Returns [] if no line of a core section fits.
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
    """Return text as one line that can open, close or mark nothing; idempotent.

    `<` becomes `&lt;` before anything that could be a tag or a control token of a chat template.
    """
    flat = " ".join(_CONTROL.sub(" ", text).split())
    return _MARK.sub(r"(\1", _TAG.sub("&lt;", flat))


_CONTROL: Final = LatePattern(
    r"[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u2028\u2029\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff"
    r"\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e0fff]"
)
_TAG: Final = LatePattern(r"<(?=[/|!?\w])")
_MARK: Final = LatePattern(r"\[(/?(?:ullage|facts|end of facts)\b)", re.IGNORECASE)
"""Prefixes of this library's blocks: a summary, a placeholder, the carried facts."""

_BULLET: Final = LatePattern(
    r"^(?:[-*+\u2022\u2013\u25e6](?:\s+|$)|\(?\d{1,3}[.)](?:\s+|$)|>\s?|\[[ xX]?\](?:\s+|$))+"
)
_EMPHASIS: Final = LatePattern(r"(\*\*|__)(?=\S)(.{1,200}?)(?<=\S)\1")
_HEADING: Final = LatePattern(
    r"^(?P<hash>#{1,6}\s*)?(?:\(?\d{1,2}[.)]\s*)?(?P<bold>\*{1,3}|_{2,3})?"
    r"(?P<name>[^\W\d_][\w &\u0300-\u036f\u064b-\u065f\u0900-\u0dff-]{1,40}?)"
    r"(?=\s*(?:[:\uff1a(*_\u2013\u2014]|-\s|$))\s*(?:\([^()]{0,40}\)\s*)?"
    r"(?P<colon>[:\uff1a])?\s*(?P<close>\*{1,3}|_{2,3})?\s*(?P<after>[:\uff1a]|[\u2013\u2014-]\s)?"
    r"\s*(?P<rest>.*)$"
)
_SENTENCE: Final = LatePattern(r"(?<=[.!?])\s+(?=[A-Z\"'`])")
_ANY: Final = re.DOTALL | re.IGNORECASE
_THINKING: Final = LatePattern(r"<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)", _ANY)
_THOUGHT: Final = LatePattern(r"\A.*</think(?:ing)?>", _ANY)
_FENCE: Final = LatePattern(r"^[ \t]*(?:```|~~~)[\w-]*[ \t]*$", re.MULTILINE)
_NOTHING: Final = LatePattern(
    r"(?:none|nothing|n/?a|null|nil|unknown|not applicable|empty|no(?:ne)? (?:yet|so far|known)|"
    r"there (?:is|are|were|was) (?:none|nothing|no\b[\w\s]{0,30})|(?:no|none|not) "
    r"(?:further |open |failed |blocking |specific |explicit |current )?(?:questions?|"
    r"attempts?|blockers?|decisions?|items?|steps?|goals?|tasks?|issues?|specified|mentioned|stated|blocked|failures?)"
    r"(?: (?:yet|so far|mentioned|specified|stated|remain(?:ing)?|at this time|found))*|\W*)\W*",
    re.IGNORECASE,
)


def _strip_thinking(text: str) -> str:
    """Return an answer without the model's thinking, even if its opening tag is missing."""
    return _THOUGHT.sub("", _THINKING.sub("", text))


def _says(text: str) -> bool:
    return 0 < len(text) <= LONGEST and _NOTHING.fullmatch(text) is None


def _of_text(text: str) -> Iterator[Line]:
    """Yield the lines under headings, also under foreign ones after the first known one.

    A foreign heading with another style than the last known one is text below that one. A heading
    that only a colon marks opens nothing right after a known one: there it is the first line.
    """
    section: str | None = None
    style, name, told = ("", False), "", False
    for raw in text.splitlines():
        line = raw.strip()
        head, rest = _heading(line)
        if head is not None:
            section, style, name = head, (_find_marks(line), bool(rest)), ""
            told = bool(rest)
        elif section is not None and _find_marks(line) == style[0] and (told or style[0]):
            other = _find_other(line)
            if other is not None:
                section, name, rest = OTHER, other, ""
            elif style[1] and _KIND.match(rest):
                section, name = OTHER, ""
        told = told or bool(rest) or not line
        if section:
            yield from _make_lines(section, name, rest)


def _make_lines(section: str, name: str, text: str) -> Iterator[Line]:
    """Yield a text as lines; under a foreign heading with its name in brackets before each.

    The brackets prevent that it opens a section when it is read again.
    """
    for piece in _pieces(text):
        yield Line(section, f"({clean(name)}) {piece}" if name else piece)


_KIND: Final = LatePattern(r"[^\W\d_](?:[^\W_]|[ -](?=[^\W_])){1,24}[:\uff1a]\s*\S")
"""A line after its kind, as requested: "Decision: ..."."""


def _find_marks(line: str) -> str:
    """Return the marks before a heading: "- ", "##", "**", or ""."""
    return line[: len(line) - len(line.lstrip("#*_- "))]


LEAST_FOREIGN: Final = 3
"""At least this many foreign headings make a record; two are talk about one."""

_FOREIGN: Final = LatePattern(
    r"(?:#{1,6}\s*)(?P<hash>[^\s#].{0,60}?)[:\uff1a]?|\*\*(?P<bold>.{1,60}?)[:\uff1a]?\*\*[:\uff1a]?"
    r"|(?P<colon>[^\W\d_][^.!?:\uff1a]{1,60}?)\s?[:\uff1a]"
)
"""A line with the shape of a heading: marked, or short with a colon at its end."""


def _find_other(line: str) -> str | None:
    """Return the name of a heading recognised by its shape."""
    bare = _BULLET.sub("", line)
    found = _FOREIGN.fullmatch(bare) if bare == line or line[:1].isdigit() else None
    return None if found is None else next(filter(None, found.groups())).strip(" *_")


def _of_foreign(text: str) -> Iterator[Line]:
    """Yield the lines under headings if none of them is known."""
    groups: list[tuple[str, list[str]]] = []
    for raw in text.splitlines():
        line = raw.strip()
        name = _find_other(line)
        if name is not None:
            groups.append((name, []))
        elif groups and line:
            groups[-1][1].append(_BULLET.sub("", line))
    if sum(bool(lines) for _, lines in groups) < LEAST_FOREIGN:
        return
    ordered = len(groups) == len(ASKED)
    for section, (name, lines) in zip(ASKED if ordered else repeat(OTHER), groups, strict=ordered):
        for line in lines:
            yield from _make_lines(section, "" if ordered else name, line)


def _heading(line: str) -> tuple[str | None, str]:
    """Return the section that a line opens, None if it opens none, and the text after it.

    "" is a heading whose lines are dropped. A different heading does not count as a line.
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
    known = NAMES.get(name)
    if known is None and name not in ELSEWHERE:
        return None
    marked = match["colon"] or match["after"] or match["hash"] or (match["bold"] and match["close"])
    if not marked and (rest or bulleted):
        return None  # "Done with the parser" is a sentence, "- Done" an answer
    return known or "", rest


def _pieces(text: str) -> Iterator[str]:
    """Yield a line, or the sentences of a paragraph, each as it may stand in a record."""
    flat = clean(_EMPHASIS.sub(r"\2", text))
    for piece in [flat] if len(flat) <= LONGEST // 2 else _SENTENCE.split(flat):
        _, rest = _heading(piece.strip())
        if rest:
            yield rest


def _object(text: str) -> dict[str, Any] | None:
    """Return the JSON object of an answer, if it has one of our headings as a key."""
    start = text.find("{")
    if start < 0:
        return None
    try:
        fields, _ = json.JSONDecoder().raw_decode(text, start)
    except (ValueError, RecursionError):
        return None
    known = any(_name(key) in NAMES for key in fields)
    return fields if known else None


def _of_object(fields: Mapping[str, Any]) -> Iterator[Line]:
    for key, value in fields.items():
        name = _name(key)
        section = "" if name in ELSEWHERE else NAMES.get(name, OTHER)
        for text in _texts(value) if section else ():
            for piece in text.splitlines():
                yield from _make_lines(section, "" if name in NAMES else key, piece.strip())


def _name(key: str) -> str:
    return key.replace("_", " ").strip(" :#*").casefold()


def _texts(value: Any, depth: int = 3) -> Iterator[str]:
    """Yield the texts of a JSON value: lists are lines, the fields of an object one line."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list) and depth:
        for item in value:
            yield from _texts(item, depth - 1)
    elif isinstance(value, dict) and depth:
        yield "; ".join(t for item in value.values() for t in _texts(item, depth - 1))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield str(value)
