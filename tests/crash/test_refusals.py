"""A disk that refuses: whatever operation fails, an append that was not acknowledged is not there.

Each operation of an append is refused in turn, once or from there on; then the disk works again.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import apsw
import pytest

from tests.crash.disk import mounted
from ullage.core.errors import StoreError
from ullage.core.session.log.event import Draft, Event
from ullage.storage.log import Owner, verify
from ullage.storage.log_sqlite import SqliteLog

SOME = Owner("some", 1, "", "")
MOST = 160


class Refusal:
    """Refuses the operation number `at`, counted from when it was armed, and maybe all after it."""

    def __init__(self, error: type[apsw.Error], *, lasts: bool) -> None:
        self.error = error
        self.lasts = lasts
        self.at: int | None = None
        self.count = 0
        self.refused: list[str] = []
        self.synced = False

    def __call__(self, name: str, file: str) -> None:
        """Stand before an operation."""
        if self.at is None:
            return
        here, self.count = self.count, self.count + 1
        self.synced = self.synced or name == "sync"
        if here == self.at or (self.lasts and here > self.at):
            self.refused.append(f"{name} {file}")
            raise self.error(f"refused to {name} {file}")

    @contextmanager
    def armed(self, at: int) -> Iterator[None]:
        """Refuse it in this block."""
        self.at, self.count, self.synced = at, 0, False
        try:
            yield
        finally:
            self.at = None


def begun(path: Path) -> tuple[SqliteLog, int]:
    """Return a log with an empty session `s`, and the epoch that may write to it."""
    log = SqliteLog(path)
    log.create("s", 1.0)
    return log, log.acquire("s", SOME, 1.0).epoch


def drafts(chance: random.Random) -> list[Draft]:
    """Return one event, or several."""
    count = chance.choice((1, 1, 3))
    return [Draft("user_message", {"text": "x" * chance.randrange(1, 6_000)}) for _ in range(count)]


def grown(log: SqliteLog, kept: list[Event], batch: list[Draft]) -> list[Event]:
    """Return what is there after an append that failed: what was, or that and all of the batch."""
    found = log.read("s")
    assert found[: len(kept)] == kept
    assert len(found) in {len(kept), len(kept) + len(batch)}
    return found


@pytest.mark.parametrize("lasts", [False, True], ids=["once", "lasting"])
@pytest.mark.parametrize("error", [apsw.IOError, apsw.FullError])
def test_whatever_is_refused_nothing_acknowledged_is_lost_and_no_seq_is_used(
    tmp_path: Path, error: type[apsw.Error], lasts: bool
):
    """Only where the sync itself is refused the append may be there, whole: nobody can know."""
    path, chance = tmp_path / "log.db", random.Random(1)
    refusal = Refusal(error, lasts=lasts)
    kept: list[Event] = []
    failed = 0
    with mounted(path, refusal):
        log, epoch = begun(path)
        for at in range(MOST):
            if at % 2:
                log.close()  # the next append opens the file and makes its WAL anew
                log = SqliteLog(path)
            batch = drafts(chance)
            try:
                with refusal.armed(at // 2 % 20):
                    kept += log.append("s", epoch, len(kept), batch, 2.0)
            except StoreError:
                failed += 1
                if not refusal.synced:
                    assert log.head("s").seq == len(kept)
                kept = grown(log, kept, batch)
            assert log.read("s") == kept
        assert verify(log, "s") == []
        log.close()
    assert failed > MOST // 5
    assert {said.split()[0] for said in refusal.refused} >= {"write", "sync"}
    again = SqliteLog(path)
    assert again.read("s") == kept
    again.close()


@pytest.mark.parametrize("lasts", [False, True], ids=["once", "lasting"])
def test_a_refusal_while_the_wal_is_carried_over_loses_nothing(tmp_path: Path, lasts: bool):
    """It happens behind the commit: SQLite goes on, but apsw tells what a layer in Python raised.

    So an append that failed may be there, whole.
    """
    path, chance = tmp_path / "log.db", random.Random(2)
    refusal = Refusal(apsw.IOError, lasts=lasts)
    with mounted(path, refusal):
        log, epoch = begun(path)
        kept: list[Event] = []
        for at in range(MOST):
            log._database.rows("PRAGMA wal_autocheckpoint = 4")
            batch = drafts(chance)
            try:
                with refusal.armed(at // 4) if at % 4 else nullcontext():
                    kept += log.append("s", epoch, len(kept), batch, 2.0)
            except StoreError:
                kept = grown(log, kept, batch)
            assert log.read("s") == kept
        assert verify(log, "s") == []
        log.close()
    assert "write main" in refusal.refused
    assert lasts or "sync main" in refusal.refused
    again = SqliteLog(path)
    assert again.read("s") == kept
    again.close()


@pytest.mark.parametrize("error", [apsw.IOError, apsw.FullError, apsw.CantOpenError])
def test_a_log_that_cannot_be_opened_is_told_and_opens_when_the_disk_works_again(
    tmp_path: Path, error: type[apsw.Error]
):
    refusal = Refusal(error, lasts=False)
    opened = False
    for at in range(MOST):
        path = tmp_path / f"{at}.db"
        with mounted(path, refusal):
            before = len(refusal.refused)
            try:
                with refusal.armed(at):
                    log = SqliteLog(path)
                    log.create("s", 1.0)
            except StoreError as told:
                assert str(path) in str(told)  # noqa: PT017 - not every refusal fails the opening
            else:
                log.close()
            opened = len(refusal.refused) == before
            log = SqliteLog(path)
            names = [head.session for head in log.sessions()]
            assert names in ([], ["s"])
            log.close()
        if opened:
            break
    assert opened
    assert {said.split()[0] for said in refusal.refused} >= {"open", "write", "sync", "delete"}
