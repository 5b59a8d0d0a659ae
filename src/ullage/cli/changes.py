"""The file changes of a turn as unified diffs: the content before against the content now.

If a person changed a file since, the diff includes that, and says so. The module changes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ullage.agent.files import state_folder
from ullage.core.session.log.undoing import Changed, PathChange, State, choose
from ullage.tools.difference import draw_diff
from ullage.tools.survey import hash_content
from ullage.tools.tool import Fault
from ullage.tools.workspace import Workspace

if TYPE_CHECKING:
    from ullage.agent import Session

LARGEST: Final = 1_000_000
"""Most bytes of a file that is compared line by line."""

SINCE: Final = "(it was changed since the turn; the diff holds that, too)"


def find_last_changes(session: Session) -> Changed | None:
    """Return the changes of the last turn, or None if it changed no file."""
    turns = len(session.fold.turns)
    return choose(session.fold, turns) if turns else None


def draw_changes(
    session: Session, workspace: str, changes: Sequence[PathChange]
) -> Iterator[tuple[str, str]]:
    """Yield each changed path with its diff, or with the reason why there is no diff."""
    root = Path(workspace)
    place = Workspace(root, state_folder(session.log.url)) if root.is_dir() else None
    for change in changes:
        if (change.after or change.before or {}).get("kind") == "folder":
            continue
        yield change.path, _draw_change(session, place, change)


def _draw_change(session: Session, place: Workspace | None, change: PathChange) -> str:
    before = _find_before(session, change.before)
    if place is None:
        return "(the folder is gone)"
    now = _read_now(place, change.path)
    if isinstance(before, str) or isinstance(now, str):
        return before if isinstance(before, str) else str(now)
    if now is None:
        if before is None:
            return "(it was made, and is gone)"
        return draw_diff(change.path, before, b"").replace(f"+++ b/{change.path}", "+++ /dev/null")
    expected = (change.after or {}).get("hash")
    note = "" if expected in (None, hash_content(now)) else f"{SINCE}\n"
    return note + (draw_diff(change.path, before, now) or "(it is what it was)")


def _find_before(session: Session, state: State) -> bytes | str | None:
    """Return the content of a path before: bytes, None without a file, a text if it is unknown."""
    if state is None:
        return None
    if state.get("hash") is None:
        return "(it was too large to be kept)"
    data = session.blobs.read(str(state["hash"]))
    return "(what it held is kept no longer)" if data is None else _refuse_large(data)


def _read_now(place: Workspace, path: str) -> bytes | str | None:
    try:
        with place.file(path) as descriptor, os.fdopen(os.dup(descriptor), "rb") as file:
            return _refuse_large(file.read(LARGEST + 1))
    except FileNotFoundError:
        return None
    except (Fault, OSError) as error:
        return f"({getattr(error, 'strerror', None) or error})"


def _refuse_large(data: bytes) -> bytes | str:
    """Return the data if it can be compared, else a text that says why not."""
    if len(data) > LARGEST:
        return f"(more than {LARGEST:,} bytes)"
    return "(it is no text)" if b"\0" in data else data
