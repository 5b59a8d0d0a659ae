"""The tools `read` and `list`: the contents of a file, and the entries of a folder.

They know nothing of writing, and nothing of permissions.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice
from typing import BinaryIO, Final

from ullage.core.session.permissions import Access, matches
from ullage.core.session.tools import Spec, ToolOutcome
from ullage.tools.bounds import RESULT_CHARACTERS
from ullage.tools.tool import Arguments, Fault
from ullage.tools.work import beside
from ullage.tools.workspace import DEEPEST, FolderEntry, Workspace

LINES: Final = 2_000
"""Lines read at once if a call names no limit."""

MOST_BYTES: Final = 256_000_000
"""Bytes of a file that are scanned for one page of it."""

ENTRIES: Final = 1_000
"""Entries that one listing shows."""

MOST_ENTRIES: Final = 200_000
"""Entries that one listing scans."""

_SNIFFED: Final = 8_192
"""Bytes in which a NUL marks a file as binary, as in git."""

READ: Final = Spec(
    name="read",
    description=(
        "Read a text file of the workspace. A long file comes in pages: go on with the offset "
        "that the answer names."
    ),
    parameters={
        "type": "object",
        "properties": {
            "path": {"type": "string", "minLength": 1, "description": "path in the workspace"},
            "offset": {"type": "integer", "minimum": 1, "description": "first line, from 1"},
            "limit": {
                "type": "integer",
                "minimum": 1,
                "description": f"number of lines ({LINES} where left out)",
            },
        },
        "required": ["path"],
        "additionalProperties": False,
    },
    reads_only=True,
    idempotent=True,
    reach=frozenset({"private"}),
)

LIST: Final = Spec(
    name="list",
    description=(
        "List a folder of the workspace: folders end in /, files show their size in bytes. "
        "With a glob, all that matches beneath the folder."
    ),
    parameters={
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "folder (the workspace where left out)"},
            "glob": {"type": "string", "minLength": 1, "description": "such as *.py or src/**"},
            "depth": {
                "type": "integer",
                "minimum": 1,
                "maximum": DEEPEST,
                "description": "folders within folders (1 where left out)",
            },
        },
        "additionalProperties": False,
    },
    reads_only=True,
    idempotent=True,
    reach=frozenset({"private"}),
)


class ReadTool:
    """The tool `read`; `characters` limits one page."""

    spec = READ

    def __init__(self, workspace: Workspace, characters: int = RESULT_CHARACTERS) -> None:
        self._workspace = workspace
        self._room = characters * 9 // 10

    def access(self, arguments: Arguments) -> Access:
        """Return whether the path leads to the state directory."""
        return Access(protected=self._workspace.protects(arguments["path"]))

    async def run(self, arguments: Arguments, *, key: str, dry_run: bool) -> ToolOutcome:
        """Return a page of a file."""
        del key, dry_run
        return await beside(lambda: self._page(arguments))

    def _page(self, arguments: Arguments) -> ToolOutcome:
        path = self._workspace.relative(arguments["path"])
        first, limit = arguments.get("offset", 1), arguments.get("limit", LINES)
        with self._workspace.file(path) as descriptor, os.fdopen(os.dup(descriptor), "rb") as file:
            size = os.fstat(descriptor).st_size
            refuse_binary(file.read(_SNIFFED), path, size)
            file.seek(0)
            lines, cut, total = _lines(file, first, limit, self._room)
        if not lines and first > 1:
            raise Fault(f"{path!r} has {total:,} lines; there is no line {first:,}")
        text = b"".join(lines).decode("utf-8", errors="replace")
        last = first + len(lines) - 1
        if cut:
            more = f"line {last} is cut: {cut:,} of its bytes are left out"
        elif total is not None and last >= total:
            return ToolOutcome(text if text or size else "[the file is empty]")
        else:
            more = f"go on with offset={last + 1}"
        end = "" if text.endswith("\n") else "\n"
        known = "" if total is None else f" of {total}"
        return ToolOutcome(f"{text}{end}[lines {first} to {last}{known}; {more}]")


class List:
    """The tool `list`."""

    spec = LIST

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    def access(self, arguments: Arguments) -> Access:
        """Return whether the path leads to the state directory."""
        return Access(protected=self._workspace.protects(arguments.get("path", "")))

    async def run(self, arguments: Arguments, *, key: str, dry_run: bool) -> ToolOutcome:
        """Return the entries of a folder, one per line."""
        del key, dry_run
        return await beside(lambda: self._listing(arguments))

    def _listing(self, arguments: Arguments) -> ToolOutcome:
        path = self._workspace.relative(arguments.get("path", ""))
        glob = arguments.get("glob")
        depth = arguments.get("depth", DEEPEST if glob else 1)
        walk = islice(self._workspace.walk(path, depth), MOST_ENTRIES)
        lines = [_line(entry) for entry in islice(_matching(walk, path, glob), ENTRIES + 1)]
        if not lines:
            return ToolOutcome("[nothing matches]" if glob else "[the folder is empty]")
        if len(lines) > ENTRIES:
            lines[ENTRIES:] = [f"[more than {ENTRIES:,} entries: name a folder or a narrower glob]"]
        return ToolOutcome("\n".join(lines))


def refuse_binary(head: bytes, path: str, size: int) -> None:
    """Raise Fault if the first bytes are not text."""
    if b"\0" in head[:_SNIFFED]:
        raise Fault(f"{path!r} is binary ({size:,} bytes); only text can be read")


def _lines(
    file: BinaryIO, first: int, limit: int, room: int
) -> tuple[list[bytes], int, int | None]:
    """Return lines from `first` while there is room, the bytes cut off, and the line count.

    The count is None if the file is longer than the scanned part.
    """
    lines: list[bytes] = []
    number = cut = left = 0
    left = MOST_BYTES
    full = False
    while left > 0 and (line := file.readline(left)):
        left -= len(line)
        number += 1
        if number < first or full:
            continue
        if len(line) > room and not lines:
            cut = len(line) - room
            lines.append(line[:room])
            full = True
        elif len(line) > room or len(lines) >= limit:
            full = True
        else:
            room -= len(line)
            lines.append(line)
    return lines, cut, number if left > 0 else None


def _matching(entries: Iterator[FolderEntry], path: str, glob: str | None) -> Iterator[FolderEntry]:
    for entry in entries:
        if glob is None or matches(glob, entry.path.removeprefix(path).lstrip("/")):
            yield entry


def _line(entry: FolderEntry) -> str:
    name = entry.path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    if entry.is_folder:
        return f"{name}/"
    if entry.is_link:
        return f"{name} (link)"
    return f"{name} {entry.status.st_size}" if entry.is_file else f"{name} (no file)"
