"""The tools `write` and `edit`: a whole new file, and an exact, unique replacement in one.

Neither is idempotent: run again after a crash, either could undo what a person did in between.
They know nothing of who may write.
"""

from __future__ import annotations

import os
from typing import Final

from ullage.core.permissions import Access
from ullage.core.tooling import Outcome, Spec
from ullage.tools.reading import refuse_binary
from ullage.tools.tool import Arguments, Fault
from ullage.tools.work import beside
from ullage.tools.workspace import Workspace

LARGEST_EDITED: Final = 16_000_000
"""Bytes of a file that may be edited."""

WRITE: Final = Spec(
    name="write",
    description=(
        "Write a text file of the workspace: a new one, or a new content for one that is there. "
        "Folders are made as needed."
    ),
    parameters={
        "type": "object",
        "properties": {
            "path": {"type": "string", "minLength": 1, "description": "path in the workspace"},
            "content": {"type": "string", "description": "the whole text of the file"},
        },
        "required": ["path", "content"],
        "additionalProperties": False,
    },
    again="once",
)

EDIT: Final = Spec(
    name="edit",
    description=(
        "Replace a piece of a text file of the workspace. The old piece must be in it exactly as "
        "given, and only once: give enough of what is around it."
    ),
    parameters={
        "type": "object",
        "properties": {
            "path": {"type": "string", "minLength": 1, "description": "path in the workspace"},
            "old": {"type": "string", "minLength": 1, "description": "what to replace"},
            "new": {"type": "string", "description": "what takes its place"},
            "all": {"type": "boolean", "description": "replace it wherever it is"},
        },
        "required": ["path", "old", "new"],
        "additionalProperties": False,
    },
    again="once",
)

DRY: Final = "[dry run] nothing was written: "


class Write:
    """The tool `write`."""

    spec = WRITE

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    def access(self, arguments: Arguments) -> Access:
        """Return the path that would be written."""
        return _access(self._workspace, arguments["path"])

    async def run(self, arguments: Arguments, *, key: str, dry_run: bool) -> Outcome:
        """Write a file in one piece."""
        del key
        return await beside(lambda: self._written(arguments, dry_run=dry_run))

    def _written(self, arguments: Arguments, *, dry_run: bool) -> Outcome:
        path = _file_path(self._workspace, arguments["path"])
        data = _encoded(arguments["content"], "content")
        if dry_run:
            new = self._workspace.would_write(path) is None
            return Outcome(f"{DRY}{_size(data)} would be the {_how(new=new)} file {path}")
        new = self._workspace.replace(path, data)
        return Outcome(f"wrote {_size(data)} to the {_how(new=new)} file {path}")


class Edit:
    """The tool `edit`."""

    spec = EDIT

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    def access(self, arguments: Arguments) -> Access:
        """Return the path that would be written."""
        return _access(self._workspace, arguments["path"])

    async def run(self, arguments: Arguments, *, key: str, dry_run: bool) -> Outcome:
        """Replace a piece of a file, which is written in one piece."""
        del key
        return await beside(lambda: self._edited(arguments, dry_run=dry_run))

    def _edited(self, arguments: Arguments, *, dry_run: bool) -> Outcome:
        path = _file_path(self._workspace, arguments["path"])
        old, new = _encoded(arguments["old"], "old"), _encoded(arguments["new"], "new")
        if old == new:
            raise Fault("old and new are the same; there is nothing to replace")
        with self._workspace.file(path) as descriptor, os.fdopen(os.dup(descriptor), "rb") as file:
            before = os.fstat(descriptor)
            if before.st_size > LARGEST_EDITED:
                raise Fault(f"{path!r} has {before.st_size:,} bytes, {LARGEST_EDITED:,} may have")
            data = file.read()
        refuse_binary(data, path, len(data))
        if old not in data and b"\r\n" in data:
            # A file with the line ends of Windows, and a model that never writes them.
            old, new = old.replace(b"\n", b"\r\n"), new.replace(b"\n", b"\r\n")
        times = _times(data, old, path, every=arguments.get("all", False))
        line = data[: data.index(old)].count(b"\n") + 1
        where = f"{path}, line {line}" if times == 1 else f"{path}, {times} times from line {line}"
        if dry_run:
            self._workspace.would_write(path)
            return Outcome(f"{DRY}the piece would be replaced in {where}")
        self._workspace.replace(path, data.replace(old, new), before)
        return Outcome(f"replaced the piece in {where}")


def _access(workspace: Workspace, path: str) -> Access:
    if workspace.protects(path):
        return Access(changes=True, protected=True)
    return Access(changes=True, writes=(workspace.relative(path),))


def _file_path(workspace: Workspace, path: str) -> str:
    found = workspace.relative(path)
    if path.endswith("/"):
        raise Fault(f"{path!r} names a folder; name a file")
    return found


def _times(data: bytes, old: bytes, path: str, *, every: bool) -> int:
    times = data.count(old)
    if not times:
        raise Fault(f"the old piece is not in {path!r}; read the file and give it exactly")
    if times > 1 and not every:
        raise Fault(
            f"the old piece is {times} times in {path!r}; give more of what is around it, "
            "or say all=true"
        )
    return times


def _encoded(text: str, name: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise Fault(f"{name} holds half a surrogate pair, which no file can hold") from error


def _how(*, new: bool) -> str:
    return "new" if new else "existing"


def _size(data: bytes) -> str:
    return f"{len(data):,} bytes"
