"""A disk that remembers what it was told, and can show what it would hold after a power cut.

A layer of SQLite's over the real files: all writes, cuts, syncs and removals are noted in order.
`images` rebuilds the files at any of them: what was synced is there, of everything else each write
may be missing or torn, in any combination. It may also refuse an operation, as a disk does. It
knows nothing of what is written.

Sectors have 512 bytes. What is beside a write stays as it was (SQLITE_POWERSAFE_OVERWRITE), and
with the first sync of a new journal or WAL its folder is synced (os_unix.c, UNIXFILE_DIRSYNC): from
then on a file that was removed before is gone for good.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import apsw

SECTOR: Final = 512
MAIN: Final = "main"
WATCHED: Final = ("", "-wal", "-journal")

Trouble = Callable[[str, str], None]
"""Called with an operation and a file before it is done; may raise."""

Image = dict[str, bytes]
"""The files that are there after a power cut."""


class Op(NamedTuple):
    """What was done to a file, or, with the name `mark`, what the program was told by then.

    `offset` of a truncation is the size; of a sync or removal, whether the folder was synced too.
    """

    name: str
    file: str
    offset: int = 0
    data: bytes = b""


class _Kept:
    """A file: what surely is on the disk, and the operations that came since.

    Each is open until a sync makes it sure; one whose sync was refused stays in doubt, whatever is
    synced after it (Rebello et al., "Can Applications Recover from fsync Failures?", 2020).
    """

    def __init__(self) -> None:
        self.data: bytearray | None = None  # None where there is surely no such file
        self.since: list[tuple[Op, str]] = []

    def take(self, op: Op) -> None:
        """Note an operation."""
        if op.name in {"sync", "refused"}:
            fate = "sure" if op.name == "sync" else "doubted"
            self.since = [(told, fate if was == "open" else was) for told, was in self.since]
            while self.since and self.since[0][1] == "sure":
                self.data = _done(self.data, self.since.pop(0)[0], None)
        else:
            self.since.append((op, "open"))

    def settle(self) -> None:
        """Make removals last: the folder was synced."""
        while any(op.name == "delete" for op, _ in self.since):
            if self.since.pop(0)[0].name == "delete":
                self.data = None

    def cut(self, chance: random.Random) -> bytearray | None:
        """Return what the file holds after a power cut."""
        held = None if self.data is None else bytearray(self.data)
        for op, was in self.since:
            fate = "whole" if was == "sure" else chance.choice(("whole", "whole", "torn", "lost"))
            if fate == "whole":
                held = _done(held, op, None)
            elif fate == "torn" and op.name == "write":
                held = _done(held, op, chance)
        return held


def _done(held: bytearray | None, op: Op, chance: random.Random | None) -> bytearray | None:
    """Return what a file holds after an operation, in part where chance is given."""
    if op.name == "delete":
        return None
    held = bytearray() if held is None else held
    if op.name == "truncate":
        del held[op.offset :]
    else:
        _write(held, op, chance)
    return held


def _write(held: bytearray, op: Op, chance: random.Random | None) -> None:
    """Write into a file, all of it or the sectors that chance takes."""
    if len(held) < op.offset:
        held.extend(bytes(op.offset - len(held)))
    at = 0
    while at < len(op.data):
        start = op.offset + at
        step = SECTOR - start % SECTOR
        piece = op.data[at : at + step]
        if chance is None or chance.random() < 0.5:
            if len(held) < start:
                held.extend(bytes(start - len(held)))
            held[start : start + len(piece)] = piece
        at += step


class _File(apsw.VFSFile):
    """A file whose operations are noted."""

    def __init__(
        self, disk: Disk, name: str, path: str | apsw.URIFilename | None, flags: list[int]
    ) -> None:
        super().__init__(disk.real, path, flags)
        self._disk, self._name, self._new = disk, name, name != MAIN

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 - as SQLite has it
        self._disk.told(Op("write", self._name, offset, bytes(data)))
        super().xWrite(data, offset)

    def xTruncate(self, newsize: int) -> None:  # noqa: N802 - as SQLite has it
        self._disk.told(Op("truncate", self._name, newsize))
        super().xTruncate(newsize)

    def xSync(self, flags: int) -> None:  # noqa: N802 - as SQLite has it
        self._disk.told(Op("sync", self._name, int(self._new)))
        super().xSync(flags)
        self._new = False


class Disk(apsw.VFS):
    """The layer over a file of SQLite's and its WAL; `ops` is what was done since `before`."""

    def __init__(self, path: Path, trouble: Trouble | None = None) -> None:
        self._names = {str(path) + suffix: MAIN + suffix for suffix in WATCHED}
        self.trouble = trouble
        self.ops: list[Op] = []
        self.before = path.read_bytes() if path.exists() else b""
        self.real = apsw.vfs_names()[0]  # the default, until this one is
        super().__init__("crash", self.real, makedefault=True)

    def told(self, op: Op) -> None:
        """Note an operation, unless it is refused."""
        if self.trouble is not None:
            try:
                self.trouble(op.name, op.file)
            except apsw.Error:
                if op.name == "sync":
                    self.ops.append(Op("refused", op.file))
                raise
        self.ops.append(op)

    def mark(self, said: str) -> None:
        """Note what the program was told."""
        self.ops.append(Op("mark", said))

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802 - as SQLite has it
        full = name.filename() if isinstance(name, apsw.URIFilename) else str(name)
        if full not in self._names:
            return apsw.VFSFile(self.real, name, flags)
        if self.trouble is not None:
            self.trouble("open", self._names[full])
        return _File(self, self._names[full], name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802 - as SQLite has it
        if filename in self._names:
            self.told(Op("delete", self._names[filename], int(syncdir)))
        super().xDelete(filename, syncdir)


@contextmanager
def mounted(path: Path, trouble: Trouble | None = None) -> Iterator[Disk]:
    """Have SQLite use such a disk for a path."""
    disk = Disk(path, trouble)
    try:
        yield disk
    finally:
        disk.unregister()


def images(disk: Disk, moments: list[int], seed: int) -> Iterator[tuple[set[str], Image]]:
    """Yield, for each moment in ascending order, what was told by then and what is on the disk."""
    chance = random.Random(seed)
    files = {MAIN + suffix: _Kept() for suffix in WATCHED}
    files[MAIN].data = bytearray(disk.before)  # there before SQLite sees it
    told: set[str] = set()
    at = 0
    for moment in moments:
        for op in disk.ops[at:moment]:
            if op.name == "mark":
                told.add(op.file)
                continue
            files[op.file].take(op)
            if op.name in {"sync", "delete"} and op.offset:
                for kept in files.values():
                    kept.settle()
        at = moment
        held = {name: kept.cut(chance) for name, kept in files.items()}
        yield set(told), {name: bytes(data) for name, data in held.items() if data is not None}


def laid(image: Image, path: Path) -> None:
    """Write an image where it can be opened."""
    for suffix in (*WATCHED, "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    for name, data in image.items():
        path.with_name(path.name + name.removeprefix(MAIN)).write_bytes(data)
