"""Which shell commands only look: what they print can be had again, and is no news of the work.

Programs are known by their names (POSIX's utilities and some that stand in for them). Of one that
is not known, anything may come: so tests, builds and diffs are never taken for a look.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final

LOOKING: Final = frozenset(
    [
        "ls",
        "dir",
        "cat",
        "type",
        "bat",
        "head",
        "tail",
        "less",
        "more",
        "nl",
        "wc",
        "sort",
        "uniq",
        "cut",
        "tr",
        "column",
        "grep",
        "egrep",
        "fgrep",
        "rg",
        "ag",
        "ack",
        "find",
        "fd",
        "tree",
        "pwd",
        "cd",
        "stat",
        "file",
        "du",
        "df",
        "which",
        "whereis",
        "realpath",
        "readlink",
        "basename",
        "dirname",
        "echo",
        "printf",
        "printenv",
        "date",
        "whoami",
        "id",
        "uname",
        "hostname",
        "ps",
        "jq",
        "sed",
        "git",
    ]
)
"""Programs that print, and change nothing but by what `DOING` has."""

DOING: Final[Mapping[str, frozenset[str]]] = {
    "find": frozenset(
        ["-exec", "-execdir", "-ok", "-okdir", "-delete", "-fprint", "-fprintf", "-fls"]
    ),
    "fd": frozenset(["-x", "--exec", "-X", "--exec-batch"]),
    "sort": frozenset(("-o",)),
    "tree": frozenset(("-o",)),
}
"""Options by which such a program does more than look."""

GIT: Final = frozenset(
    ["status", "log", "branch", "blame", "ls-files", "ls-tree", "grep", "rev-parse", "describe"]
)
"""What git only shows; diffs are the agent's work, and stay."""

LONGEST: Final = 400
"""Characters of a command that is looked at; longer ones carry a text of their own."""

BETWEEN: Final = frozenset(("&&", "||", "|", ";"))
"""What stands between two commands."""

NOWHERE: Final = frozenset(("/dev/null", "NUL", "1", "2"))
"""Where output may go without a file being written."""


@lru_cache(maxsize=1_024)
def only_looks(command: str) -> bool:
    """Tell whether a line of shell does no more than look, as far as names tell."""
    if not command.strip() or len(command) > LONGEST or "`" in command:
        return False
    reader = shlex.shlex(command.replace("\n", " ; "), posix=True, punctuation_chars=True)
    try:
        words = list(reader)
    except ValueError:
        return False
    parts = list(_split(words))
    return all(map(_looks, parts)) and any(part[0] != "cd" for part in parts)


def _split(words: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield the commands of a line, without what is written nowhere."""
    part: list[str] = []
    for place, word in enumerate(words):
        before = words[place - 1] if place else ""
        if word in BETWEEN:
            if part:
                yield tuple(part)
            part = []
        elif not (word in NOWHERE and before in _AWAY) and not _is_away(words, place):
            part.append(word)
    if part:
        yield tuple(part)


_AWAY: Final = frozenset((">", ">>", ">&"))


def _is_away(words: Sequence[str], place: int) -> bool:
    """Tell whether a word sends output nowhere: its mark, or the number in front of it."""
    rest = words[place : place + 3]
    if rest[0] in "012" and len(rest) > 1:
        rest = rest[1:]
    return rest[0] in _AWAY and len(rest) > 1 and rest[1] in NOWHERE


def _looks(part: Sequence[str]) -> bool:
    if any(not word.strip("();<>|&") for word in part if word):
        return False  # a redirection, a subshell, something in the background
    words = [word for place, word in enumerate(part) if place or "=" not in word]
    name = words[0].replace("\\", "/").rpartition("/")[2] if words else ""
    if name not in LOOKING or not DOING.get(name, frozenset()).isdisjoint(words):
        return False
    if name == "sed":
        return "-n" in words and not any(w.startswith(("-i", "--in-place")) for w in words)
    if name == "git":
        return next((w for w in words[1:] if not w.startswith("-")), "") in GIT
    return True
