"""Plain rules and open tasks that did not fit into a block: the next block gets them again.

A checkpoint carries them until there is room. This module knows no plan and no store.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from ullage.core.compaction.packing import is_plain_rule
from ullage.core.facts.sheet import LABELS, UNKNOWN, Facts, quote

MOST: Final = 24
"""Lines of each kind that are carried, the newest: more would fill a block of their own."""

_KINDS: Final = ("constraints", "tasks")


def find_aside(held: Facts, block: str) -> dict[str, list[str]]:
    """Return the facts of a block that are missing in its text, by section."""
    rules = (x for x in held.constraints if not x.startswith(LABELS) and is_plain_rule(x))
    found = {"constraints": rules, "tasks": iter(held.tasks)}
    left = {name: [x for x in lines if quote(x) not in block] for name, lines in found.items()}
    return {name: lines[-MOST:] for name, lines in left.items() if lines}


def read_aside(aside: object) -> Facts:
    """Return the lines set aside as facts; skips invalid lines, as in an edited store."""
    if not isinstance(aside, Mapping):
        return UNKNOWN
    return Facts(**{name: _read_lines(aside.get(name)) for name in _KINDS})


def _read_lines(lines: object) -> tuple[str, ...]:
    if not isinstance(lines, Sequence) or isinstance(lines, str):
        return ()
    return tuple([line for line in lines if isinstance(line, str)][-MOST:])
