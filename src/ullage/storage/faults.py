"""SQLite's errors as ours: what happened to which file, and the remedy. It decides no retry."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import apsw

from ullage.core.errors import BusyWriter, StoreAway, StoreError
from ullage.storage.protocol import ReadOnlyStore

ADVICE: Final[Sequence[tuple[tuple[type[apsw.Error], ...], str]]] = (
    (
        (apsw.NotADBError,),
        "is no SQLite file: give another path, or move the file away and start a new store",
    ),
    (
        (apsw.CorruptError, apsw.FormatError),
        (
            "is damaged: move the file away, with its -wal and -shm, and start a new store; "
            "`sqlite3 FILE .recover` may read some of it"
        ),
    ),
    ((apsw.FullError,), "cannot grow: the disk is full, make room"),
    (
        (apsw.ReadOnlyError, apsw.PermissionsError, apsw.AuthError),
        "may not be written: check the permissions of the file and of its folder",
    ),
    (
        (apsw.CantOpenError,),
        (
            "cannot be opened: check the path (sqlite:FILE is relative to the working directory, "
            "sqlite:///FILE starts at the root) and the permissions of its folder"
        ),
    ),
    ((apsw.IOError,), "could not be read or written by the operating system: check the disk"),
)
"""The meaning of each error for the file (sqlite.org, Result and Error Codes), most precise
first."""

PASSING: Final = (apsw.FullError, apsw.CantOpenError, apsw.IOError)
"""Errors that may pass: no room, a missing folder, a disk error."""


def translate_error(error: apsw.Error, path: Path, waited_s: float) -> StoreError:
    """Return the error that explains an SQLite error and names the file."""
    if isinstance(error, apsw.BusyError | apsw.LockedError):
        return BusyWriter(
            f"{path} was locked by another program for {waited_s:g} s: end the program that holds "
            f"it, or give each its own store ({error})"
        )
    for kinds, advice in ADVICE:
        if isinstance(error, kinds):
            made = StoreAway if isinstance(error, PASSING) else StoreError
            if isinstance(error, apsw.ReadOnlyError):
                made = ReadOnlyStore
            return made(f"{path} {advice} ({error})")
    return StoreError(f"{path} failed: {error}")


def newer(path: Path, version: int, known: int) -> StoreError:
    """Return the error for a file that a newer ullage wrote."""
    return StoreError(
        f"{path} has schema version {version}, and this ullage reads up to {known}: upgrade "
        "ullage, or give another path for a new store"
    )


def foreign(path: Path) -> StoreError:
    """Return the error for another program's SQLite file."""
    return StoreError(f"{path} is another program's SQLite file: give another path for the store")


def other_kind(path: Path, table: str) -> StoreError:
    """Return the error for an ullage file of another kind."""
    return StoreError(
        f"{path} is another kind of ullage file, without the table {table}: sessions and guard "
        "state are in one file, the queue is in another (FILE.jobs)"
    )


def missing(path: Path) -> StoreError:
    """Return the error for a store that should be read and does not exist."""
    return StoreError(
        f"there is no store at {path}: the first session or guard that keeps one begins it; check "
        "the path if one should be there (--store, or the setting `store`)"
    )
