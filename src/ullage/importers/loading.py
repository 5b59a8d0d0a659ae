"""Reads a session file of any program, and finds the session files of programs.

Facts that are not in a file stay unknown. It knows no windows, no counting and no views.
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
"""Names of the possible sources of a file."""

SAMPLE: Final = Path(__file__).with_name("sample.jsonl")
"""An invented session in Claude Code's format, for a first look."""

_START: Final = 200
_EXPORTED: Final = b'"info"'
"""Text within the first bytes of the output of `opencode export`."""

_LOOKED_AT: Final = 50
"""Lines that are checked to find the program that wrote a file."""


def load(
    name: str | Path, *, source: str | None = None, report: Progress = ignore
) -> ImportedSession:
    """Read the session in a file, or from standard input if `name` is `-`.

    A session of opencode in a database is named by the path of the database, followed by the
    session's id; the path alone names its newest session. `source` is one of SOURCES, or None to
    detect it from the content. `report` gets the number of bytes read so far. Raises
    ConfigurationError for a file that cannot be read, is too large or holds no messages.
    """
    kept = _find_kept(name)
    if kept is not None and source in (None, "opencode"):
        fields, warnings = disk.fetch(kept)
        return _add_limit(reading.read_value(fields, str(kept), warnings))
    return parse(content(name), source=source, path=str(name), report=report)


def _add_limit(session: ImportedSession) -> ImportedSession:
    """Return an opencode session with the window that the settings give for its model."""
    if session.model is None or not session.providers:
        return session
    home, (provider, *_) = places.find_home(os.environ), session.providers
    limit = find_limit(provider, session.model, session.project, os.environ, home)
    return replace(session, window_tokens=limit)


def _find_kept(name: str | Path) -> Path | None:
    """Return the opencode session that a path names, or None for other files."""
    path = Path(name)
    if str(name) == "-":
        return None
    if disk.is_kept(path):
        return path
    return disk.find_newest(path) if is_database(path) else None


def content(name: str | Path) -> bytes:
    """Return the bytes of a file, decompressed, or of standard input if `name` is `-`."""
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
    """Return the newest session of a program.

    Raises ConfigurationError that names the searched places if no session exists.
    """
    return places.latest(source, os.environ if environ is None else environ)


def find(source: str, session_id: str, environ: Mapping[str, str] | None = None) -> Path:
    """Return the one session of a program whose id begins with `session_id`.

    Raises ConfigurationError if no session or more than one matches.
    """
    return places.find(source, session_id, os.environ if environ is None else environ)


def _writer(data: bytes) -> str | None:
    """Return the program that wrote the lines of a file, or None for messages and requests."""
    for fields, _ in islice(ObjectLines(data), _LOOKED_AT):
        if "type" in fields and "payload" in fields and "timestamp" in fields:
            return "codex"
        if "type" in fields and "uuid" in fields and "sessionId" in fields:
            return "claude"
    if _EXPORTED in data[:_START] and reading.is_export(value(data)):
        return "opencode"
    return None
