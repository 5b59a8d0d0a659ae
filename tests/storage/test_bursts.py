"""Appends of many threads at once: one transaction and one sync for those that wait, each its own.

A burst is made by holding the first sync until all the others wait.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest

from tests.crash.disk import mounted
from ullage.core.errors import Fenced, StoreError
from ullage.core.session.log.event import Draft
from ullage.storage.database import Database
from ullage.storage.log import Owner, verify
from ullage.storage.log_sqlite import SqliteLog

COUNT = 12
BOUND_S = 30.0


class Jam:
    """Holds the first sync of the log until `COUNT - 1` threads wait, and counts; may refuse."""

    def __init__(self) -> None:
        self.database: Database | None = None
        self.waiting = threading.Event()
        self.syncs = 0
        self.refuses = 0

    def __call__(self, name: str, file: str) -> None:
        """Stand before an operation of the disk."""
        if self.database is None or (name, file) != ("sync", "main-wal"):
            return
        self.syncs += 1
        if self.syncs == 1:
            assert self.waiting.wait(BOUND_S)
        if self.syncs == self.refuses:
            raise apsw.IOError("refused")


@pytest.fixture
def jam() -> Jam:
    """Return what holds and counts the syncs."""
    return Jam()


@pytest.fixture
def log(tmp_path: Path, jam: Jam) -> Iterator[SqliteLog]:
    """Open a log with a session for each thread."""
    with mounted(tmp_path / "log.db", jam):
        opened = SqliteLog(tmp_path / "log.db")
        for number in range(COUNT):
            opened.create(f"s{number}", 1.0)
            opened.acquire(f"s{number}", Owner("o", 1, "", ""), 1.0)
        jam.database = opened._database
        yield opened
        jam.database = None
        opened.close()


def burst(log: SqliteLog, jam: Jam, append: Callable[[int], object]) -> list[object]:
    """Append from many threads, all while the first one syncs; return what each came to."""
    told: list[object] = [None] * COUNT

    def run(number: int) -> None:
        try:
            told[number] = append(number)
        except StoreError as error:
            told[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(COUNT)]
    for thread in threads:
        thread.start()
    while len(log._database._waiting) < COUNT - 1:  # bounded by the time-out of the test
        threads[0].join(0.001)
    jam.waiting.set()
    for thread in threads:
        thread.join(BOUND_S)
    return told


def appended(log: SqliteLog, number: int, epoch: int = 1) -> int:
    """Append one event to a session of its own; return its seq."""
    (event,) = log.append(f"s{number}", epoch, 0, [Draft("user_message", {"text": "x"})], 2.0)
    return event.seq


def test_appends_that_wait_share_one_sync(log: SqliteLog, jam: Jam):
    assert burst(log, jam, lambda number: appended(log, number)) == [1] * COUNT
    assert jam.syncs == 2
    assert [verify(log, f"s{number}") for number in range(COUNT)] == [[]] * COUNT


def test_one_that_may_not_write_does_not_keep_the_others_from_it(log: SqliteLog, jam: Jam):
    told = burst(log, jam, lambda number: appended(log, number, epoch=2 if number % 3 else 1))
    for number, came in enumerate(told):
        assert isinstance(came, Fenced) if number % 3 else came == 1
        assert log.head(f"s{number}").seq == (0 if number % 3 else 1)


@pytest.mark.parametrize("refused", [1, 2])
def test_a_sync_that_fails_fails_for_all_that_share_it_and_for_no_other(
    log: SqliteLog, jam: Jam, refused: int
):
    jam.refuses = refused
    told = burst(log, jam, lambda number: appended(log, number))
    assert sum(isinstance(came, StoreError) for came in told) == {1: 1, 2: COUNT - 1}[refused]
    kept = [log.head(f"s{number}").seq for number in range(COUNT)]
    assert all(seq == 1 for seq, came in zip(kept, told, strict=True) if came == 1)
    # The others are there together or not at all: nobody can know.
    assert len({seq for seq, came in zip(kept, told, strict=True) if came != 1}) == 1
    for number, seq in enumerate(kept):
        draft = Draft("user_message", {"text": "again"})
        assert log.append(f"s{number}", 1, seq, [draft], 3.0)[0].seq == seq + 1
        assert verify(log, f"s{number}") == []


@pytest.mark.skipif(sys.platform == "win32", reason="locks are not interrupted there")
def test_a_thread_that_is_interrupted_while_it_waits_has_not_written(log: SqliteLog, jam: Jam):
    main = threading.get_ident()
    first = threading.Thread(target=appended, args=(log, 0))
    first.start()

    def interrupt() -> None:
        while not log._database._waiting:
            first.join(0.001)
        signal.pthread_kill(main, signal.SIGINT)

    other = threading.Thread(target=interrupt)
    while not jam.syncs:
        first.join(0.001)
    other.start()
    with pytest.raises(KeyboardInterrupt):
        appended(log, 1)
    jam.waiting.set()
    for thread in (other, first):
        thread.join(BOUND_S)
    assert [log.head("s0").seq, log.head("s1").seq] == [1, 0]
    assert appended(log, 1) == 1


@pytest.mark.skipif(sys.platform == "win32", reason="there are no forks")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # it is what is asked here
def test_what_waits_in_the_parent_is_not_done_by_its_child(log: SqliteLog, jam: Jam):
    first = threading.Thread(target=appended, args=(log, 0))
    second = threading.Thread(target=appended, args=(log, 1))
    for thread, started in ((first, lambda: jam.syncs), (second, lambda: log._database._waiting)):
        thread.start()
        while not started():
            thread.join(0.001)
    database = log._database
    with database._gate:  # as a thread of the parent may hold it
        jam.waiting.set()
        child = os.fork()  # once the first has written
        if child == 0:
            status = 1
            try:
                first_head, _, *others = (head.seq for head in log.sessions())
                # the second's is the parent's to write, which goes on meanwhile
                status = int(first_head != 1 or any(others) or appended(log, 2) != 1)
            finally:
                os._exit(status)
    for thread in (first, second):
        thread.join(BOUND_S)
    assert os.waitpid(child, 0)[1] == 0
    assert [log.head(f"s{number}").seq for number in range(4)] == [1, 1, 1, 0]
