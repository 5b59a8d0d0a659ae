"""Find pasted lines of a message, by the shape that tools and programs give them.

Tool results in the user's role, search results, logs, diffs, listings, tables, transcripts: a
program wrote their frame. Frames of programs are recognised by their words, all else by structure,
in any language. Other kinds of quotation are not known here.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import Final

from ullage.core.facts.copied import QUOTED, find_copied, find_last, find_return
from ullage.core.facts.layout import find_letters
from ullage.core.facts.patterns import LatePattern
from ullage.core.facts.voice import speaks, turns_back

_FRAMES: Final = LatePattern(
    r"\s{0,3}(?:"
    r"observation(?: \d+)?:"  # ReAct, SWE-agent, OpenHands
    r"|(?:the )?(?:(?:execution|command|terminal|shell|tool|function|code|test|web|search|query|"
    r"retrieval|api) )+(?:calls? )?(?:results?|output|response|logs?)"
    r"(?: (?:for|of|from) [^.!?\n]{0,120})?:?\s*$"
    r"|\[[\w ./:-]{1,60}(?: for '[^'\n]{0,200}')?\] (?:results?|output|error)\b"  # Cline, Roo
    r"|(?:here(?:'s| is| are) )?(?:the )?(?:results?|output|contents?) of \S[^!?\n]{0,120}:\s*$"
    r"|(?:the )?user (?:has )?(?:attached|uploaded|provided|shared|selected|opened) (?:the |an? )?"
    r"(?:following|files?|documents?|images?|lines?|text|snippet)\b[^!?\n]{0,120}:\s*$"
    r"|context information is below"  # LlamaIndex
    r"|use the following (?:pieces of )?(?:context|documents?|information|sources?)"  # LangChain
    r")",
    re.IGNORECASE,
)
"""First words of programs in a user's message; the frame goes on to the message's end."""

_DUMPS: Final = LatePattern(
    r"\s{0,3}(?:traceback \(most recent call last\):"
    r"|diff --git |index [0-9a-f]{7,40}\.\.|@@ -\d|\*\*\* (?:begin patch|update file|add file)"
    r"|exit code:? -?\d|stdout:|stderr:"
    r")",
    re.IGNORECASE,
)
"""First words of text copied from a terminal; a person may continue after it."""

_PROMPT: Final = LatePattern(r"\s{0,3}(?:[\w.-]{1,40}@[\w.-]{1,60}[^\s]{0,80}[$#%]|\$|>>>) \S")
_NUMBERED: Final = LatePattern(r"\s{0,8}\d{1,6} ?(?:[|│→]|\t)")
_GREP: Final = LatePattern(r"[\w./\\-]{1,200}:\d{1,6}[:-]")
_MARGIN: Final = LatePattern(r"\s{0,3}[│⋮┃▌┆]")
_TIMED: Final = LatePattern(
    r"[^\w\n]{0,3}(?:\d{4}-\d\d-\d\d|(?:[\d./-]{6,10},? )?\d{1,2}:\d\d(?::\d\d)?\b"
    r"|(?:[^\s\d]{1,24}\s+){1,4}?\(?\d{1,2}:\d\d(?::\d\d)?(?: ?[ap]\.?m\b\.?)?\)?(?::|\s*$))",
    re.IGNORECASE,
)
"""A time at the start of a line, or after a name."""
_LABEL: Final = LatePattern(r"\s{0,3}\W{0,2}([^\s:|][^:|\n]{0,30}):\s+\S")
_QUOTE: Final = LatePattern(r"\s{0,3}>")
_ASKED: Final = LatePattern(r"\s{0,3}(?:Q|Question)\s?\d{0,3}[:.]\s+\S", re.IGNORECASE)
_ANSWERED: Final = LatePattern(r"\s{0,3}(?:A|Answer)\s?\d{0,3}[:.]\s+\S", re.IGNORECASE)
_BEGIN: Final = LatePattern(r"\W{1,12}(?:begin|start)\b[^.!?\n]{0,60}\W{1,12}$", re.IGNORECASE)
_END: Final = LatePattern(r"\W{1,12}(?:end|stop)\b[^.!?\n]{0,60}\W{1,12}$", re.IGNORECASE)
_JSON: Final = LatePattern(r"\s{0,40}[\[{]{1,3}\s{0,3}\"[^\"\n]{1,200}\"\s{0,3}:")
_INSIDE: Final = LatePattern(r"<([A-Za-z][\w-]{0,40})(?: [^<>]{0,200})?>([^<>]{8,4000})</\1>")

_MACHINE: Final = LatePattern(
    r"(?:\s{2,12}(?![-*+•\d])\S"  # indented, and not a list item
    r"|\s{0,8}[\w.-]{1,40} ?[:+]?= ?\S"
    r"|\s{0,8}(?://|/\*|\*/|;;|<!--|<\?|#!|#include|-->)"
    r"|\[[\w .:/-]{1,60}\]\s*$"
    r"|[A-Z][A-Za-z]{0,30}(?:-[A-Z][A-Za-z]{0,30})+: "
    r"|(?:HTTP/\d|total \d+\s*$|[-dlbcps][rwx-]{9}\s)"
    r"|\w{0,40}(?:Error|Exception|Warning)\b[^.!?\n]{0,20}:"
    r"|[+|][-=+|:]{3,200}"
    r"|[=*+~.-]{3,200}\s*$"
    r"|[\w./\\-]{1,120}\.[A-Za-z]\w{0,5}(?: \([^()\n]{1,40}\))?:?\s*$"
    r"|[^\n]{0,400}[{};]\s*$)"
)
"""Lines in the form of programs, not of people."""

_PARTING: Final = LatePattern(r"\s{0,3}([-=_*~.])\1{2,3}\s*$")
"""A short ruler as in Markdown: such lines alone only divide a person's text."""

CELLS: Final = (",", ";", "\t", "|")
ROWS: Final = 3
"""This many lines with an equal number of cells are a table."""

TURNS: Final = 3
"""This many lines with a speaker's name are a transcript, if one speaks twice."""


def find_pasted(marked: Sequence[str]) -> frozenset[int]:
    """Return the numbers of the lines in the frame of a program, or with the look of data.

    Lines that are known to be quoted are given as `QUOTED`.
    """
    lines = ["" if line == QUOTED else line for line in marked]
    found = {*range(_find_frame(lines), len(lines))}
    found.update(*find_letters(lines))
    left = [QUOTED if number in found else line for number, line in enumerate(marked)]
    found.update(find_copied(left))
    made = _find_dump(lines)
    if made < len(lines):
        found.update(range(made, find_return(lines, made, made=True)))
    timed, turns = list[int](), list[int]()
    if len(lines) > 1:  # these need at least two lines
        timed, turns = _list_timed(lines), _list_turns(lines)
        for said in filter(None, (timed, turns)):
            found.update(range(said[0], find_return(lines, said[-1])))
        for alike in (_NUMBERED, _GREP, _MARGIN):
            found.update(_span(lines, alike, 2))
        found.update(_find_machine(lines))
        found.update(_find_rows(lines))
        found.update(_find_between(lines))
    found.update(n for n, line in enumerate(lines) if _QUOTE.match(line) or _is_data(line))
    return frozenset(found.difference(range(_find_own(lines, {*timed, *turns}), len(lines))))


def _find_frame(lines: Sequence[str]) -> int:
    """Return the first line that a program framed to the end of the message."""
    for number, line in enumerate(lines):
        if _FRAMES.match(line):
            return number
        if _ASKED.match(line) and any(map(_ANSWERED.match, lines[number + 1 : number + 21])):
            return number
    return len(lines)


def _find_dump(lines: Sequence[str]) -> int:
    """Return the first line of text copied from a terminal."""
    dumped = (n for n, line in enumerate(lines) if _DUMPS.match(line) or _PROMPT.match(line))
    return next(dumped, len(lines))


def _list_timed(lines: Sequence[str]) -> list[int]:
    """Return the lines that begin with a time, if there are two."""
    timed = [number for number, line in enumerate(lines) if _TIMED.match(line)]
    return timed if len(timed) > 1 else []


def _find_own(lines: Sequence[str], said: Collection[int]) -> int:
    """Return the line at which a person continues after other people's words in the lines `said`.

    It is a last paragraph, or the text directly below. Nearly every line above it has a name or a
    time at its start and it has none, and a person speaks of themselves in it, or asks.
    """
    if not said:
        return len(lines)
    first, last = find_last(lines, 0)
    end, begun = max(said) + 1, min(said)
    told = sum(bool(line.strip()) for line in lines[begun:end])
    if len(said) < OWN_SHARE * told or sum(len(lines[n]) for n in said) < TURN * len(said):
        return len(lines)
    own = max(first, end)
    rest = " ".join(lines[own:last])
    goes_on = speaks(rest) or turns_back(rest)
    return own if goes_on and len(rest) >= OWN_LEAST else len(lines)


OWN_LEAST: Final = 20
"""Characters of text directly below a transcript that may be its reader's words."""

TURN: Final = 30
"""The mean number of characters of a transcript's turn, with its name. Shorter lines are only a
name and a time, above a text."""

OWN_SHARE: Final = 0.8
"""The share of a transcript's lines with a name or a time, if each turn is one line."""


def _span(lines: Sequence[str], shape: LatePattern, least: int) -> range:
    """Return the lines from the first to the last of a shape, empty if there are too few."""
    alike = [number for number, line in enumerate(lines) if shape.match(line)]
    if len(alike) < least:
        return range(0)
    return range(alike[0], alike[-1] + 1)


def _find_machine(lines: Sequence[str]) -> range:
    """Return the lines of a program, with those between them and directly after the last."""
    heads = Counter(head for line in lines if (head := _find_head(line)))
    alike = [
        number
        for number, line in enumerate(lines)
        if _MACHINE.match(line) or heads[_find_head(line)] >= ROWS
    ]
    if len(alike) < 2 or all(_PARTING.match(lines[number]) for number in alike):
        return range(0)
    last = alike[-1]
    while last < len(lines) and lines[last].strip():
        last += 1
    return range(alike[0], last)


def _find_head(line: str) -> str:
    """Return the first two words of a line if they look like a program's mark."""
    head = " ".join(line.split(None, 2)[:2])
    return head if head[-1:] in ("!", ":", "]", "|", ">") else ""


def _list_turns(lines: Sequence[str]) -> list[int]:
    """Return the lines of a transcript: names before a colon, one of them repeated."""
    named = [
        (n, mark[1].casefold()) for n, line in enumerate(lines) if (mark := _LABEL.match(line))
    ]
    speakers = Counter(name for _, name in named)
    if len(named) < TURNS or len(speakers) < 2 or max(speakers.values()) < 2:
        return []
    return [number for number, _ in named]


def _find_rows(lines: Sequence[str]) -> Iterator[int]:
    """Yield the lines of tables: some in a row with an equal number of cells."""
    for mark in CELLS:
        run: list[int] = []
        for number, line in enumerate([*lines, ""]):
            cells = line.count(mark)
            if cells >= 2 and (not run or cells == lines[run[-1]].count(mark)):
                run.append(number)
                continue
            if len(run) >= ROWS:
                yield from run
            run = [number] if cells >= 2 else []


def _find_between(lines: Sequence[str]) -> Iterator[int]:
    """Yield the lines from a "begin" line to its "end" line."""
    begun: int | None = None
    for number, line in enumerate(lines):
        if begun is None and _BEGIN.match(line):
            begun = number
        elif begun is not None and _END.match(line):
            yield from range(begun, number + 1)
            begun = None


def _is_data(line: str) -> bool:
    """Tell whether a line is JSON, or is mostly the text between a tag and its end."""
    if _JSON.match(line):
        return True
    return any(2 * len(found[2]) > len(line) for found in _INSIDE.finditer(line))
