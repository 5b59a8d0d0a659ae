"""Tell what a person typed from what they quoted, line by line, by its shape in any language.

Fences, tags, rulers, heads of mails, documents with headings, and what looks `pasted` open a
quotation. It knows nothing of what a line is worth.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, Literal, NamedTuple

from ullage.core.facts.copied import QUOTED
from ullage.core.facts.pasted import find_pasted

Origin = Literal["typed", "document", "quoted"]
"""Who wrote a line: the person; perhaps the person, in a document of headings; somebody else."""


class TextLine(NamedTuple):
    """A line of a text and where it comes from."""

    text: str
    origin: Origin


_FENCE: Final = re.compile(r"\s{0,3}(?:```|~~~)")
_TAG: Final = re.compile(r"\s*<(/?)([A-Za-z][\w:-]{0,40})[^<>]{0,200}>\s*$")
_OWN: Final = re.compile(
    r"user[_-]?(?:request|query|message|prompt|input|question)|task|feedback", re.IGNORECASE
)
"""Tags in which frameworks put a person's words: Copilot, Cursor, Cline, Roo."""

_RULER: Final = re.compile(r"\s{0,3}([-=_*~])\1{4,200}\s*$")
_TITLED: Final = re.compile(r"\s{0,3}[-=_*]{3,60} ?\w[^\n]{0,80}?\w ?[-=_*]{3,60}\s*$")
_FIELD: Final = re.compile(r"\s{0,3}\*{0,2}[^\W\d_][\w -]{0,24}:\*{0,2}\s+\S")
_ADDRESS: Final = re.compile(r"[\w.+-]{1,64}@[\w-]{1,63}\.[\w.-]{2,63}")
_HEADING: Final = re.compile(r"#{1,6}\s+\S")

HEADINGS: Final = 2
"""Headings of a message behind its first words from which on it holds a document."""


def read_origins(text: str, *, person: bool = True) -> list[TextLine]:
    """Return the lines of a text without those that only open or close a quotation.

    A fence, a tag that is closed, and a pair of rulers end where they end; one ruler, a ruler with
    a title, and the head of a mail (fields, an address in one of them) quote all that follows. Only
    a `person` pastes: models quote within marks.
    """
    lines = text.splitlines()
    closed = {mark[2] for line in lines if (mark := _TAG.match(line)) and mark[1]}
    own = _find_own(lines, closed)
    rest, document = _find_rest(lines), _find_document(lines)
    found: list[TextLine] = []
    fenced, tag, ruled = False, "", False
    for number, line in enumerate(lines):
        fence, mark = _FENCE.match(line) is not None, _TAG.match(line)
        if mark is not None and not tag and mark[2] in own:
            continue
        mark = mark if mark is not None and mark[2] in closed - own else None
        ruler = _RULER.match(line) is not None
        fenced, ruled = fenced != fence, ruled != (ruler and not fenced)
        tag = tag if mark is None else _enter(tag, mark)
        if fence or mark is not None or ruler:
            continue
        quoted = fenced or tag or ruled or number >= rest
        found.append(TextLine(line, "quoted" if quoted else _judge(number, document)))
    if not person:
        return found
    marked = [line if origin == "typed" or not line.strip() else QUOTED for line, origin in found]
    pasted = find_pasted(marked)
    return [
        line._replace(origin="quoted") if number in pasted and line.origin == "typed" else line
        for number, line in enumerate(found)
    ]


def _find_own(lines: Sequence[str], closed: set[str]) -> frozenset[str]:
    """Return the tags of a person's own words, where a framework put all of a message in tags."""
    tag, outer = "", set[str]()
    for line in lines:
        mark = _TAG.match(line)
        if mark is not None and mark[2] in closed:
            tag = _enter(tag, mark)
            outer.add(tag)
        elif not tag and line.strip():
            return frozenset()
    return frozenset(name for name in outer if _OWN.fullmatch(name))


def _judge(number: int, document: int) -> Origin:
    return "document" if number >= document else "typed"


def _enter(tag: str, found: re.Match[str]) -> str:
    """Return the tag that a text stands in after another one."""
    if found[1]:
        return "" if found[2] == tag else tag
    return tag or found[2]


def _find_rest(lines: Sequence[str]) -> int:
    """Return the first line of what is quoted to the end: behind a title, or the head of a mail."""
    begun, addressed = 0, False
    for number, line in enumerate(lines):
        if _TITLED.match(line):
            return number
        if _FIELD.match(line) is None:
            begun, addressed = number + 1, False
            continue
        addressed = addressed or _ADDRESS.search(line) is not None
        if addressed and number > begun:
            return begun
    return len(lines)


def _find_document(lines: Sequence[str]) -> int:
    """Return the first heading of a document that somebody's words stand before."""
    headings = [number for number, line in enumerate(lines) if _HEADING.match(line)]
    if len(headings) < HEADINGS or not any(line.strip() for line in lines[: headings[0]]):
        return len(lines)
    return headings[0]


def drop_quoted(text: str) -> str:
    """Return what a person surely typed of a text: nobody quotes a wish of their own."""
    return "\n".join(_list_typed(text))


def _list_typed(text: str) -> Iterator[str]:
    return (line.text for line in read_origins(text) if line.origin == "typed")
