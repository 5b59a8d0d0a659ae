"""The project's working instructions: AGENTS.md, in each folder from its root down.

A CLAUDE.md counts in a folder without an AGENTS.md. The files are read anew for every turn;
unusable ones are left out and reported. The module does not know prompts or sessions.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from ullage.core.session.instructions import Guide

NAMES: Final = ("AGENTS.md", "CLAUDE.md")
"""Names of the files; the first existing one of each folder counts."""

MOST_BYTES: Final = 32 * 1024
"""Most bytes of all files together, as in Codex (`project_doc_max_bytes`): some 8,000 tokens."""

MOST_FOLDERS: Final = 32
"""Folders above a workspace that are searched for the root of its repository."""

ROOT: Final = ".git"
"""The mark of a repository's root: a folder, or a file in a work tree."""

FLAGS: Final = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
"""Links are followed by our own code, and a pipe in place of a file blocks nobody."""

Tell = Callable[[str], object]


def read_guides(workspace: Path, tell: Tell | None = None) -> tuple[Guide, ...]:
    """Return the guides, that of the repository's root first, the workspace's last.

    Without a repository, only the workspace is searched. `tell` gets a sentence for each file that
    cannot be read or does not fit. The nearest files are read first; a file that does not fit loses
    its end.
    """
    room, found = MOST_BYTES, []
    for folder in _list_folders(workspace.resolve()):  # the nearest first: it takes precedence
        path = next((folder / name for name in NAMES if os.path.lexists(folder / name)), None)
        if path is None:
            continue
        try:
            text, whole = _read(path, room)
        except (OSError, ValueError) as error:
            said = getattr(error, "strerror", None) or str(error)
            _say(tell, f"the instructions {path} are left out: {said}")
            continue
        if not whole:
            _say(tell, f"the instructions {path} are cut: {MOST_BYTES:,} bytes are read in all")
        room -= len(text.encode())
        if text.strip():
            found.append(Guide(str(path), text.strip(), whole))
    return tuple(reversed(found))


def _say(tell: Tell | None, text: str) -> None:
    if tell is not None:
        tell(text)


def _list_folders(workspace: Path) -> Iterator[Path]:
    """Yield a workspace and the folders above it, up to its repository's root."""
    above = [workspace, *workspace.parents][:MOST_FOLDERS]
    roots = [n for n, folder in enumerate(above) if os.path.lexists(folder / ROOT)]
    yield from above[: roots[0] + 1] if roots else above[:1]


def _read(path: Path, room: int) -> tuple[str, bool]:
    """Return the text of a file and whether it is whole; raises OSError or ValueError."""
    aim = path.resolve()  # CLAUDE.md and AGENTS.md are often one file
    if path.parent not in aim.parents:
        raise ValueError(f"it is a link that leads out of its folder, to {aim}")
    file = os.open(aim, FLAGS)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise ValueError("it is no ordinary file")
        with os.fdopen(os.dup(file), "rb") as opened:
            data = opened.read(room + 1)
    finally:
        os.close(file)
    whole = len(data) <= room
    if not whole:
        data = data[: data.rfind(b"\n", 0, room) + 1]
    if b"\0" in data:
        raise ValueError("it is no text")
    return data.decode("utf-8-sig").replace("\r\n", "\n"), whole
