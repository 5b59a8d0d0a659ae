"""Lists a program's sessions, newest first: time, project, and title.

It reads only the first and the last lines of a file, and none of a compressed one. opencode keeps
the title of a session in a row or a file of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ullage.importers import codex, places, titles
from ullage.importers.files import ZST
from ullage.importers.lines import ObjectLines
from ullage.importers.opencode.disk import KeptSession
from ullage.importers.opencode.reading import make_title
from ullage.importers.session import words
from ullage.importers.tree import Node

HEAD: Final = 1024 * 1024
"""Bytes from the start of a file: the first line of a rollout holds the system prompt."""

TAIL: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class ListedSession:
    """One session: its id, its file, the file's time (Unix seconds), and its subject.

    `project` is the folder it worked in, `title` its title or the user's first words. Both may be
    None.
    """

    id: str
    path: str
    at: float
    project: str | None = None
    title: str | None = None
    size: int = 0
    """Bytes of its file, or of its messages if it is in a database."""


def list_sessions(
    source: str, environ: Mapping[str, str], most: int
) -> tuple[list[ListedSession], int]:
    """Return up to `most` newest sessions of a program, and how many there are.

    Raises ConfigurationError for a program with unknown folders.
    """
    if source == "opencode":
        kept = [one for one in places.list_kept(environ) if not one.is_spawned]
        return [_opencode(one) for one in kept[:most]], len(kept)
    found = places.list_newest(source, environ)
    read = {"claude": _claude, "codex": _codex}[source]
    made = []
    for path in found[:most]:
        project, title = read(_lines(path))
        at, size, _ = places.stat_file(path)
        made.append(ListedSession(places.identify(path), str(path), at, project, title, size))
    return made, len(found)


def _lines(path: Path) -> list[Mapping[str, Any]]:
    """Return the objects in the first and last lines, or none if the file cannot be read."""
    if path.suffix == ZST:
        return []
    try:
        with path.open("rb") as file:
            data = file.read(HEAD)
            size = file.seek(0, 2)
            if size > HEAD:
                file.seek(max(HEAD, size - TAIL))
                data = data[: data.rfind(b"\n") + 1] + file.read(TAIL).partition(b"\n")[2]
    except OSError:
        return []
    return [line.fields for line in ObjectLines(data)]


def _claude(lines: list[Mapping[str, Any]]) -> tuple[str | None, str | None]:
    nodes = [Node.of(f, str(n), n, torn=False) for n, f in enumerate(lines)]
    main = [node for node in nodes if not node.aside]
    folders = (words(fields.get("cwd")) for fields in lines)
    return next((f for f in folders if f), None), titles.of(lines, main)


def _codex(lines: list[Mapping[str, Any]]) -> tuple[str | None, str | None]:
    payloads = [f["payload"] for f in lines if isinstance(f.get("payload"), Mapping)]
    folders = (words(payload.get("cwd")) for payload in payloads)
    return next((f for f in folders if f), None), next(_list_questions(payloads), None)


def _opencode(one: KeptSession) -> ListedSession:
    title = make_title(one.info, ())
    folder = words(one.info.get("directory"))
    return ListedSession(one.id, str(one.path), one.at, folder, title, one.size)


def _list_questions(payloads: list[Mapping[str, Any]]) -> Iterator[str]:
    for payload in payloads:
        if payload.get("type") == "message" and codex.asks(payload) and codex.text(payload):
            yield titles.line(codex.text(payload))
