"""Commands known to read only, told by their words: a convenience, so that people are asked less.

It is no boundary: that is the sandbox, in which every command runs. It knows no shell.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from ullage.core.session.permissions import PLAIN_COMMAND

_READERS: Final = "cat du echo grep head id ls nl pwd stat tail true uname wc whoami"
READERS: Final = frozenset(_READERS.split())
"""None has an option that writes a file or starts a program."""

GIT: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        "diff": frozenset({"--cached", "--name-only", "--name-status", "--staged", "--stat"}),
        "log": frozenset({"--name-only", "--name-status", "--oneline", "--stat", "-p"}),
        "ls-files": frozenset(),
        "show": frozenset({"--name-only", "--name-status", "--oneline", "--stat"}),
        "status": frozenset({"--branch", "--porcelain", "--short", "-b", "-s"}),
    }
)
"""Options by subcommand: others can write files (`--output`) or start programs (`--ext-diff`)."""

MOST_WORDS: Final = 1_000

_COUNT: Final = re.compile(r"-\d{1,6}")


def reads_only(command: str) -> bool:
    """Tell whether a command is one of the known ones, with nothing that a shell would act on."""
    if not PLAIN_COMMAND.fullmatch(command):
        return False
    words = command.split()
    if not words:
        return False
    if words[0] != "git":
        return words[0] in READERS
    options = GIT.get(words[1]) if len(words) > 1 else None
    return options is not None and all(
        not word.startswith("-") or word in options or _COUNT.fullmatch(word) for word in words[2:]
    )


def words(command: str) -> tuple[str, ...]:
    """Return what could be paths in a command, its first thousand pieces, each once."""
    pieces = dict.fromkeys(filter(None, re.split(r"[\s;&|<>()`$\"'={}]+", command)))
    return tuple(pieces)[:MOST_WORDS]
