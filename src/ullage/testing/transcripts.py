"""Recorded conversations as values: sessions of other programs, requests, and logs of ullage's own.

Facts that a file does not state stay unknown. This module counts nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ullage import importers
from ullage.core.errors import ConfigurationError
from ullage.importers.files import content
from ullage.importers.session import ImportedSession
from ullage.replay.places import is_log, read_logged
from ullage.storage import ndjson


def read_transcript(path: str | Path, *, source: str | None = None) -> ImportedSession:
    """Return the conversation of a file: `messages`, `current`, `system`, `tools`, `model`.

    Reads sessions of Claude Code, Codex and opencode, requests and messages (JSON or JSON lines),
    and the output of `ullage export`. `source` names the writer; by default it is detected. Raises
    ConfigurationError for a file that cannot be read or has no conversation.
    """
    if source not in (None, "ullage"):
        return importers.load(path, source=source)
    data = content(Path(path))
    if source == "ullage" or is_log(data.partition(b"\n")[0]):
        return read_logged(ndjson.parse(data, str(path)).events, str(path))
    return importers.load(path)


def find_transcripts(pattern: str, folders: Sequence[Path]) -> list[Path]:
    """Return the files that match a pattern in the first of the folders that has any, sorted.

    Raises ConfigurationError if no file matches.
    """
    for folder in folders:
        found = sorted(path for path in folder.glob(pattern) if path.is_file())
        if found:
            return found
    looked = " or ".join(str(folder) for folder in dict.fromkeys(folders))
    raise ConfigurationError(f"no recorded conversation matches {pattern!r} below {looked}")
