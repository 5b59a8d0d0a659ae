"""Commands known to read only, told by their words: a convenience, so that people are asked less.

It is no boundary: that is the sandbox, in which every command runs. It knows no shell.
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

_WRITERS: Final = (
    "add am apply branch checkout cherry-pick clean commit gc merge mv notes rebase reflog reset "
    "restore revert rm sparse-checkout stash switch tag worktree"
)
WRITERS: Final = frozenset(_WRITERS.split())
"""Subcommands that write a repository, and no settings that could start a program."""

CALM: Final = (
    *("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "core.pager=cat"),
    *("-c", "diff.external=", "-c", "core.editor=true", "-c", "sequence.editor=true"),
    *("-c", "commit.gpgSign=false", "-c", "tag.gpgSign=false", "-c", "gc.auto=0"),
    *("-c", "core.sshCommand=false", "-c", "protocol.ext.allow=never"),
)
"""What a repository's settings can have started, turned off."""

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


@dataclass(frozen=True, slots=True)
class GitCall:
    """A command that is git and nothing else: run by itself, without what could start programs."""

    words: tuple[str, ...]
    writes: bool

    def program(self, path: str) -> list[str]:
        """Return what is run; `path` is where programs are looked for."""
        found = shutil.which("git", path=path) or "git"
        subcommand, *rest = self.words
        calm = ["--no-ext-diff", "--no-textconv"] if subcommand in DIFFS else []
        return [found, "--no-pager", *CALM, subcommand, *calm, *rest]


DIFFS: Final = frozenset({"diff", "log", "show"})
"""Subcommands that know what to leave a repository's own programs out by."""


def read_git(command: str) -> GitCall | None:
    """Return a command that is one plain call of git, known to read or to write no settings."""
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
"""Characters of a call of git: the time that a longer one takes to be read grows as its square."""

RISKY: Final = ("--exec", "-x", "--upload-pack", "--receive-pack", "--output", "--template", "-i")
"""Options by which git starts a program, or writes where it is told."""

ACTS: Final = re.compile(r"[\n;&|<>()`$*?\[\]{}~#!\\]")
"""What a shell would act on, outside of quotes."""


def _outside(command: str) -> str:
    """Return a command without what stands in single quotes, or plainly in double ones."""
    return re.sub(r"'[^']*'|\"[^\"$`\\!]*\"", "", command)


def words(command: str) -> tuple[str, ...]:
    """Return what could be paths in a command, its first thousand pieces, each once."""
    pieces = dict.fromkeys(filter(None, re.split(r"[\s;&|<>()`$\"'={}]+", command)))
    return tuple(pieces)[:MOST_WORDS]
