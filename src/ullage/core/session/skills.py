"""Skills: knowledge for a kind of work, listed in the prompt and read when it is named.

This module knows neither where skills are stored nor how a model gets them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final

BUDGET: Final = 4_000
"""Most bytes of the list of skills in a prompt: about a thousand tokens."""

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
    """A skill; `description` is one line, `text` the full text, `hash` that of the text."""

    name: str
    description: str
    hash: str
    text: str = field(repr=False)


def hash_text(text: str) -> str:
    """Return the hash that identifies a skill's text in a log: 32 hexadecimal digits."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=HASH_BYTES).hexdigest()


def index(skills: Iterable[Skill], budget: int = BUDGET) -> str:
    """Return the list of skills for a prompt, by name, in at most `budget` bytes of UTF-8.

    Skills that do not fit are counted in a last line. The list is empty without skills, or if not
    even that line fits. The same skills give the same bytes, in any order.
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
    """Return the skills that a text mentions, in the order of their first mention.

    A bare name is no mention: skills have names such as `review` or `test`, and so have other
    things.
    """
    known = {skill.name: skill for skill in skills}
    named = dict.fromkeys(match[1] for match in MENTION.finditer(text))
    return tuple(known[name] for name in named if name in known)


def _name(skill: Skill) -> str:
    return skill.name


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))
