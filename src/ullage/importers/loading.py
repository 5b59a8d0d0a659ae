"""Reads the session in a file, whoever wrote it, and tells where the files of programs lie.

What a file does not say stays unknown. Knows no windows, no counting and no views.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Final

from ullage.core.errors import ConfigurationError
from ullage.core.values.progress import Progress, ignore
from ullage.importers import claude, codex, files, places, requests
from ullage.importers.lines import ObjectLines, find_strange, plain, value
from ullage.importers.opencode import disk, reading
from ullage.importers.opencode.limits import find_limit
from ullage.importers.session import ImportedSession, NoMessages
from ullage.sqlite_file import is_database

SOURCES: Final = ("claude", "codex", "opencode", *requests.DIALECTS)
"""What a file may be said to come from."""

SAMPLE: Final = Path(__file__).with_name("sample.jsonl")
"""A made-up session in Claude Code's format, for looking around without one's own."""

_START: Final = 200
_EXPORTED: Final = b'"info"'
"""What stands within the first bytes of what `opencode export` prints."""

_LOOKED_AT: Final = 50
"""Lines that are looked at to tell who wrote a file."""


def load(
    name: str | Path, *, source: str | None = None, report: Progress = ignore
) -> ImportedSession:
    """Read the session in a file, or from standard input where `name` is `-`.

    A session of opencode in a database is named by the path of that file with its id behind it;
    the path alone is the newest one in it.
    `source` is one of SOURCES, or None to tell it by the content; `report` is told of the bytes
    of lines that are read. Raises ConfigurationError for a
    file that cannot be read, is too large or holds no messages.
    """
    kept = _find_kept(name)
    if kept is not None and source in (None, "opencode"):
        fields, warnings = disk.fetch(kept)
        return _add_limit(reading.read_value(fields, str(kept), warnings))
    return parse(content(name), source=source, path=str(name), report=report)


def _add_limit(session: ImportedSession) -> ImportedSession:
    """Return a session of opencode with the window that its settings name for its model."""
    if session.model is None or not session.providers:
        return session
    home, (provider, *_) = places.find_home(os.environ), session.providers
    limit = find_limit(provider, session.model, session.project, os.environ, home)
    return replace(session, window_tokens=limit)


def _find_kept(name: str | Path) -> Path | None:
    """Return the session of opencode that a path names in its storage, None for other files."""
    path = Path(name)
    if str(name) == "-":
        return None
    if disk.is_kept(path):
        return path
    return disk.find_newest(path) if is_database(path) else None


def content(name: str | Path) -> bytes:
    """Return the bytes of a file, decompressed, or of standard input where `name` is `-`."""
    kept = _find_kept(name)
    if kept is not None:
        return disk.write(disk.fetch(kept)[0])
    return files.standard_input() if str(name) == "-" else files.content(Path(name))


def parse(
    data: bytes, *, source: str | None = None, path: str = "", report: Progress = ignore
) -> ImportedSession:
    """Read the session in the bytes of a file, like `load`."""
    name = path or "the file"
    if source is not None and source not in SOURCES:
        raise ConfigurationError(
            f"sessions of {source!r} cannot be read: expected one of {', '.join(SOURCES)}"
        )
    data = plain(data)
    if not data.strip(b"\0 \t\r\n"):
        raise NoMessages(f"{name} is empty: it holds no session")
    found = _read(data, source or _writer(data), path, report)
    strange = find_strange(data, name)
    return replace(found, warnings=(*found.warnings, strange)) if strange else found


def _read(data: bytes, source: str | None, path: str, report: Progress) -> ImportedSession:
    if source == "claude":
        return claude.read(data, path, report)
    if source == "codex":
        return codex.read(data, path, report)
    if source == "opencode":
        return reading.read(data, path, report)
    return requests.read(data, path, requests.DIALECTS.get(source or ""), report)


def latest(source: str, environ: Mapping[str, str] | None = None) -> Path:
    """Return the session of a program that was written last.

    Raises ConfigurationError naming the places looked at where there is none.
    """
    return places.latest(source, os.environ if environ is None else environ)


def find(source: str, session_id: str, environ: Mapping[str, str] | None = None) -> Path:
    """Return the one session of a program whose id begins with `session_id`.

    Raises ConfigurationError where there is none, or more than one.
    """
    return places.find(source, session_id, os.environ if environ is None else environ)


def _writer(data: bytes) -> str | None:
    """Return which program wrote the lines of a file, None for messages and requests."""
    for fields, _ in islice(ObjectLines(data), _LOOKED_AT):
        if "type" in fields and "payload" in fields and "timestamp" in fields:
            return "codex"
        if "type" in fields and "uuid" in fields and "sessionId" in fields:
            return "claude"
    if _EXPORTED in data[:_START] and reading.is_export(value(data)):
        return "opencode"
    return None
