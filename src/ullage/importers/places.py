"""Finds session files in the folders of the programs that write them.

It finds the newest session, and a session by its id. It only opens a file to check whether a
subagent wrote it; it does not know the other contents. The caller passes in the environment.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from ullage.core.errors import ConfigurationError
from ullage.importers.files import ZST
from ullage.importers.lines import value
from ullage.importers.opencode import disk

SOURCES: Final = ("claude", "codex", "opencode")
"""Programs that keep sessions in known folders."""

_HEADER: Final = 4 * 1024 * 1024
"""The first line of a rollout holds the system prompt."""
_ID_LENGTH: Final = 36
"""The name of a rollout is its time and its id, a UUID."""


def folders(source: str, environ: Mapping[str, str]) -> list[Path]:
    """Return the folders in which a program keeps sessions, existing or not."""
    home = find_home(environ)
    if source == "codex":
        base = Path(environ["CODEX_HOME"]) if environ.get("CODEX_HOME") else home / ".codex"
        return [base / "sessions", base / "archived_sessions"]
    if source == "opencode":
        return [disk.find_folder(environ, home)]
    if source != "claude":
        raise ConfigurationError(
            f"{source!r} keeps no sessions in a folder that is known: expected one of "
            f"{', '.join(SOURCES)}, or a path to a file"
        )
    named = [p.strip() for p in environ.get("CLAUDE_CONFIG_DIR", "").split(",") if p.strip()]
    config = environ.get("XDG_CONFIG_HOME")
    bases = [Path(p).expanduser() for p in named] or [
        home / ".claude",
        (Path(config) if config else home / ".config") / "claude",
    ]
    return [base if base.name == "projects" else base / "projects" for base in bases]


def latest(source: str, environ: Mapping[str, str]) -> Path:
    """Return the newest session; raises ConfigurationError that names the searched places."""
    found = list_newest(source, environ)
    for path in found:
        if source == "opencode" or (
            stat_file(path)[1] and not (source == "codex" and by_subagent(path))
        ):
            return path
    raise ConfigurationError(
        f"no session of {source} was found in {describe_folders(source, environ)}"
    )


def find(source: str, session_id: str, environ: Mapping[str, str]) -> Path:
    """Return the one session whose id starts with `session_id`, or raise ConfigurationError."""
    found = {path: identify(path) for path in sessions(source, environ)}
    matching = [path for path, name in found.items() if session_id and name.startswith(session_id)]
    exact = [path for path in matching if found[path] == session_id]
    if len(exact or matching) == 1:
        return (exact or matching)[0]
    if matching:
        some = ", ".join(sorted(str(path) for path in exact or matching)[:5])
        raise ConfigurationError(
            f"{len(exact or matching)} sessions of {source} have an id that begins with "
            f"{session_id!r}: {some}: give more of it, or the path"
        )
    raise ConfigurationError(
        f"no session of {source} has an id that begins with {session_id!r} in "
        f"{describe_folders(source, environ)}"
    )


def find_home(environ: Mapping[str, str]) -> Path:
    """Return the user's home folder."""
    named = environ.get("HOME") or environ.get("USERPROFILE")
    return Path(named) if named else Path.home()


def describe_folders(source: str, environ: Mapping[str, str]) -> str:
    """Return the folders in which a program keeps sessions, for an error message."""
    return " or ".join(str(folder) for folder in folders(source, environ))


def list_newest(source: str, environ: Mapping[str, str]) -> list[Path]:
    """Return session files, newest first, without a subagent's if the listing shows it."""
    if source == "opencode":
        return [one.path for one in list_kept(environ) if not one.is_spawned]
    return sorted(sessions(source, environ), key=stat_file, reverse=True)


def list_kept(environ: Mapping[str, str]) -> list[disk.KeptSession]:
    """Return the sessions of opencode, newest first, including subagents'."""
    return disk.list_kept(disk.find_folder(environ, find_home(environ)), environ)


def sessions(source: str, environ: Mapping[str, str]) -> Iterator[Path]:
    """Yield session files, without a subagent's if the name or folder shows it."""
    if source == "opencode":
        yield from (one.path for one in list_kept(environ))
        return
    for folder in folders(source, environ):
        for path in _matching(source, folder):
            if path.is_file() and not path.name.startswith("agent-"):
                yield path


def _matching(source: str, folder: Path) -> Iterator[Path]:
    """Yield files with a session's name; a compressed one only if there is no plain one."""
    if source == "claude":  # the folder of a session and its subagents is one level deeper
        yield from folder.glob("*.jsonl")
        yield from folder.glob("*/*.jsonl")
        return
    yield from folder.rglob("rollout-*.jsonl")
    packed = folder.rglob(f"rollout-*.jsonl{ZST}")
    yield from (path for path in packed if not path.with_suffix("").exists())


def identify(path: Path) -> str:
    """Return the id of a session from the name of its file."""
    stem = path.name.removesuffix(ZST).removesuffix(".jsonl").removesuffix(".json")
    return stem[-_ID_LENGTH:] if stem.startswith("rollout-") else stem


def stat_file(path: Path) -> tuple[float, int, str]:
    """Return a file's time, size and path; a missing file has time 0 and size 0."""
    try:
        told = path.stat()
    except OSError:
        return 0.0, 0, str(path)
    return told.st_mtime, told.st_size, str(path)


def by_subagent(path: Path) -> bool:
    """Tell whether the header of a rollout names a subagent; False for a compressed one."""
    if path.suffix == ZST:
        return False
    try:
        with path.open("rb") as file:
            header = value(file.readline(_HEADER))
    except OSError:
        return False
    payload = header.get("payload") if isinstance(header, dict) else None
    source = payload.get("source") if isinstance(payload, dict) else None
    return isinstance(source, dict) and "subagent" in source
