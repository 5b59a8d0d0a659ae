"""Commands known to only read, recognised by their words, so that people are asked less often.

This is a convenience, not a security boundary: every command runs in the sandbox. It knows no
shell.
"""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from ullage.core.session.permissions import PLAIN_COMMAND

_READERS: Final = "cat du echo grep head id ls nl pwd stat tail true uname wc whoami"
READERS: Final = frozenset(_READERS.split())
"""These have no option that writes a file or starts a program."""

GIT: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        "diff": frozenset({"--cached", "--name-only", "--name-status", "--staged", "--stat"}),
        "log": frozenset({"--name-only", "--name-status", "--oneline", "--stat", "-p"}),
        "ls-files": frozenset(),
        "show": frozenset({"--name-only", "--name-status", "--oneline", "--stat"}),
        "status": frozenset({"--branch", "--porcelain", "--short", "-b", "-s"}),
    }
)
"""Safe options by subcommand: others can write files (`--output`) or start programs
(`--ext-diff`)."""

_WRITERS: Final = (
    "add am apply branch checkout cherry-pick clean commit gc merge mv notes rebase reflog reset "
    "restore revert rm sparse-checkout stash switch tag worktree"
)
WRITERS: Final = frozenset(_WRITERS.split())
"""Subcommands that write a repository, but no settings that could start a program."""

CALM: Final = (
    *("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "core.pager=cat"),
    *("-c", "diff.external=", "-c", "core.editor=true", "-c", "sequence.editor=true"),
    *("-c", "commit.gpgSign=false", "-c", "tag.gpgSign=false", "-c", "gc.auto=0"),
    *("-c", "core.sshCommand=false", "-c", "protocol.ext.allow=never"),
)
"""Turns off the programs that a repository's settings can start."""

MOST_WORDS: Final = 1_000

_COUNT: Final = re.compile(r"-\d{1,6}")


def reads_only(command: str) -> bool:
    """Tell whether a command is a known reader without anything that a shell would expand."""
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


@dataclass(frozen=True, slots=True)
class GitCall:
    """A command that only calls git: it runs without a shell and cannot start other programs."""

    words: tuple[str, ...]
    writes: bool

    def program(self, path: str) -> list[str]:
        """Return the program and its arguments; `path` is the search path of programs."""
        found = shutil.which("git", path=path) or "git"
        subcommand, *rest = self.words
        calm = ["--no-ext-diff", "--no-textconv"] if subcommand in DIFFS else []
        return [found, "--no-pager", *CALM, subcommand, *calm, *rest]


DIFFS: Final = frozenset({"diff", "log", "show"})
"""Subcommands with options that turn off a repository's own programs."""


def read_git(command: str) -> GitCall | None:
    """Return a command that is one plain git call that only reads or writes no settings."""
    if len(command) > GIT_MOST:
        return None
    try:
        found = shlex.split(command)
    except ValueError:
        return None
    if len(found) < 2 or found[0] != "git" or ACTS.search(_outside(command)):
        return None
    subcommand, *rest = found[1:]
    if reads_only(command):
        return GitCall((subcommand, *rest), writes=False)
    risky = any(word.startswith(RISKY) for word in rest)
    return (
        GitCall((subcommand, *rest), writes=True) if subcommand in WRITERS and not risky else None
    )


GIT_MOST: Final = 100_000
"""Longest git call that is parsed, in characters: the time grows with the square of the length."""

RISKY: Final = ("--exec", "-x", "--upload-pack", "--receive-pack", "--output", "--template", "-i")
"""Options with which git starts a program, or writes to a given place."""

ACTS: Final = re.compile(r"[\n;&|<>()`$*?\[\]{}~#!\\]")
"""Characters with a meaning for a shell, outside quotes."""


def _outside(command: str) -> str:
    """Return a command without its single-quoted and its plain double-quoted parts."""
    return re.sub(r"'[^']*'|\"[^\"$`\\!]*\"", "", command)


def words(command: str) -> tuple[str, ...]:
    """Return the parts of a command that may be paths: the first thousand, each once."""
    pieces = dict.fromkeys(filter(None, re.split(r"[\s;&|<>()`$\"'={}]+", command)))
    return tuple(pieces)[:MOST_WORDS]
