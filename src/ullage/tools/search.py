"""The tool `search`: finds the lines of files that match a pattern.

The pattern is Python's. It runs in a separate process that is killed when it takes too long, so no
pattern can block the program. It knows nothing of permissions.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final

from ullage.core.session.permissions import Access, matches
from ullage.core.session.tools import Spec, ToolOutcome
from ullage.tools.reading import refuse_binary
from ullage.tools.tool import Arguments, Fault
from ullage.tools.work import beside
from ullage.tools.workspace import FolderEntry, Workspace

LONGEST_PATTERN: Final = 1_000
"""Longest pattern in characters: compiling takes time, too."""

LARGEST_FILE: Final = 2_000_000
"""Largest file that is searched, in bytes; larger ones are counted as skipped."""

MOST_BYTES: Final = 64_000_000
"""Bytes that one search reads."""

MOST_ENTRIES: Final = 200_000
"""Files and folders that one search visits."""

MOST_LINES: Final = 200
"""Lines shown."""

LONGEST_LINE: Final = 300
"""Characters shown of a line."""

SECONDS: Final = 10
"""Seconds for matching."""

LEFT_OUT: Final = frozenset(
    {".git", ".hg", ".svn", ".tox", ".venv", "__pycache__", "node_modules", "venv"}
)
"""Folders that are skipped unless the path of the search names them."""

SEARCH: Final = Spec(
    name="search",
    description=(
        "Search the lines of the workspace's text files for a regular expression (Python's). "
        f"Not searched unless named as the path: {', '.join(sorted(LEFT_OUT))}."
    ),
    parameters={
        "type": "object",
        "properties": {
            "pattern": {"type": "string", "minLength": 1, "description": "regular expression"},
            "path": {"type": "string", "description": "folder or file (all where left out)"},
            "glob": {"type": "string", "minLength": 1, "description": "files, such as *.py"},
            "ignore_case": {"type": "boolean"},
        },
        "required": ["pattern"],
        "additionalProperties": False,
    },
    reads_only=True,
    idempotent=True,
    reach=frozenset({"private"}),
)


class SearchTool:
    """The tool `search`; `seconds` limits the matching."""

    spec = SEARCH

    def __init__(self, workspace: Workspace, seconds: int = SECONDS) -> None:
        self._workspace = workspace
        self._seconds = seconds

    def access(self, arguments: Arguments) -> Access:
        """Return whether the path leads to the state directory."""
        return Access(protected=self._workspace.protects(arguments.get("path", "")))

    async def run(self, arguments: Arguments, *, key: str, dry_run: bool) -> ToolOutcome:
        """Return the matching lines, with their files and numbers."""
        del key, dry_run
        _demand_pattern(arguments["pattern"])
        gathered = await beside(lambda: self._gather_files(arguments))
        request = {
            "pattern": arguments["pattern"],
            "ignore_case": arguments.get("ignore_case", False),
            "seconds": self._seconds,
            "most": MOST_LINES,
            "longest": LONGEST_LINE,
            "sizes": [len(data) for _, data in gathered.files],
        }
        found = await self._run_matcher(json.dumps(request), [data for _, data in gathered.files])
        lines = [f"{gathered.files[file][0]}:{number}: {line}" for file, number, line in found]
        if len(lines) > MOST_LINES:
            lines[MOST_LINES:] = [f"[more than {MOST_LINES} lines match: narrow it]"]
        lines = lines or ["[no line matches]"]
        if gathered.left_out:
            lines.append(f"[not searched, too large or too many: {gathered.left_out} files]")
        return ToolOutcome("\n".join(lines))

    async def _run_matcher(self, request: str, files: list[bytes]) -> list[tuple[int, int, str]]:
        program = (sys.executable, "-I", "-S", str(Path(__file__).with_name("matcher.py")))
        process = await asyncio.create_subprocess_exec(
            *program,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={},
        )
        try:
            said, _ = await asyncio.wait_for(
                process.communicate(b"\n".join((request.encode(), b"".join(files)))),
                self._seconds,
            )
        except TimeoutError as error:
            raise Fault(
                f"the pattern took more than {self._seconds} s on {len(files)} files: simplify it "
                "(no repetition within a repetition), or name a folder or a glob"
            ) from error
        finally:
            await _end_process(process)
        if process.returncode:
            raise Fault("the pattern could not be matched to an end: simplify it")
        found: list[tuple[int, int, str]] = json.loads(said)
        return found

    def _gather_files(self, arguments: Arguments) -> _Gathered:
        path = self._workspace.relative(arguments.get("path", ""))
        glob = arguments.get("glob")
        gathered = _Gathered()
        with suppress(NotADirectoryError):
            for entry in islice(self._entries(path), MOST_ENTRIES):
                name = entry.path.removeprefix(path).lstrip("/")
                if entry.is_file and (glob is None or matches(glob, name)):
                    self._take(entry, gathered)
            return gathered
        with self._workspace.file(path) as descriptor:
            gathered.add(path, os.dup(descriptor))
        return gathered

    def _entries(self, path: str) -> Iterator[FolderEntry]:
        return self._workspace.walk(path, enter=lambda entry: entry.name not in LEFT_OUT)

    def _take(self, entry: FolderEntry, gathered: _Gathered) -> None:
        with suppress(OSError, Fault):
            gathered.add(entry.path, self._workspace.entry_file(entry))


class _Gathered:
    """The files of a search, and the number of skipped ones."""

    def __init__(self) -> None:
        self.files: list[tuple[str, bytes]] = []
        self.left_out = 0
        self._room = MOST_BYTES

    def add(self, path: str, descriptor: int) -> None:
        """Read a text file from a descriptor, and close it. Raises Fault for binary files."""
        with os.fdopen(descriptor, "rb") as file:
            data = file.read(LARGEST_FILE + 1)
        refuse_binary(data, path, len(data))
        if len(data) > min(LARGEST_FILE, self._room):
            self.left_out += 1
            return
        self._room -= len(data)
        self.files.append((path, data))


def _demand_pattern(pattern: str) -> None:
    if len(pattern) > LONGEST_PATTERN:
        raise Fault(f"the pattern has {len(pattern):,} characters; the most is {LONGEST_PATTERN:,}")
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise Fault(f"the pattern is no regular expression: {error}") from error


async def _end_process(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
