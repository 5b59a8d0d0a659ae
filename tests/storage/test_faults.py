"""SQLite's errors as ours: each names the file and what to do."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from ullage.core.errors import BusyWriter, StoreAway, StoreError
from ullage.storage.faults import translate_error
from ullage.storage.protocol import ReadOnlyStore

FILE = Path("/var/store.db")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (apsw.NotADBError("file is not a database"), "is no SQLite file"),
        (apsw.CorruptError("malformed"), "is damaged"),
        (apsw.FullError("full"), "the disk is full"),
        (apsw.ReadOnlyError("readonly"), "may not be written"),
        (apsw.CantOpenError("unable to open"), "cannot be opened"),
        (apsw.IOError("disk I/O error"), "check the disk"),
        (apsw.SQLError("no such table"), "failed: no such table"),
    ],
)
def test_an_error_names_the_file_and_what_to_do(error: apsw.Error, said: str):
    found = translate_error(error, FILE, 5)
    passes = isinstance(error, apsw.FullError | apsw.CantOpenError | apsw.IOError)
    unwritten = isinstance(error, apsw.ReadOnlyError)
    assert type(found) is (StoreAway if passes else ReadOnlyStore if unwritten else StoreError)
    assert str(found).startswith(str(FILE))
    assert said in str(found)
    assert str(error) in str(found)


@pytest.mark.parametrize("error", [apsw.BusyError("locked"), apsw.LockedError("locked")])
def test_a_lock_is_an_error_of_its_own(error: apsw.Error):
    found = translate_error(error, FILE, 5)
    assert isinstance(found, BusyWriter)
    assert found.code == "busy_writer"
    assert "locked by another program for 5 s" in str(found)
