"""Where session files lie: the folders of the programs that write them.

Finds the newest session and one by its id. It opens a file only to see whether a subagent wrote
it; what is in the others it does not know. The environment is handed in.
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
"""Programs that keep sessions in folders of their own."""

_HEADER: Final = 4 * 1024 * 1024
"""A rollout's first line holds the system prompt."""
_ID_LENGTH: Final = 36
"""A rollout is named after its time and its id, a UUID."""


def folders(source: str, environ: Mapping[str, str]) -> list[Path]:
    """Return the folders in which a program keeps sessions, whether they are there or not."""
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
    """Return the session written last; raises ConfigurationError naming the places looked at."""
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
    """Return the session whose id begins so; raises ConfigurationError unless it is one."""
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
    """Return the folder of the user."""
    named = environ.get("HOME") or environ.get("USERPROFILE")
    return Path(named) if named else Path.home()


def describe_folders(source: str, environ: Mapping[str, str]) -> str:
    """Return the folders in which a program keeps sessions, as an error names them."""
    return " or ".join(str(folder) for folder in folders(source, environ))


def list_newest(source: str, environ: Mapping[str, str]) -> list[Path]:
    """Return session files, the newest first; subagents' are left out where that shows."""
    if source == "opencode":
        return [one.path for one in list_kept(environ) if not one.is_spawned]
    return sorted(sessions(source, environ), key=stat_file, reverse=True)


def list_kept(environ: Mapping[str, str]) -> list[disk.KeptSession]:
    """Return the sessions of opencode, the newest first, those of subagents among them."""
    return disk.list_kept(disk.find_folder(environ, find_home(environ)), environ)


def sessions(source: str, environ: Mapping[str, str]) -> Iterator[Path]:
    """Yield session files, subagents' left out where their name or folder tells."""
    if source == "opencode":
        yield from (one.path for one in list_kept(environ))
        return
    for folder in folders(source, environ):
        for path in _matching(source, folder):
            if path.is_file() and not path.name.startswith("agent-"):
                yield path


def _matching(source: str, folder: Path) -> Iterator[Path]:
    """Yield what is named like a session; a compressed one only where no plain one lies by."""
    if source == "claude":  # a session's own folder, with its subagents, lies one floor deeper
        yield from folder.glob("*.jsonl")
        yield from folder.glob("*/*.jsonl")
        return
    yield from folder.rglob("rollout-*.jsonl")
    packed = folder.rglob(f"rollout-*.jsonl{ZST}")
    yield from (path for path in packed if not path.with_suffix("").exists())


def identify(path: Path) -> str:
    """Return the id of a session, after which its file is named."""
    stem = path.name.removesuffix(ZST).removesuffix(".jsonl").removesuffix(".json")
    return stem[-_ID_LENGTH:] if stem.startswith("rollout-") else stem


def stat_file(path: Path) -> tuple[float, int, str]:
    """Return when a file was written and how long it is; a file that just went away is empty."""
    try:
        told = path.stat()
    except OSError:
        return 0.0, 0, str(path)
    return told.st_mtime, told.st_size, str(path)


def by_subagent(path: Path) -> bool:
    """Tell whether the header of a rollout names a subagent; a compressed one is not opened."""
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
