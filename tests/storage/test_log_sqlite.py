"""The log in a file: private, opened again as it was, and a damaged one is said to be damaged."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import apsw
import pytest

from ullage.core.errors import CorruptLog, Fenced, StoreError
from ullage.core.session.log.event import Draft
from ullage.storage.log import Owner, verify
from ullage.storage.log_sqlite import SqliteLog

WORD = Draft("user_message", {"text": "x"})


def written(path: Path, count: int = 3) -> SqliteLog:
    """Return a log with a session `s` of some events."""
    log = SqliteLog(path)
    log.create("s", 1.0)
    log.append("s", log.acquire("s", Owner.here(), 1.0).epoch, 0, [WORD] * count, 2.0)
    return log


def test_what_was_written_is_there_when_the_file_is_opened_again(tmp_path: Path):
    log = written(tmp_path / "log.db")
    kept = (log.read("s"), log.head("s"), log.leases("s"))
    log.close()
    again = SqliteLog(tmp_path / "log.db", create=False)
    assert (again.read("s"), again.head("s"), again.leases("s")) == kept
    assert again.url == f"sqlite://{tmp_path / 'log.db'}"
    again.close()


def test_a_log_that_was_to_be_there_and_is_not_is_told(tmp_path: Path):
    with pytest.raises(StoreError, match="there is no store at"):
        SqliteLog(tmp_path / "none.db", create=False)


@pytest.mark.skipif(os.name != "posix", reason="permissions are POSIX's")
def test_the_file_and_a_folder_made_for_it_are_private(tmp_path: Path):
    mask = os.umask(0)
    try:
        log = written(tmp_path / "made" / "log.db")
    finally:
        os.umask(mask)
    modes = {path.stat().st_mode & 0o777 for path in (tmp_path / "made").iterdir()}
    assert modes == {0o600}
    assert (tmp_path / "made").stat().st_mode & 0o777 == 0o700
    log.close()


@pytest.mark.parametrize(
    ("sql", "fault"),
    [
        ("UPDATE events SET data = '{}' WHERE seq = 2", "event 2 of session s was changed after"),
        ("UPDATE events SET epoch = 9 WHERE seq = 2", "in epoch 1, after one of epoch 9"),
        ("UPDATE events SET ts = 3 WHERE seq = 1", "event 1 of session s was changed after"),
        ("DELETE FROM events WHERE seq = 3", "ends at event 2, and event 3 was written"),
        ("DELETE FROM events WHERE seq = 2", "event 3 of session s follows event 1"),
    ],
)
def test_what_somebody_changed_in_the_file_is_found(tmp_path: Path, sql: str, fault: str):
    written(tmp_path / "log.db").close()
    connection = apsw.Connection(str(tmp_path / "log.db"))
    connection.execute(sql)
    connection.close()
    log = SqliteLog(tmp_path / "log.db")
    assert fault in verify(log, "s")[0]
    if sql.startswith("DELETE"):
        with pytest.raises(CorruptLog, match="lacks event"):
            log.read("s")
    log.close()


def test_of_threads_that_append_behind_one_head_one_wins(tmp_path: Path):
    log = written(tmp_path / "log.db", 0)
    told: list[object] = []

    def append() -> None:
        try:
            told.append(log.append("s", 1, 0, [WORD], 2.0)[0].seq)
        except Fenced:
            told.append("fenced")

    threads = [threading.Thread(target=append) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(str, told)) == ["1", "fenced", "fenced", "fenced"]
    assert log.head("s").seq == 1
    log.close()


def test_an_append_that_the_disk_has_no_room_for_uses_no_seq_and_the_next_one_goes_on(
    tmp_path: Path,
):
    log = written(tmp_path / "log.db")
    kept = log.read_stamped("s")
    log._database.rows("PRAGMA max_page_count = 1")  # SQLite keeps it at what there is
    with pytest.raises(StoreError, match="the disk is full"):
        log.append("s", 1, 3, [WORD, Draft("user_message", {"text": "x" * 100_000})], 3.0)
    assert log.read_stamped("s") == kept
    assert log.append("s", 1, 3, [WORD], 3.0)[0].seq == 4  # on a connection of its own
    assert verify(log, "s") == []
    log.close()
