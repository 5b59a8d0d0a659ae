"""The tools `write` and `edit`: a whole new file, and the exact replacement of one unique piece.

Neither is idempotent: a second run after a crash could undo a change that a person made in between.
They know nothing of permissions.
"""

from __future__ import annotations

import os
from typing import Any, Final, NamedTuple

from ullage.core.session.permissions import Access
from ullage.core.session.tools import Preview, Spec, ToolOutcome
from ullage.tools.difference import draw_diff
from ullage.tools.reading import refuse_binary
from ullage.tools.tool import Arguments, Fault
from ullage.tools.work import beside
from ullage.tools.workspace import Workspace, version

LARGEST_EDITED: Final = 16_000_000
"""Largest file that may be edited, in bytes."""

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
        "given, and only once: include enough of the text around it."
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
    reach=frozenset({"private"}),
)

DRY: Final = "[dry run] nothing was written: "


Key = tuple[tuple[str, Any], ...]
"""The arguments of a call; they match the call that runs with the one that was shown."""


class FileChange(NamedTuple):
    """A change of a file that is ready to be written: its old and its new contents.

    `where` is the path with the lines, for people and models.
    """

    path: str
    before: os.stat_result | None
    old: bytes | None
    new: bytes
    where: str

    def differs_from(self, status: os.stat_result | None) -> bool:
        """Tell whether the file is no longer the one that was read."""
        return (status and version(status)) != (self.before and version(self.before))


class Promised:
    """Changes that were shown to a person: a file that has changed since is not written."""

    def __init__(self) -> None:
        self._shown: dict[Key, FileChange] = {}

    def keep(self, key: Key, change: FileChange) -> None:
        """Remember the change that was shown for a call."""
        self._shown[key] = change

    def check(self, key: Key, status: os.stat_result | None) -> None:
        """Raise Fault if the file changed after it was shown; the next call is not checked."""
        change = self._shown.pop(key, None)
        if change is not None and change.differs_from(status):
            raise Fault(
                f"{change.path!r} changed after the change to it was shown and allowed; nothing "
                "was written: read it again"
            )


class Write:
    """The tool `write`."""

    spec = WRITE

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._promised = Promised()

    def access(self, arguments: Arguments) -> Access:
        """Return the path that would be written."""
        return _access(self._workspace, arguments["path"])

    async def preview(self, arguments: Arguments) -> Preview:
        """Return how the file would change."""
        return await beside(lambda: self._preview(arguments))

    def _preview(self, arguments: Arguments) -> Preview:
        path = _file_path(self._workspace, arguments["path"])
        data = _encode_text(arguments["content"], "content")
        before = self._workspace.would_write(path)
        old, note = _content(self._workspace, path, before)
        self._promised.keep(_key(arguments), FileChange(path, before, old, data, path))
        if old == data:
            note = f"{path} has this content already"
        return Preview("diff", draw_diff(path, old, data), note)

    async def run(self, arguments: Arguments, *, key: str, dry_run: bool) -> ToolOutcome:
        """Write a file in one step."""
        del key
        return await beside(lambda: self._write_file(arguments, dry_run=dry_run))

    def _write_file(self, arguments: Arguments, *, dry_run: bool) -> ToolOutcome:
        path = _file_path(self._workspace, arguments["path"])
        data = _encode_text(arguments["content"], "content")
        there = self._workspace.would_write(path)
        self._promised.check(_key(arguments), there)
        if dry_run:
            return ToolOutcome(
                f"{DRY}{_size(data)} would be the {_how(new=there is None)} file {path}"
            )
        new = self._workspace.replace(path, data)
        return ToolOutcome(f"wrote {_size(data)} to the {_how(new=new)} file {path}")


class Edit:
    """The tool `edit`."""

    spec = EDIT

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._promised = Promised()

    def access(self, arguments: Arguments) -> Access:
        """Return the path that would be written."""
        return _access(self._workspace, arguments["path"])

    async def run(self, arguments: Arguments, *, key: str, dry_run: bool) -> ToolOutcome:
        """Replace a piece of a file, written in one step."""
        del key
        return await beside(lambda: self._edit_file(arguments, dry_run=dry_run))

    async def preview(self, arguments: Arguments) -> Preview:
        """Return how the file would change."""
        return await beside(lambda: self._preview(arguments))

    def _preview(self, arguments: Arguments) -> Preview:
        change = self._change(arguments)
        self._workspace.would_write(change.path)
        self._promised.keep(_key(arguments), change)
        return Preview("diff", draw_diff(change.path, change.old, change.new), change.where)

    def _edit_file(self, arguments: Arguments, *, dry_run: bool) -> ToolOutcome:
        change = self._change(arguments)
        if dry_run:
            self._workspace.would_write(change.path)
            return ToolOutcome(f"{DRY}the piece would be replaced in {change.where}")
        self._promised.check(_key(arguments), change.before)
        self._workspace.replace(change.path, change.new, change.before)
        return ToolOutcome(f"replaced the piece in {change.where}")

    def _change(self, arguments: Arguments) -> FileChange:
        """Return the change of an edit; raise Fault if its piece is missing or not unique."""
        path = _file_path(self._workspace, arguments["path"])
        old, new = _encode_text(arguments["old"], "old"), _encode_text(arguments["new"], "new")
        if old == new:
            raise Fault("old and new are the same; there is nothing to replace")
        with self._workspace.file(path) as descriptor, os.fdopen(os.dup(descriptor), "rb") as file:
            before = os.fstat(descriptor)
            if before.st_size > LARGEST_EDITED:
                size, most = f"{before.st_size:,}", f"{LARGEST_EDITED:,}"
                raise Fault(f"{path!r} has {size} bytes; the most is {most}")
            data = file.read()
        refuse_binary(data, path, len(data))
        if old not in data and b"\r\n" in data:
            # The file has Windows line ends, and models never write them.
            old, new = old.replace(b"\n", b"\r\n"), new.replace(b"\n", b"\r\n")
        times = _times(data, old, path, every=arguments.get("all", False))
        line = data[: data.index(old)].count(b"\n") + 1
        where = f"{path}, line {line}" if times == 1 else f"{path}, {times} times from line {line}"
        return FileChange(path, before, data, data.replace(old, new), where)


def _content(
    workspace: Workspace, path: str, status: os.stat_result | None
) -> tuple[bytes | None, str]:
    """Return the old contents if they can be compared, and a note on them."""
    if status is None:
        return None, "a new file"
    if status.st_size > LARGEST_EDITED:
        return None, f"the file with {status.st_size:,} bytes that is there goes"
    with workspace.file(path) as descriptor, os.fdopen(os.dup(descriptor), "rb") as file:
        data = file.read(LARGEST_EDITED)
    if b"\0" in data:
        return None, f"the binary file with {len(data):,} bytes that is there goes"
    return data, ""


def _access(workspace: Workspace, path: str) -> Access:
    if workspace.protects(path):
        return Access(changes=True, protected=True)
    return Access(changes=True, writes=(workspace.relative(path),))


def _key(arguments: Arguments) -> Key:
    return tuple(sorted(arguments.items()))


def _file_path(workspace: Workspace, path: str) -> str:
    found = workspace.relative(path)
    if path.endswith("/"):
        raise Fault(f"{path!r} names a folder; name a file")
    if workspace.is_in_repository(path):
        raise Fault(
            f"{path!r} is git's own: change files in .git only with git commands in the shell"
        )
    return found


def _times(data: bytes, old: bytes, path: str, *, every: bool) -> int:
    times = data.count(old)
    if not times:
        raise Fault(f"the old piece is not in {path!r}; read the file and give it exactly")
    if times > 1 and not every:
        raise Fault(
            f"the old piece is {times} times in {path!r}; include more of the text around "
            "it, or give all=true"
        )
    return times


def _encode_text(text: str, name: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise Fault(f"{name} holds half a surrogate pair, which no file can hold") from error


def _how(*, new: bool) -> str:
    return "new" if new else "existing"


def _size(data: bytes) -> str:
    return f"{len(data):,} bytes"
