"""Skills: what there is to know for a kind of work, listed in the prompt, read when it is named.

It knows neither where skills are kept nor how a model is told of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final

BUDGET: Final = 4_000
"""Bytes of the list of skills in a prompt: about a thousand tokens."""

NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?")
"""The names of skills (the open format of SKILL.md: 64 letters, digits and hyphens)."""

MENTION: Final = re.compile(
    r"(?:(?<![\w$\\/.-])\$|^[ \t]*/)([a-z0-9][a-z0-9-]{0,63})(?![\w-]|[./:]\w)", re.MULTILINE
)
"""`$name` anywhere, or `/name` at the beginning of a line, as a whole word."""

HEAD: Final = "Skills, each read in full once the user names it as $name:"
LEFT_OUT: Final = "- {n:,} more that are not listed; naming one still reads it"
HASH_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class Skill:
    """A skill; `description` is one line, `text` what is read, `hash` that of the text."""

    name: str
    description: str
    hash: str
    text: str = field(repr=False)


def hash_text(text: str) -> str:
    """Return the hash by which a log names a skill's text: 32 hexadecimal digits."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=HASH_BYTES).hexdigest()


def index(skills: Iterable[Skill], budget: int = BUDGET) -> str:
    """Return the list of skills for a prompt, by name, in at most `budget` bytes of UTF-8.

    What does not fit is counted and said. Nothing is listed without skills, or where not even
    the count fits. The same skills give the same bytes, in whatever order they come.
    """
    lines = [f"- {s.name}: {' '.join(s.description.split())}" for s in sorted(skills, key=_name)]
    if not lines:
        return ""
    whole = "\n".join((HEAD, *lines))
    if _size(whole) <= budget:
        return whole
    room = budget - _size(f"{HEAD}\n{LEFT_OUT.format(n=len(lines))}")
    if room < 0:
        return ""
    listed = []
    for line in lines:
        if _size(line) < room:  # and its line end
            listed.append(line)
            room -= _size(line) + 1
    return "\n".join((HEAD, *listed, LEFT_OUT.format(n=len(lines) - len(listed))))


def find_mentioned(text: str, skills: Iterable[Skill]) -> tuple[Skill, ...]:
    """Return the skills that a text names, in the order in which it first does.

    A name alone is no mention: skills are called `review` or `test`, and so are other things.
    """
    known = {skill.name: skill for skill in skills}
    named = dict.fromkeys(match[1] for match in MENTION.finditer(text))
    return tuple(known[name] for name in named if name in known)


def _name(skill: Skill) -> str:
    return skill.name


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))
