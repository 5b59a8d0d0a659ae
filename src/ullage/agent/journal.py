"""File changes by the tools of one turn: kept before the change, and recorded in the log.

A file is recorded before it is written; for a command, the whole workspace is compared. Tools work
in threads, but the loop that drives the turn does the recording.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, Final

from ullage.agent.session import Live
from ullage.core.session.log.event import Draft
from ullage.tools.survey import (
    LARGEST_FILE,
    State,
    WorkspaceStates,
    changes,
    state_before,
    state_of_new,
    survey,
)

if TYPE_CHECKING:
    from ullage.agent.session import Session
    from ullage.tools.workspace import FolderEntry, Workspace

TOLD: Final = 5
"""Files that cannot be restored are named up to this number, then counted."""


class TurnJournal:
    """Records the changes in a workspace during a turn; made in the loop that drives it."""

    def __init__(self, session: Session, turn: str, workspace: Workspace) -> None:
        self._session, self._turn, self._workspace = session, turn, workspace
        self._loop = asyncio.get_running_loop()
        self._beyond: set[str] = set()
        self._manifest = ""

    def begin_write(
        self, entry: FolderEntry | None, path: str, data: bytes, made: list[str]
    ) -> None:
        """Keep the content of a file, and record that it is about to be written."""
        blobs = self._session.blobs
        before = None if entry is None else state_before(self._workspace, entry, blobs)
        if before is not None and before["hash"] is None:
            self._tell([f"{path} (more than {LARGEST_FILE:,} bytes)"])
        folder = {"kind": "folder", "mode": None}
        files: list[tuple[str, State | None, State | None]] = [(p, None, folder) for p in made]
        self._record(
            "file_changes",
            files=_list_changes([*files, (path, before, state_of_new(data, before))]),
        )

    def begin_command(self) -> WorkspaceStates:
        """Survey the workspace before a command and record it; the content of files is kept."""
        found = survey(self._workspace, self._session.blobs, keep=True)
        self._tell(found.beyond)
        states = json.dumps(found.states, sort_keys=True).encode()
        self._manifest = self._session.blobs.keep(states)
        self._record("snapshot_taken", manifest=self._manifest, beyond=found.beyond[:TOLD])
        return found

    def end_command(self, before: WorkspaceStates) -> None:
        """Record the changes of a command."""
        found = list(changes(before, survey(self._workspace, self._session.blobs, keep=False)))
        self._record("file_changes", files=_list_changes(found), command=True)
        self._session.blobs.forget(self._manifest)  # only a command without an end needs it

    def _tell(self, beyond: list[str]) -> None:
        """Report once each file that cannot be restored."""
        new = [text for text in beyond if text not in self._beyond]
        self._beyond.update(new)
        if not new:
            return
        more = f", and {len(new) - TOLD:,} more" if len(new) > TOLD else ""
        text = f"undo cannot bring back files too large to keep: {', '.join(new[:TOLD])}{more}"
        live = Live(self._session.name, "status", {"text": text})
        self._loop.call_soon_threadsafe(self._session.publish, live)

    def _record(self, kind: str, **data: Any) -> None:
        """Record an event, in the loop; returns when it is on disk. Raises StoreError."""
        root = str(self._workspace.root)
        draft = Draft(kind, {"turn": self._turn, "workspace": root, **data})

        async def step() -> None:
            await self._session.arecord([draft])

        asyncio.run_coroutine_threadsafe(step(), self._loop).result()


def _list_changes(files: list[tuple[str, State | None, State | None]]) -> list[dict[str, Any]]:
    return [{"path": path, "before": before, "after": after} for path, before, after in files]
