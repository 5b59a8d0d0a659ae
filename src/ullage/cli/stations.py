"""Finds the session for the line: the JSON of Claude Code on stdin, or the newest session here.

Only the end of files is read. Values that no source tells stay unknown; no window and no usage is
invented. The module loads little code, and opens a log only if it is asked for or if there is no
session of other programs.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from ullage.core.values.fullness import Fullness, read_count

MOST: Final = 1024 * 1024
"""Most bytes of stdin that are read; Claude Code sends some two thousand."""

PATIENCE_S: Final = 1.0
"""Seconds that stdin may stay silent: a prompt must not hang on a pipe without a writer."""

WIDE: Final = 1_000_000
"""The window in tokens that Claude Code marks with [1m]."""

SOURCES: Final = ("claude", "codex", "opencode", "ullage")


class Asked(NamedTuple):
    """The requested session: program, beginning of its id, folder, log."""

    source: str | None = None
    session: str | None = None
    folder: str = ""
    store: str | None = None


def read_stdin(patience_s: float = PATIENCE_S) -> bytes | None:
    """Return the text on stdin, b"" if it is empty, or None for a terminal or a silent pipe."""
    if sys.stdin is None or sys.stdin.isatty():
        return None
    try:
        number = sys.stdin.fileno()
    except (OSError, ValueError, AttributeError):
        return None
    data = b""
    end = time.monotonic() + patience_s
    while len(data) <= MOST:
        if not is_ready(number, max(end - time.monotonic(), 0.0)):
            return data or None
        piece = _read_piece(number)
        if not piece:
            break
        data += piece
    return data


def _read_piece(number: int) -> bytes:
    """Return the available data, b"" at the end or after an error."""
    try:
        return os.read(number, 65536)
    except OSError:
        return b""


def is_ready(number: int, wait_s: float) -> bool:
    """Tell whether a file has data to read; True if Windows cannot say."""
    import select

    try:
        return bool(select.select([number], [], [], wait_s)[0])
    except (OSError, ValueError):
        return os.name == "nt"


# ── Claude Code's own word ──────────────────────────────────────────────────────────────────────


def read_status(data: bytes) -> Fullness | None:
    """Return the status of Claude Code on stdin, or None if it is no JSON object.

    The fields are those of its page on status lines, as of version 2.1; any of them may be missing.
    If it has no usage, the transcript's last report is used.
    """
    if len(data) > MOST:
        return None
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(fields, dict):
        return None
    model = _word(_mapping(fields.get("model")).get("id"))
    told = _mapping(fields.get("context_window"))
    tokens, cached = _read_usage(_mapping(told.get("current_usage")))
    size = read_count(told.get("context_window_size")) or None
    one = Fullness(
        source="claude",
        session=_word(fields.get("session_id")),
        model=model or _word(_mapping(fields.get("model")).get("display_name")),
        tokens=tokens,
        window=size,
        origin="reported" if size else "",
        cached=cached,
        share=_read_share(told.get("used_percentage")) if tokens is None else None,
        dollars=_read_number(_mapping(fields.get("cost")).get("total_cost_usd")),
    )
    path = _word(fields.get("transcript_path"))
    if path is not None and os.path.isabs(path):
        one = _add_transcript(one, path)
    if one.tokens is None and one.share is None:
        one = one._replace(reason=one.reason or "no report yet")
    return _find_window(one)


def _read_usage(usage: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """Return the tokens of the last prompt, and how many came from the cache."""
    names = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    counts = [read_count(usage.get(name)) for name in names]
    total = sum(count or 0 for count in counts)
    return (total, counts[2] or 0) if total else (None, None)


def _read_share(value: object) -> float | None:
    """Return a percentage as a share; 0 is sent before the first answer, and counts as unknown."""
    percent = _read_number(value)
    return percent / 100 if percent is not None and 0 < percent <= 1000 else None


def _read_number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > 1e12:
        return None
    return float(value) if math.isfinite(value) and value >= 0 else None


def _add_transcript(one: Fullness, path: str) -> Fullness:
    """Add values from the transcript that the status does not have."""
    from ullage.importers import tail

    try:
        if one.tokens is not None:
            return one._replace(compacts_at=tail.find_compaction(path))
        read = tail.read_fullness(path, "claude")
    except OSError:
        return one
    if one.share is not None and read.tokens is None:
        return one
    return one._replace(
        tokens=read.tokens,
        cached=read.cached,
        model=one.model or read.model,
        compacts_at=read.compacts_at,
        reason=read.reason,
    )


def _find_window(one: Fullness) -> Fullness:
    """Return a `Fullness` with the window of its model if none was reported.

    If a larger prompt than the table's bound was answered, it is the wide window.
    """
    if one.window is not None or not one.model:
        return one
    if one.model.endswith("[1m]"):
        return one._replace(window=WIDE, origin="assumed")
    from ullage.windows.glance import find_bound

    bound = find_bound(one.model)
    if bound is None:
        return one
    if one.tokens is not None and one.tokens > bound:
        wide = one.tokens <= WIDE
        return one._replace(window=WIDE, origin="assumed") if wide else one
    return one._replace(window=bound, origin="table")


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _word(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


# ── the newest session ──────────────────────────────────────────────────────────────────────────


def find_fullness(asked: Asked) -> Fullness:
    """Return how full the newest session of the folder is, or the requested one."""
    if asked.source == "ullage":
        return _find_own(asked) or Fullness("ullage", reason="no log of sessions")
    found = sorted(_list_files(asked), reverse=True)
    for _, source, path in found:
        one = _read_file(path, source)
        if one is not None:
            return one
    own = _find_own(asked) if asked.source is None else None
    where = f"no session of {asked.source}" if asked.source else "no session"
    return own or Fullness(asked.source or "", asked.session, reason=f"{where} here")


def find_file(asked: Asked) -> tuple[str, str] | None:
    """Return the program and the file of the newest requested session, or None."""
    found = sorted(_list_files(asked), reverse=True)
    return (found[0][1], found[0][2]) if found else None


def _read_file(path: str, source: str) -> Fullness | None:
    from ullage.importers import tail

    try:
        if source == "opencode":
            return _read_opencode(path)
        one = tail.read_fullness(path, source)
    except OSError:
        return None
    return _find_window(one) if source == "claude" else one


def _read_opencode(path: str) -> Fullness:
    """Return how full a session of opencode is; its window is in the table, or unknown."""
    from ullage.importers.opencode import glance
    from ullage.windows.glance import find_bound

    one, provider = glance.read_fullness(path)
    bound = find_bound(one.model, provider) if one.model and provider else None
    if bound is None or (one.tokens or 0) > bound:
        return one
    return one._replace(window=bound, origin="table")


def _list_files(asked: Asked) -> list[tuple[float, str, str]]:
    """Return the newest files of the requested programs: time, program, path."""
    from ullage.importers import tail

    found = []
    for source in SOURCES[:-1] if asked.source is None else (asked.source,):
        if source == "opencode":
            found += _list_opencode(asked)
            continue
        bases = list_bases(source)
        if asked.session is not None:
            paths = tail.find_named(source, asked.session, bases)
        elif source == "claude":
            paths = tail.list_claude(asked.folder, bases)[:1]
        else:
            paths = tail.list_codex(asked.folder, bases)
        for path in paths:
            try:
                found.append((os.stat(path).st_mtime, source, path))
            except OSError:
                continue
    return found


def _list_opencode(asked: Asked) -> list[tuple[float, str, str]]:
    """Return the newest sessions in the databases of opencode; without one, no code is loaded."""
    if not os.path.isdir(os.path.join(_find_data(), "opencode")):
        return []
    from ullage.importers.opencode import glance

    bases = glance.list_bases(_find_data())
    found = glance.list_sessions(asked.folder, bases, asked.session)
    return [(at, "opencode", path) for at, path in found]


def _find_data() -> str:
    """Return the data folder of programs."""
    return os.environ.get("XDG_DATA_HOME") or os.path.join(_find_home(), ".local", "share")


def _find_home() -> str:
    return os.environ.get("HOME") or os.environ.get("USERPROFILE") or os.path.expanduser("~")


def list_bases(source: str) -> list[str]:
    """Return the folders of a program's sessions; `importers.places` has the same."""
    home = _find_home()
    if source == "codex":
        base = os.environ.get("CODEX_HOME") or os.path.join(home, ".codex")
        return [os.path.join(base, name) for name in ("sessions", "archived_sessions")]
    named = [p.strip() for p in os.environ.get("CLAUDE_CONFIG_DIR", "").split(",") if p.strip()]
    config = os.environ.get("XDG_CONFIG_HOME") or os.path.join(home, ".config")
    bases = [os.path.expanduser(p) for p in named] or [
        os.path.join(home, ".claude"),
        os.path.join(config, "claude"),
    ]
    return [b if os.path.basename(b) == "projects" else os.path.join(b, "projects") for b in bases]


def _find_own(asked: Asked) -> Fullness | None:
    """Return how full a session of ullage is, or None without a readable log."""
    try:
        path = find_log(asked)
    except LookupError as error:
        return Fullness("ullage", reason=str(error))
    if path is None or not os.path.isfile(path):
        return None
    from ullage.storage import tail

    folder = None if asked.source or asked.session else asked.folder
    try:
        one = tail.read_fullness(path, session=asked.session, folder=folder)
    except tail.NoLog as error:
        return Fullness("ullage", reason=str(error)) if asked.source else None
    return one if asked.source or one.tokens is not None else None


def find_log(asked: Asked) -> str | None:
    """Return the file of the log of sessions, or None for another kind of store.

    Raises LookupError for broken settings. A settings file is read only if ullage's own sessions
    are requested, since that loads more code.
    """
    url = asked.store or os.environ.get("ULLAGE_STORE")
    if url is None and asked.source == "ullage":
        url = _read_setting()
    if url:
        kind, _, rest = url.partition(":")
        path = os.path.expanduser("/" + rest.lstrip("/") if rest.startswith("///") else rest)
        return path if kind == "sqlite" else None
    import platformdirs

    folder = platformdirs.user_data_dir("ullage", appauthor=False)
    return os.path.join(folder, "sessions.db")


def _read_setting() -> str | None:
    """Return the setting `store`; raises LookupError if the settings cannot be read."""
    from ullage import config
    from ullage.core.errors import ConfigurationError

    try:
        return config.load().settings.store
    except ConfigurationError as error:
        raise LookupError(str(error)) from error
