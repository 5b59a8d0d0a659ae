"""The file changes of each turn, by its session's log, and the turn to undo next.

This module knows no files: the caller checks their current state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ullage.core.errors import ConfigurationError

if TYPE_CHECKING:
    from ullage.core.session.log.fold import Data, Fold

State = Mapping[str, Any] | None
"""The state of a path: kind, mode and hash, or None if the path did not exist."""

NAMED: Final = 40
"""Most paths of each kind that a model is told."""


@dataclass(frozen=True, slots=True)
class PathChange:
    """A turn's change of a path: its state before the turn and after it."""

    path: str
    before: State
    after: State


@dataclass(frozen=True, slots=True)
class Changed:
    """The changes of a turn; `number` counts turns from 1.

    `manifest` names the state before a command whose end is not recorded, because the process died.
    """

    number: int
    turn: str
    workspace: str
    changes: tuple[PathChange, ...]
    manifest: str = ""


def choose(fold: Fold, number: int | None = None, *, again: bool = False) -> Changed | None:
    """Return the turn to undo: the last one that is not undone, or that with a number.

    With `again` it is the turn that was undone last, if some of its changes are left. Returns None
    if no turn changed a file. Raises ConfigurationError for an unknown number.
    """
    if number is not None:
        if not 1 <= number <= len(fold.turns):
            raise ConfigurationError(
                f"session {fold.session} has turns 1 to {len(fold.turns)}, no turn {number}"
            )
        return _find_changes(fold, fold.turns[number - 1])
    undone = [data for _, kind, data in fold.files if kind == "files_restored"]
    if again and undone and undone[-1].get("left"):
        return _find_changes(fold, undone[-1]["turn"])
    gone = {data["turn"] for data in undone}
    for turn in reversed(fold.turns):
        found = None if turn in gone else _find_changes(fold, turn)
        if found is not None:
            return found
    return None


def _find_changes(fold: Fold, turn: str) -> Changed | None:
    """Return a turn's changes, one per path, or None if it changed nothing."""
    paths: dict[str, PathChange] = {}
    workspace = manifest = ""
    for _, kind, data in fold.files:
        if data["turn"] != turn or kind == "files_restored":
            continue
        workspace = data["workspace"]
        if kind == "snapshot_taken":
            manifest = data["manifest"]
            continue
        if data.get("command") is True:
            manifest = ""
        for path, before, after in map(_read, data["files"]):
            held = paths.get(path)
            paths[path] = PathChange(path, before if held is None else held.before, after)
    made = tuple(change for change in paths.values() if change.before != change.after)
    if not made and not manifest:
        return None
    return Changed(fold.turns.index(turn) + 1, turn, workspace, made, manifest)


def _read(file: Data) -> tuple[str, State, State]:
    return str(file["path"]), file.get("before"), file.get("after")


def notice(data: Data) -> str:
    """Return the message to a model about restored files."""
    told = [
        f"{what}: {_join([str(file['path']) for file in data['files'] if file['did'] == did])}"
        for did, what in (("restored", "restored"), ("removed", "removed"))
        if any(file["did"] == did for file in data["files"])
    ]
    left = [str(file["path"]) for file in data.get("left") or ()]
    if left:
        told.append(f"left as they are: {_join(left)}")
    return (
        "[ullage: the person took back what a turn before had changed in files: "
        f"{'; '.join(told) or 'nothing was left to take back'}. Read a file anew before you use it]"
    )


def _join(paths: list[str]) -> str:
    more = f" and {len(paths) - NAMED:,} more" if len(paths) > NAMED else ""
    return ", ".join(paths[:NAMED]) + more
