"""Recorded conversations as values: sessions of other programs, requests, and logs of ullage's own.

What a file does not say stays unknown. It counts nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ullage import importers
from ullage.core.dialects import registry
from ullage.core.errors import ConfigurationError, CorruptLog
from ullage.core.session.log.fold import fold
from ullage.core.session.log.render import Renderer
from ullage.importers.files import content
from ullage.importers.session import ImportedSession
from ullage.storage import ndjson


def read_transcript(path: str | Path, *, source: str | None = None) -> ImportedSession:
    """Return the conversation of a file: `messages`, `current`, `system`, `tools`, `model`.

    Read are sessions of Claude Code, Codex and opencode, requests and messages (JSON or JSON
    lines), and what `ullage export` writes. `source` names the writer, found out otherwise. Raises
    ConfigurationError for a file that cannot be read or holds no conversation.
    """
    if source not in (None, "ullage"):
        return importers.load(path, source=source)
    data = content(Path(path))
    if source == "ullage" or _is_log(data):
        return _read_log(data, str(path))
    return importers.load(path)


def find_transcripts(pattern: str, folders: Sequence[Path]) -> list[Path]:
    """Return the files that a pattern names below the first of the folders that has any, sorted.

    Raises ConfigurationError where there is none.
    """
    for folder in folders:
        found = sorted(path for path in folder.glob(pattern) if path.is_file())
        if found:
            return found
    looked = " or ".join(str(folder) for folder in dict.fromkeys(folders))
    raise ConfigurationError(f"no recorded conversation matches {pattern!r} below {looked}")


def _is_log(data: bytes) -> bool:
    """Tell whether the first line is an event of ours."""
    first, _, _ = data.partition(b"\n")
    try:
        return bool(ndjson.parse(first + b"\n").events)
    except CorruptLog:
        return False


def _read_log(data: bytes, path: str) -> ImportedSession:
    """Return the history of an exported session, as its last model would be sent it."""
    held = fold(ndjson.parse(data, path).events)
    dialect = registry.parse_name(held.served.get("dialect") or registry.DEFAULT)
    model = held.served.get("model")
    named = model if isinstance(model, str) else None
    messages = tuple(Renderer(dialect, named or "").render(held))
    return ImportedSession(
        source="ullage", dialect=dialect, messages=messages, model=named, path=path
    )
