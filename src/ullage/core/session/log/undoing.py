"""Which changes of files a turn made, by its session's log, and which turn is undone next.

It knows no file: whoever does it looks at what is there now.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ullage.core.errors import ConfigurationError

if TYPE_CHECKING:
    from ullage.core.session.log.fold import Data, Fold

State = Mapping[str, Any] | None
"""What a path was: kind, mode and hash; None where nothing was."""

NAMED: Final = 40
"""Paths that a model is told of, each kind."""


@dataclass(frozen=True, slots=True)
class PathChange:
    """What a turn made of a path: what was there before it, and behind it."""

    path: str
    before: State
    after: State


@dataclass(frozen=True, slots=True)
class Changed:
    """What a turn changed: `number` counts turns from 1.

    `manifest` names what was there before a command that has no end on record: the process died.
    """

    number: int
    turn: str
    workspace: str
    changes: tuple[PathChange, ...]
    manifest: str = ""


def choose(fold: Fold, number: int | None = None, *, again: bool = False) -> Changed | None:
    """Return the turn to undo: the last one that is not undone, or that of a number.

    With `again` it is the one that was undone last, where something of it was left. None where no
    turn changed a file. Raises ConfigurationError for a number that no turn has.
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
    """Return what a turn changed, one change a path; None where it changed nothing."""
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
    """Return what a model is told of files that were brought back."""
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
