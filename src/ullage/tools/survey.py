"""Records the state of files, links and folders in a workspace, so that they can be restored.

A state describes a path: its kind, mode, and the hash of its contents. It records nothing itself.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final, NamedTuple, Protocol

from ullage.tools import workspace as workspaces
from ullage.tools.tool import Fault
from ullage.tools.workspace import FolderEntry, Workspace

State = Mapping[str, Any]
"""`kind` (file, link, folder), `mode`, and for files and links `hash`.

A file that is too large has the hash None, and a `version` from its times: it cannot be restored.
"""

LARGEST_FILE: Final = 32 * 1024 * 1024
"""Largest file whose contents are kept, in bytes."""

MOST_FILES: Final = 20_000
"""Most files, links and folders checked before a command."""

MOST_BYTES: Final = 256 * 1024 * 1024
"""Most bytes read before a command."""

RACY_NS: Final = 100_000_000
"""File system clocks can stand still for some milliseconds: a file changed more recently is read
again."""

SKIPPED: Final = frozenset(
    {
        *(".git", ".hg", ".svn", ".jj", "node_modules", ".venv", "venv", "__pycache__", ".tox"),
        *(".mypy_cache", ".ruff_cache", ".pytest_cache", ".cache"),
    }
)
"""Folders that are skipped: version control stores, and files that tools create again."""


class Keeper(Protocol):
    """Keeps contents by their hashes; `known` caches earlier results by file."""

    known: dict[str, tuple[list[int], str]]

    def keep(self, data: bytes, *, sync: bool = False) -> str:
        """Keep a content and return its hash; with `sync` it survives a power cut."""
        ...

    def has(self, name: str) -> bool:
        """Tell whether a content is there."""
        ...


@dataclass(slots=True)
class WorkspaceStates:
    """States of a workspace by path; `beyond` lists omitted files, `whole` means all was seen."""

    states: dict[str, State] = field(default_factory=dict)
    beyond: list[str] = field(default_factory=list)
    whole: bool = True


def survey(workspace: Workspace, keeper: Keeper, *, keep: bool) -> WorkspaceStates:
    """Read the states of a workspace, within limits; with `keep` also keep file contents."""
    found, room = WorkspaceStates(), MOST_BYTES
    for entry in workspace.walk("", enter=lambda entry: entry.name not in SKIPPED):
        if len(found.states) >= MOST_FILES:
            found.beyond.append(f"more than {MOST_FILES:,} files: {entry.path} and those after it")
            found.whole = False
            break
        state, read = _entry_state(workspace, entry, _Look(keeper, keep, min(room, LARGEST_FILE)))
        room -= read
        if state is not None:
            found.states[entry.path] = state
            if state["kind"] == "file" and state["hash"] is None:
                found.beyond.append(f"{entry.path} ({entry.status.st_size:,} bytes)")
    return found


class Seen(NamedTuple):
    """The state of a path, and the version that was read; both None if nothing is there."""

    state: State | None
    version: tuple[int, ...] | None


def state_of(workspace: Workspace, path: str, keeper: Keeper) -> Seen:
    """Return the current state of a path. Raises Fault if it leads outside."""
    parent, _, name = path.rpartition("/")
    try:
        with workspace.folder(parent, links=False) as folder:
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            look = _Look(keeper, keep=False, most=LARGEST_FILE)
            state, _ = _entry_state(workspace, FolderEntry(path, name, folder, status), look)
    except (FileNotFoundError, NotADirectoryError):
        return Seen(None, None)
    other = {"kind": "other", "mode": 0, "hash": None}
    return Seen(other if state is None else state, workspaces.version(status))


def state_before(workspace: Workspace, entry: FolderEntry, keeper: Keeper) -> State | None:
    """Return the state of a file before a write, and keep its contents within the limit."""
    return _entry_state(workspace, entry, _Look(keeper, keep=True, most=LARGEST_FILE, sync=True))[0]


def state_of_new(data: bytes, before: State | None) -> State:
    """Return the state of a file after a write; the system chooses the mode of a new file."""
    mode = None if before is None else before["mode"]
    return {"kind": "file", "mode": mode, "hash": hash_content(data)}


def same(one: State | None, other: State | None) -> bool:
    """Tell whether two states are equal: by content, or by the times of a large file."""
    if one is None or other is None:
        return one is other
    names = ("kind", "hash") if one.get("hash") else ("kind", "hash", "version")
    modes = {one["mode"], other["mode"]} - {None}
    return len(modes) < 2 and all(one.get(name) == other.get(name) for name in names)


def changes(
    before: WorkspaceStates, after: WorkspaceStates
) -> Iterator[tuple[str, State | None, State | None]]:
    """Yield the paths whose state has changed."""
    whole = before.whole and after.whole
    for path in sorted({*before.states, *after.states}):
        one, other = before.states.get(path), after.states.get(path)
        seen = whole or (one is not None and other is not None)  # else it may exist, unseen
        if seen and not same(one, other):
            yield path, one, other


class _Look(NamedTuple):
    """How to read a file: `most` is the number of bytes that may be read."""

    keeper: Keeper
    keep: bool
    most: int
    sync: bool = False


def _entry_state(workspace: Workspace, entry: FolderEntry, look: _Look) -> tuple[State | None, int]:
    """Return the state of an entry, or None for other kinds; and the bytes read."""
    mode = stat.S_IMODE(entry.status.st_mode)
    if entry.is_folder:
        return {"kind": "folder", "mode": mode}, 0
    if entry.is_link:
        target = os.fsencode(os.readlink(entry.name, dir_fd=entry.folder))
        return {"kind": "link", "mode": mode, "hash": look.keeper.keep(target)}, 0
    return _file_state(workspace, entry, look) if entry.is_file else (None, 0)


def _file_state(workspace: Workspace, entry: FolderEntry, look: _Look) -> tuple[State, int]:
    status, keeper = entry.status, look.keeper
    state: dict[str, Any] = {"kind": "file", "mode": stat.S_IMODE(status.st_mode)}
    version = [status.st_dev, status.st_ino, status.st_size]
    version += [status.st_mtime_ns, status.st_ctime_ns]
    held, old = keeper.known.get(entry.path), time.time_ns() - status.st_ctime_ns > RACY_NS
    if held is not None and held[0] == version and old and (not look.keep or keeper.has(held[1])):
        return {**state, "hash": held[1]}, 0
    if status.st_size > look.most:
        return {**state, "hash": None, "version": version}, 0
    try:
        with os.fdopen(workspace.entry_file(entry), "rb") as file:
            data = file.read(look.most + 1)
    except (OSError, Fault):
        return {**state, "hash": None, "version": version}, 0
    name = keeper.keep(data, sync=look.sync) if look.keep else hash_content(data)
    keeper.known[entry.path] = (version, name)
    return {**state, "hash": name}, len(data)


def hash_content(data: bytes) -> str:
    """Return the hash of a file's contents."""
    return blake2b(data, digest_size=20).hexdigest()
