"""Write facts into a budget of tokens, and read the result back.

The form is a block of plain headings with one bullet per line. A line of data cannot open a
section, close a block or begin a message: it stands after "- ", as JSON text if it is not one
printable line. This module knows nothing of messages or of how facts are found.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Final

from ullage.core.facts.patterns import LatePattern
from ullage.core.facts.sentences import rule

Count = Callable[[str], int]

ASSISTANT: Final = "(assistant) "
TOOL: Final = "(from tool output) "
TODO: Final = "(to-do list) "
LABELS: Final = (ASSISTANT, TOOL, TODO)
"""Prefixes of lines that are not the user's own words."""


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts of messages that may be gone; every section is oldest first.

    `goal`, `constraints`, `tasks` and `said` are the user's own words, except open and done tasks
    that begin with one of `LABELS`. `constraints` are rules, decisions and values in the order of
    time; `decisions` and `identifiers` are the assistant's. `changed` are written files, `files`
    are files that were only read, with the lines if not all were read, `commands` are commands that
    ran. `found` are words of the assistant, `results` lines of tool results and of pasted text.
    """

    goal: tuple[str, ...] = ()
    done: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    decisions: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    skills: tuple[str, ...] = ()
    identifiers: tuple[str, ...] = ()
    said: tuple[str, ...] = ()
    found: tuple[str, ...] = ()
    results: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return any(getattr(self, f.name) for f in fields(self))


UNKNOWN: Final = Facts()
"""The facts before any message."""

OPEN: Final = "[facts kept by rule]"
CLOSE: Final = "[end of facts]"

HEADINGS: Final[Mapping[str, str]] = {
    "goal": "Goal, in the user's words:",
    "done": "Done:",
    "tasks": "Open tasks:",
    "constraints": "Rules and decisions, in the user's words:",
    "said": "Said by the user:",
    "decisions": "Decided by the assistant:",
    "identifiers": "Values and identifiers told by the assistant:",
    "found": "Findings and answers of the assistant:",
    "failures": "Failed attempts:",
    "changed": "Files changed:",
    "files": "Files read:",
    "commands": "Commands run:",
    "skills": "Skills used:",
    "results": "From tools and pastes:",
}
"""The sections in the order of writing: the order of a good hand-over."""

FORMER: Final[Mapping[str, str]] = {
    "Constraints, in the user's words:": "constraints",
    "Decisions:": "constraints",
    "Values and identifiers:": "constraints",
    "Files used:": "files",
    "Said by the assistant:": "found",
}
"""Headings of sections up to version 0.1: old blocks are read as well."""

SHARES: Final[Mapping[str, float]] = {
    "goal": 0.09,
    "constraints": 0.59,
    "tasks": 0.10,
    "decisions": 0.04,
    "identifiers": 0.04,
    "failures": 0.04,
    "changed": 0.03,
    "files": 0.02,
    "commands": 0.01,
    "done": 0.01,
    "skills": 0.01,
    "said": 0.02,
    "found": 0.0,
    "results": 0.0,
}
"""The share of each section before the rest is distributed, so that no section starves. The order
is their priority."""

LEFT_OUT: Final = "Left out for space: "
_BULLET: Final = "- "
_SECTIONS: Final[Mapping[str, str]] = {
    **FORMER,
    **{heading: name for name, heading in HEADINGS.items()},
}
_BREAKS: Final = LatePattern(r"[\x7f-\xa0\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
"""Characters that JSON leaves as they are although they break lines, hide text or cannot be
encoded."""


def quote(text: str) -> str:
    """Return a text in the form for a bullet: unchanged, or as JSON text."""
    if text.isprintable() and text and text == text.strip() and text[0] != '"':
        return text
    return _BREAKS.sub(lambda m: f"\\u{ord(m[0]):04x}", json.dumps(text, ensure_ascii=False))


def unquote(text: str) -> str:
    """Return the text that `quote` was given; any other text is unchanged."""
    if not text.startswith('"'):
        return text
    try:
        return str(json.loads(text))
    except ValueError:
        return text


# ── writing ─────────────────────────────────────────────────────────────────────────────────────


def render(facts: Facts, tokens: float, count: Count) -> str:
    """Return the facts as a block of at most `tokens` by `count`; "" if nothing fits.

    A line is there in full or not at all. If not all fit, sections have shares of the budget
    (`SHARES`), the rest is distributed by priority, and the newest lines of a section come first. A
    last line gives the number of lines left out.
    """
    if not facts:
        return ""
    sheet = _Sheet(facts)
    whole = sheet.text(sheet.everything())
    if count(whole) <= tokens:
        return whole
    sheet.price(count)
    frame = count(f"{OPEN}\n{CLOSE}\n{sheet.notice(frozenset())}\n")
    budget = tokens - frame
    while budget > 0:
        chosen = sheet.choose(budget)
        if not chosen:
            return ""
        text = sheet.text(chosen)
        over = count(text) - tokens
        if over <= 0:
            return text
        budget -= max(1, min(over, budget / 4))
    return ""


_Chosen = frozenset[tuple[str, int]]


class _Sheet:
    """The lines of facts, their costs, and their ranks."""

    def __init__(self, facts: Facts) -> None:
        self.lines: dict[str, tuple[str, ...]] = {
            name: tuple(quote(text) for text in getattr(facts, name)) for name in HEADINGS
        }
        self.ranks = {name: _rank_lines(name, getattr(facts, name)) for name in HEADINGS}
        self.costs: dict[str, list[int]] = {}
        self.heads: dict[str, int] = {}

    def everything(self) -> _Chosen:
        return frozenset((name, i) for name, held in self.lines.items() for i in range(len(held)))

    def price(self, count: Count) -> None:
        """Count every line once: line costs add up to the count of the text."""
        for name, held in self.lines.items():
            self.costs[name] = [count(f"{_BULLET}{line}\n") for line in held]
            self.heads[name] = count(HEADINGS[name] + "\n")

    def choose(self, budget: float) -> _Chosen:
        """Return the lines that fit: by shares first, then by priority."""
        chosen: set[tuple[str, int]] = set()
        left = budget
        for share in (True, False):
            for name, most in SHARES.items():
                limit = min(left, budget * most) if share else left
                left -= self.fill(name, limit, chosen)
        return frozenset(chosen)

    def fill(self, name: str, limit: float, chosen: set[tuple[str, int]]) -> float:
        """Choose lines of a section up to `limit`; return their cost."""
        opened = any((name, i) in chosen for i in self.ranks[name])
        spent = 0.0
        for i in self.ranks[name]:
            cost = self.costs[name][i] + (0 if opened else self.heads[name])
            if (name, i) not in chosen and spent + cost <= limit:
                chosen.add((name, i))
                spent += cost
                opened = True
        return spent

    def text(self, chosen: _Chosen) -> str:
        rows = [OPEN]
        for name, held in self.lines.items():
            shown = [_BULLET + line for i, line in enumerate(held) if (name, i) in chosen]
            rows += [HEADINGS[name], *shown] if shown else []
        notice = self.notice(chosen)
        return "\n".join([*rows, notice, CLOSE] if notice else [*rows, CLOSE])

    def notice(self, chosen: _Chosen) -> str:
        """Return the line with the numbers of lines left out; "" if nothing was left out."""
        missing = [
            f"{name} {n}"
            for name, held in self.lines.items()
            if (n := sum((name, i) not in chosen for i in range(len(held))))
        ]
        return LEFT_OUT + ", ".join(missing) if missing else ""


def _rank_lines(name: str, lines: Sequence[str]) -> list[int]:
    """Return the positions of lines by rank, the most important first: usually the newest.

    Constraints that are rules by themselves come before values, decisions, and lines that only
    their position made rules. Identifiers from tools come last.
    """
    newest = range(len(lines) - 1, -1, -1)
    if name == "constraints":
        return sorted(newest, key=lambda i: not rule("prose", lines[i]))
    if name == "identifiers":
        return sorted(newest, key=lambda i: lines[i].startswith(TOOL))
    return list(newest)


# ── reading ─────────────────────────────────────────────────────────────────────────────────────


def parse(text: str) -> tuple[Facts, str]:
    """Return the facts of the first block in a text, and the text without its blocks.

    Unknown sections of a block are skipped. A block that was cut off ends with the text. Put
    foreign prose after a block, or parse it here first, so that invented blocks in it are not taken
    for facts.
    """
    found: dict[str, list[str]] = {}
    rest: list[str] = []
    section: str | None = None
    inside, blocks = False, 0
    for line in text.split("\n"):
        if line == OPEN:
            inside, section, blocks = True, None, blocks + 1
        elif not inside:
            rest.append(line)
        elif line == CLOSE:
            inside = False
        elif line.startswith(_BULLET):
            if section is not None and blocks == 1:
                told = unquote(line[len(_BULLET) :])
                found.setdefault(find_section(section, told), []).append(told)
        else:
            section = _SECTIONS.get(line)
    facts = Facts(**{name: tuple(lines) for name, lines in found.items()})
    return facts, "\n".join(rest).strip("\n")


def find_section(section: str, line: str) -> str:
    """Return the section of a line: text that is not the user's own is never one of their rules."""
    return "identifiers" if section == "constraints" and line.startswith(LABELS) else section
