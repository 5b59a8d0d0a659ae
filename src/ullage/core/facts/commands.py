"""Shell commands that only look: their output can be printed again and reports no progress.

Programs are known by name (POSIX utilities and some replacements). An unknown program may do
anything, so tests, builds and diffs never count as looking. If unsure, a command does not count.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final

from ullage.core.facts.patterns import LatePattern

LOOKING: Final = frozenset(
    (
        *(
            "ls",
            "dir",
            "tree",
            "find",
            "fd",
            "pwd",
            "cd",
            "stat",
            "file",
            "du",
            "df",
            "cat",
            "type",
        ),
        *("bat", "head", "tail", "nl", "wc", "sort", "cut", "tr", "column", "jq", "sed", "git"),
        *("grep", "egrep", "fgrep", "rg", "ag", "ack", "which", "whereis", "realpath", "readlink"),
        *("basename", "dirname", "echo", "printf", "printenv", "whoami", "id", "uname", "ps"),
    )
)
"""Programs that print, and change nothing unless `_DOES` finds an option."""

_DOES: Final = LatePattern(
    r"-(exec|ok|delete|fprint|fls)|--(exec|output|pre|open|patch|compress-program)|-[xXoO]"
)
"""Prefixes of options that make such a program do more than look, or show a diff."""

ONLY_OF: Final = frozenset(("grep", "egrep", "fgrep", "rg", "ag", "ls", "ps", "du"))
"""Programs whose `-o`, `-x` and the like only select the output."""

GIT: Final = frozenset(["status", "log", "blame", "ls-files", "ls-tree", "rev-parse", "describe"])
"""Subcommands of git that only show; diffs are the agent's work, and stay."""

_LINES: Final = LatePattern(r"[0-9,$;p ]+")
"""A script of sed that prints lines by number."""

LONGEST: Final = 400
"""Characters of a command that is analysed; a longer one carries a text of its own."""

BETWEEN: Final = frozenset(("&&", "||", "|", ";"))
"""Signs between two commands."""

_NOWHERE: Final = LatePattern(r"(?<![^\s])[12]?(>&[12]|>{1,2} ?(/dev/null|NUL))(?=$|[\s;|&])")
"""Redirection of output to no file."""

_INNER: Final = ("`", "$(", "<(", ">(")
"""Prefixes of a command inside another one, also within quotes."""


@lru_cache(maxsize=1_024)
def only_looks(command: str) -> bool:
    """Tell whether a shell line only looks, as far as names show."""
    if len(command) > LONGEST or any(mark in command for mark in _INNER):
        return False
    plain = _NOWHERE.sub(" ", command).replace("\n", " ; ")
    reader = shlex.shlex(plain, posix=True, punctuation_chars=True)
    reader.commenters = ""
    try:
        parts = list(_split(list(reader)))
    except ValueError:
        return False
    return all(map(_looks, parts)) and any(part[0] != "cd" for part in parts)


def _split(words: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield the commands of a line."""
    part: list[str] = []
    for word in words:
        if word not in BETWEEN:
            part.append(word)
        elif part:
            yield tuple(part)
            part = []
    if part:
        yield tuple(part)


def _looks(part: Sequence[str]) -> bool:
    name, *rest = part
    if any(not word.strip("();<>|&") for word in part if word):
        return False  # a redirection, a subshell, something in the background
    if name.rpartition("/")[0] not in ("", "/bin", "/usr/bin"):
        return False
    name = name.rpartition("/")[2]
    if name == "sed":
        scripts = rest[1:2]
        return rest[:1] == ["-n"] and all(map(_LINES.fullmatch, scripts)) and len(rest) > 1
    if name == "git":
        return _only_shows(rest)
    options = (word for word in rest if name not in ONLY_OF or word.startswith("--"))
    return name in LOOKING and not any(map(_DOES.match, options))


def _only_shows(words: Sequence[str]) -> bool:
    """Tell whether a git command only asks for the state."""
    rest = list(words)
    while rest[:1] == ["--no-pager"] or rest[:1] == ["-C"]:
        rest = rest[2 if rest[0] == "-C" else 1 :]
    if rest == ["branch"]:
        return True
    shows = bool(rest) and rest[0] in GIT
    return shows and not any(word == "-p" or _DOES.match(word) for word in rest[1:])
