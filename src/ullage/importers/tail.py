"""The last reports of a session of Claude Code, Codex or opencode, from the end of its file.

A shell prompt shows them, so it loads little and reads only the tail. Facts outside the tail are
unknown: the window of a Claude session, and the size after a compaction without a report. `claude`
and `codex` read whole files; the tests check that both return the same numbers.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from itertools import islice, pairwise
from typing import Any, Final

from ullage.core.values.fullness import CallLine, Fullness, read_count

TAIL: Final = 128 * 1024
"""Bytes read first, from the end."""

MOST: Final = 4 * 1024 * 1024
"""Most bytes read, from the end: one result may be an image."""

SYNTHETIC: Final = "<synthetic>"
"""The model name that Claude Code puts on answers that no model wrote."""

HEAD: Final = 64 * 1024
ROLLOUTS: Final = 40
"""Rollouts of Codex whose folder is checked."""

_CWD: Final = re.compile(rb'"cwd"\s*:\s*("(?:[^"\\]|\\.)*")')

COMPACTED: Final = "compacted, no report since"
SILENT: Final = "no report yet"


def read_fullness(path: str, source: str) -> Fullness:
    """Return how full the window was at a file's last report; raises OSError without a file."""
    told = list(read_reports(path, source, 1))
    name = identify(path)
    if not told:
        return Fullness(source, name, reason=SILENT)
    last = told[0]
    if last.tokens is None:
        return Fullness(source, last.session or name, last.model, reason=COMPACTED)
    origin = "reported" if last.window else ""
    return Fullness(
        source,
        last.session or name,
        last.model,
        last.tokens,
        last.window,
        origin,
        last.cached,
        compacts_at=find_compaction(path) if source == "claude" else None,
    )


def read_reports(path: str, source: str, most: int) -> list[CallLine]:
    """Return the last reports of a file, newest first, each call once.

    Compactions are included. Raises OSError if it is not a plain file.
    """
    if source == "opencode":
        from ullage.importers.opencode import glance

        return glance.read_reports(path, most)
    room = TAIL
    while True:
        lines, whole = read_tail(path, room)
        found = list(_READERS[source](lines, most))
        if len(found) >= most or whole or room >= MOST:
            return found
        room *= 8


def stamp(path: str, source: str) -> tuple[float, int]:
    """Return the time and size of a session's file; raises OSError if it is missing."""
    if source == "opencode":
        from ullage.importers.opencode import glance

        return glance.stamp(path)
    told = os.stat(path)
    return told.st_mtime, told.st_size


def read_tail(path: str, room: int) -> tuple[list[bytes], bool]:
    """Return the whole lines in the last bytes of a file, and whether these are all of it."""
    with open(path, "rb") as file:
        told = os.fstat(file.fileno())
        if not stat.S_ISREG(told.st_mode):
            raise OSError(f"{path} is no plain file")
        start = max(told.st_size - room, 0)
        file.seek(start)
        lines = file.read(room).split(b"\n")
    return (lines[1:] if start else lines), start == 0


def find_compaction(path: str) -> int | None:
    """Return the tokens of Claude Code's last automatic compaction in the tail, or None."""
    lines, _ = read_tail(path, TAIL)
    for line in reversed(lines):
        if b'"compact_boundary"' in line:
            told = _read(line).get("compactMetadata")
            if isinstance(told, Mapping) and told.get("trigger") == "auto":
                return read_count(told.get("preTokens"))
    return None


def _read(line: bytes) -> Mapping[str, Any]:
    """Return the object in a line, or an empty one without any."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _word(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


# ── Claude Code ─────────────────────────────────────────────────────────────────────────────────


def _read_claude(lines: list[bytes], most: int) -> Iterator[CallLine]:
    """Yield calls and compactions, newest first; the largest line of each call counts."""
    held: CallLine | None = None
    made = 0
    for line in reversed(lines):
        one = _read_claude_line(line)
        if one is None:
            continue
        if held is not None and one.key and one.key == held.key:
            held = max(held, one, key=_size)
            continue
        if held is not None:
            yield held
            made += 1
            if made >= most:
                return
        held = one
    if held is not None:
        yield held


def _size(one: CallLine) -> int:
    return (one.tokens or 0) + one.output


def _read_claude_line(line: bytes) -> CallLine | None:
    if b'"usage"' not in line and b'"compact_boundary"' not in line:
        return None
    fields = _read(line)
    if fields.get("isSidechain") is True or fields.get("isApiErrorMessage") is True:
        return None
    session = _word(fields.get("sessionId"))
    if fields.get("type") == "system" and fields.get("subtype") == "compact_boundary":
        return CallLine(None, session=session)
    message = _mapping(fields.get("message"))
    model = _word(message.get("model"))
    if fields.get("type") != "assistant" or model == SYNTHETIC:
        return None
    usage = _mapping(message.get("usage"))
    read = read_count(usage.get("cache_read_input_tokens")) or 0
    made = read_count(usage.get("cache_creation_input_tokens")) or 0
    tokens = read + made + (read_count(usage.get("input_tokens")) or 0)
    if not tokens:
        return None
    output = read_count(usage.get("output_tokens")) or 0
    key = _word(message.get("id")) or ""
    return CallLine(tokens, read, output, None, model, session, key)


def list_claude(folder: str, bases: list[str]) -> list[str]:
    """Return the sessions of a folder, or of its nearest parent with sessions, newest first.

    `bases` are the folders of projects. A project's folder is its path with a hyphen for each
    character that is not a letter or digit.
    """
    while True:
        slug = re.sub(r"[^A-Za-z0-9]", "-", folder)
        found = [each for base in bases for each in _scan(os.path.join(base, slug))]
        above = os.path.dirname(folder)
        if found or above == folder:
            return [path for _, path in sorted(found, reverse=True)]
        folder = above


def _scan(folder: str) -> Iterator[tuple[float, str]]:
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.endswith(".jsonl") and not entry.name.startswith("agent-"):
                    told = entry.stat()
                    if told.st_size and stat.S_ISREG(told.st_mode):
                        yield told.st_mtime, entry.path
    except OSError:
        return


# ── Codex ───────────────────────────────────────────────────────────────────────────────────────


def _read_codex(lines: list[bytes], most: int) -> Iterator[CallLine]:
    """Yield calls and compactions, newest first.

    Codex repeats its last count, also after a compaction; a repeated count is not a call.
    """
    model, window = _find_setting(lines)
    told = [one for line in reversed(lines) if (one := _read_codex_line(line)) is not None]
    counts = [one for one in told if one.tokens is not None]
    repeats = {id(one) for one, older in pairwise(counts) if one.key and one.key == older.key}
    kept = (one for one in told if id(one) not in repeats)
    for one in islice(kept, most):
        yield one._replace(model=model, window=one.window or window)


def _find_setting(lines: list[bytes]) -> tuple[str | None, int | None]:
    """Return the last model and the last window in the lines."""
    model, window = None, None
    for line in reversed(lines):
        if model is None and b'"turn_context"' in line:
            model = _word(_mapping(_read(line).get("payload")).get("model"))
        elif window is None and b'"model_context_window"' in line:
            payload = _mapping(_read(line).get("payload"))
            held = _mapping(payload.get("info")) or payload
            window = read_count(held.get("model_context_window")) or None
    return model, window


def _read_codex_line(line: bytes) -> CallLine | None:
    """Return the report of a line (without tokens for a compaction), or None."""
    if b'"compacted"' not in line and b'"token_count"' not in line:
        return None
    fields = _read(line)
    payload = _mapping(fields.get("payload"))
    info = _mapping(payload.get("info"))
    if fields.get("type") == "compacted":
        return CallLine(None)
    if payload.get("type") != "token_count" or not info:
        return None
    last, total = _mapping(info.get("last_token_usage")), info.get("total_token_usage")
    tokens = read_count(last.get("total_tokens")) or read_count(last.get("input_tokens"))
    if not tokens:
        return None
    return CallLine(
        tokens,
        read_count(last.get("cached_input_tokens")),
        read_count(last.get("output_tokens")) or 0,
        read_count(info.get("model_context_window")) or None,
        key=json.dumps(total) if total else "",
    )


def list_codex(folder: str, bases: list[str]) -> list[str]:
    """Return the newest rollout whose header names a folder or one of its parents, in a list."""
    found: list[str] = []
    for path in _list_rollouts(bases):
        named = _find_folder(path)
        if named is not None and (folder + os.sep).startswith(named.rstrip(os.sep) + os.sep):
            found.append(path)
            break
    return found


def _list_rollouts(bases: list[str]) -> Iterator[str]:
    """Yield up to `ROLLOUTS` newest rollouts by the dates in their names."""
    left = ROLLOUTS
    for base in bases:
        for folder, inner, names in os.walk(base):
            inner.sort(reverse=True)
            for name in sorted(names, reverse=True):
                if name.startswith("rollout-") and name.endswith(".jsonl"):
                    yield os.path.join(folder, name)
                    left -= 1
                    if not left:
                        return


def find_named(source: str, session: str, bases: list[str]) -> list[str]:
    """Return the sessions of all folders whose id begins with `session`."""
    if source == "codex":
        return [path for path in _list_rollouts(bases) if identify(path).startswith(session)]
    projects = [entry for base in bases for entry in _list_folders(base)]
    found = [each for project in projects for each in _scan(project)]
    paths = (path for _, path in sorted(found, reverse=True))
    return [path for path in paths if identify(path).startswith(session)]


def identify(path: str) -> str:
    """Return the id of a session from the name of its file."""
    stem = os.path.basename(path).removesuffix(".jsonl")
    return stem[-36:] if stem.startswith("rollout-") else stem


def _list_folders(base: str) -> list[str]:
    try:
        with os.scandir(base) as entries:
            return [entry.path for entry in entries if entry.is_dir()]
    except OSError:
        return []


def _find_folder(path: str) -> str | None:
    try:
        return _read_folder(path)
    except (OSError, ValueError, LookupError):
        return None


@lru_cache(512)
def _read_folder(path: str) -> str:
    """Return the folder in a rollout's header; raises LookupError without one. It never changes."""
    with open(path, "rb") as file:
        named = _CWD.search(file.read(HEAD))
    folder = _word(json.loads(named[1])) if named else None
    if folder is None:
        raise LookupError(path)
    return folder


_READERS: Final[Mapping[str, Callable[[list[bytes], int], Iterator[CallLine]]]] = {
    "claude": _read_claude,
    "codex": _read_codex,
}
