"""Restores the files that a turn changed: the kept content is put back, beneath one folder.

A file that a person changed since is not overwritten, unless that is asked for. The module runs no
tool.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ullage.core.errors import BusyWriter, ConfigurationError
from ullage.core.session.log.event import Draft
from ullage.core.session.log.undoing import Changed, PathChange, State, choose
from ullage.tools.survey import Seen, same, state_of, survey
from ullage.tools.tool import Fault
from ullage.tools.workspace import Workspace

if TYPE_CHECKING:
    from ullage.agent.session import Session

GONE = "what it held is kept no longer"
LARGE = "it was too large to be kept"
SINCE = "it was changed since"
UNKNOWN = "the process died in a command: whether that changed it is unknown"
FORCED = (SINCE, UNKNOWN)
"""Reasons that `force` ignores."""


@dataclass(frozen=True, slots=True)
class Undone:
    """The restored files of a turn: path and action (restored, removed).

    `left` are paths that were left as they are, each with the reason. `number` counts turns from 1,
    `workspace` is the folder of the paths.
    """

    number: int
    turn: str
    files: tuple[tuple[str, str], ...]
    left: tuple[tuple[str, str], ...]
    workspace: str


def undo_files(
    session: Session, turn: int | None = None, *, force: bool = False, dry_run: bool = False
) -> Undone | None:
    """Restore the files that the last turn changed, or those of turn `turn`, and record it.

    A repeated call undoes one more turn. Files that were changed since are left and reported;
    `force` restores them, too. Returns None if no turn changed a file. Raises BusyWriter while a
    turn runs, ConfigurationError if the folder is gone.
    """
    if session.busy:
        raise BusyWriter(f"a turn of session {session.name} is under way: wait for its end")
    if not dry_run:
        session.renew()
    found = choose(session.fold, turn, again=force)
    if found is None:
        return None
    root = Path(found.workspace)
    if not root.is_dir():
        raise ConfigurationError(f"the folder {root} that turn {found.number} worked in is gone")
    done = _Undoing(session, Workspace(root, state_folder(session.log.url)), force=force)
    made = done.run(found, dry_run=dry_run)
    if not dry_run:
        files = [{"path": path, "did": did} for path, did in made.files]
        left = [{"path": path, "why": why} for path, why in made.left]
        data = {"turn": found.turn, "workspace": found.workspace, "files": files, "left": left}
        session.record([Draft("files_restored", data)])
    return made


def state_folder(url: str) -> Path | None:
    """Return the folder of a log's file, which no tool may reach, or None without a file."""
    scheme, _, path = url.partition("://")
    return Path(path).parent.resolve() if scheme == "sqlite" else None


class _Undoing:
    """One undoing: `_seen` is the state of each path when it was checked."""

    def __init__(self, session: Session, workspace: Workspace, *, force: bool) -> None:
        self._blobs, self._workspace, self._force = session.blobs, workspace, force
        self._files: dict[str, str] = {}
        self._left: dict[str, str] = {}

    def run(self, found: Changed, *, dry_run: bool) -> Undone:
        wanted: list[tuple[PathChange, Seen]] = []
        for change, sure in self._changes(found):
            try:
                seen = self._look(change.path)
            except (Fault, OSError) as error:
                self._left[change.path] = str(error)
                continue
            why = self._why_not(change, seen.state, sure=sure)
            if why:
                self._left[change.path] = why
            elif not same(seen.state, change.before):
                wanted.append((change, seen))
                self._files[change.path] = "removed" if change.before is None else "restored"
        if not dry_run:
            self._apply(wanted)
        files = tuple(item for item in self._files.items() if item[0] not in self._left)
        left = tuple(self._left.items())
        return Undone(found.number, found.turn, files, left, found.workspace)

    def _changes(self, found: Changed) -> Iterator[tuple[PathChange, bool]]:
        """Yield the changes, and whether each is certainly the turn's."""
        listed = {change.path for change in found.changes}
        for change in found.changes:
            yield change, True
        manifest = self._blobs.read(found.manifest) if found.manifest else None
        if manifest is None:
            return
        before: dict[str, Any] = json.loads(manifest)
        now = survey(self._workspace, self._blobs, keep=False)
        for path in sorted({*before, *now.states} - listed):
            if not same(before.get(path), now.states.get(path)) and (path in before or now.whole):
                yield PathChange(path, before.get(path), now.states.get(path)), False

    def _look(self, path: str) -> Seen:
        """Return the state of a path; raises Fault for a path outside the workspace."""
        if not path or self._workspace.relative(path) != path:
            raise Fault("it is no path beneath the workspace")
        return state_of(self._workspace, path, self._blobs)

    def _why_not(self, change: PathChange, now: State, *, sure: bool) -> str:
        """Return why a path is left as it is, or "" if it is not."""
        before = change.before
        if same(now, before):
            return ""
        if not self._force and not (sure and same(now, change.after)):
            return SINCE if sure else UNKNOWN
        if before is not None and before["kind"] != "folder":
            if before.get("hash") is None:
                return LARGE
            if not self._blobs.has(str(before["hash"])):
                return GONE
        return ""

    def _apply(self, wanted: list[tuple[PathChange, Seen]]) -> None:
        """Remove what did not exist, deepest first; put back what did, folders first."""
        by_depth = sorted(wanted, key=lambda item: (item[0].path.count("/"), item[0].path))
        removed = set()
        for change, seen in reversed(by_depth):
            other = change.before is None or (
                seen.state is not None and change.before["kind"] != seen.state["kind"]
            )
            if other and seen.state is not None and self._try(self._take_away, change, seen):
                removed.add(change.path)
        for change, seen in by_depth:
            if change.before is not None and change.path not in self._left:
                at = Seen(None, None) if change.path in removed else seen
                self._try(self._put_back, change, at)

    def _try(self, step: Any, change: PathChange, seen: Seen) -> bool:
        try:
            step(change, seen)
        except (Fault, OSError) as error:
            self._left[change.path] = getattr(error, "strerror", None) or str(error)
            return False
        return True

    def _take_away(self, change: PathChange, seen: Seen) -> None:
        if seen.state is not None and seen.state["kind"] == "folder":
            self._workspace.remove_folder(change.path)
        else:
            self._workspace.take_away(change.path, seen.version)

    def _put_back(self, change: PathChange, seen: Seen) -> None:
        before = change.before or {}
        if before["kind"] == "folder":
            self._workspace.put_folder(change.path, int(before["mode"]))
            return
        data = self._blobs.read(str(before["hash"]))
        if data is None:
            raise Fault(GONE)
        if before["kind"] == "link":
            self._workspace.put_link(change.path, os.fsdecode(data), seen.version)
        else:
            self._workspace.put_file(change.path, data, int(before["mode"]), seen.version)
