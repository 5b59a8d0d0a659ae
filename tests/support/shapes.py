"""Messages with something pasted in them, as it looks when it is copied, from text files.

A shape begins with "=== " and its name. Lines "rule: " and "canary: " say what the person typed and
what somebody else did; behind "---" comes the message. It does not know what is made of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

FOLDER: Final = Path(__file__).parents[1] / "core" / "facts"


class Shape(NamedTuple):
    """A user's message, the rules that they typed in it, and words that are somebody else's."""

    name: str
    text: str
    rules: tuple[str, ...]
    canaries: tuple[str, ...]


def read_shapes(name: str) -> list[Shape]:
    """Return the shapes of a file of `tests/core/facts`."""
    text = (FOLDER / name).read_text(encoding="utf-8")
    return list(_cut_shapes(text))


def _cut_shapes(text: str) -> Iterator[Shape]:
    for part in f"\n{text}".split("\n=== ")[1:]:
        head, _, body = part.partition("\n---\n")
        name, *told = head.splitlines()
        yield Shape(
            name,
            body.rstrip("\n"),
            tuple(line.removeprefix("rule: ") for line in told if line.startswith("rule: ")),
            tuple(line.removeprefix("canary: ") for line in told if line.startswith("canary: ")),
        )


def list_sections(block: str) -> dict[str, str]:
    """Return the text below each heading of a block of facts, white space normalised."""
    found: dict[str, str] = {}
    heading = ""
    for line in block.splitlines():
        if line.startswith("- "):
            found[heading] = f"{found.get(heading, '')} {' '.join(line[2:].split())}".strip()
        else:
            heading = line
    return found


THEIRS: Final = (
    "Goal, in the user's words:",
    "Done:",
    "Open tasks:",
    "Rules and decisions, in the user's words:",
    "Said by the user:",
)
"""Sections that hold what a person said."""


def list_theirs(block: str) -> str:
    """Return what a block of facts says that a person said."""
    found = list_sections(block)
    return " ".join(found.get(heading, "") for heading in THEIRS)
