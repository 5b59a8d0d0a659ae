"""After a power cut: acknowledged is part of recovered, recovered is part of attempted.

A session is written on a disk that remembers; then the disk is rebuilt as a cut may leave it,
hundreds of times, and opened as any log is.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from tests.crash.disk import Disk, Image, images, laid, mounted
from ullage.core.errors import StoreError
from ullage.core.session.log.event import Draft
from ullage.storage.database import MIGRATIONS, Database
from ullage.storage.log import LEASE_S, Owner, verify
from ullage.storage.log_sqlite import SqliteLog

SESSIONS = ("a", "b")
CHECKPOINTED = 8
"""Pages after which SQLite carries the WAL over: so few that it happens every few appends."""


@pytest.fixture
def image(tmp_path: Path) -> Iterator[Path]:
    """Return where images are laid: in memory, where the system has a place there."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else tmp_path) as folder:
        yield Path(folder) / "image.db"


class Deaf:
    """Refuses to sync the WAL, from time to time and then until it is told to hear."""

    def __init__(self, chance: random.Random, share: float) -> None:
        self._chance, self._share = chance, share
        self._deaf = False

    def __call__(self, name: str, file: str) -> None:
        """Stand before an operation."""
        if (name, file) == ("sync", "main-wal"):
            self._deaf = self._deaf or self._chance.random() < self._share
            if self._deaf:
                raise apsw.IOError("refused")

    def hear(self) -> None:
        """Sync again."""
        self._deaf = False


class Voyage:
    """Two sessions written on a disk, which notes what is tried and what is acknowledged."""

    def __init__(self, path: Path, seed: int, *, deaf: float = 0.0) -> None:
        self.chance = random.Random(seed)
        self.deaf = Deaf(random.Random(seed), deaf)
        self.epochs = dict.fromkeys(SESSIONS, 0)
        self.now = 1.0
        self._path = path
        self._pragmas = f"PRAGMA wal_autocheckpoint = {CHECKPOINTED}"
        self.careless = False

    def run(self, appends: int, pragma: str = "") -> Disk:
        """Write; return the disk."""
        with mounted(self._path) as disk:
            log = SqliteLog(self._path)
            for said in (self._pragmas, pragma):
                log._database.rows(said or "SELECT 1")
            for session in SESSIONS:
                log.create(session, self.now)
                disk.mark(f"session {session}")
            disk.trouble = self.deaf
            for _ in range(appends):
                session = self.chance.choice(SESSIONS)
                try:
                    self._step(disk, log, session)
                except StoreError:
                    self.epochs[session] = 0  # who holds it is not known: it is acquired anew
                    self.deaf.hear()
                    log._database._doubtful = log._database._doubtful and not self.careless
            disk.trouble = None
            log.close()
        return disk

    def _step(self, disk: Disk, log: SqliteLog, session: str) -> None:
        """Append to a session, after becoming its writer where that is due."""
        epoch, chance = self.epochs[session], self.chance
        if not epoch or chance.random() < 0.1:
            if epoch and chance.random() < 0.5:
                log.release(session, epoch, self.now)
                disk.mark(f"released {session} {epoch}")
            self.now += 2 * LEASE_S  # the writer before is silent for too long: a take-over
            epoch = log.acquire(session, Owner("w", 1, "", ""), self.now).epoch
            self.epochs[session] = epoch
            disk.mark(f"lease {session} {epoch}")
        drafts = [
            Draft("user_message", {"text": "x" * chance.randrange(1, 6_000)})
            for _ in range(chance.choice((1, 1, 1, 4)))
        ]
        head = log.head(session).seq
        for seq in range(head + 1, head + 1 + len(drafts)):
            disk.mark(f"try {session} {seq}")
        for event in log.append(session, epoch, head, drafts, self.now):
            disk.mark(f"event {session} {event.seq} {event.id}")


def faults(path: Path, told: set[str], held: Image) -> Iterator[str]:
    """Yield what an image breaks of the promise."""
    laid(held, path)
    try:
        log = SqliteLog(path)
    except StoreError as error:
        yield str(error)
        return
    try:
        recovered: set[str] = set()
        tried = {said for said in told if said.startswith("try ")}
        for session in [head.session for head in log.sessions()]:
            recovered.add(f"session {session}")
            yield from verify(log, session)
            for event in log.read(session):
                recovered.add(f"event {session} {event.seq} {event.id}")
                if f"try {session} {event.seq}" not in tried:
                    yield f"event {event.seq} of {session} was never tried"
            for lease in log.leases(session):
                recovered.add(f"lease {session} {lease.epoch}")
                if lease.released is not None:
                    recovered.add(f"released {session} {lease.epoch}")
            epoch = log.acquire(session, Owner("next", 2, "", ""), 1e9).epoch
            log.append(session, epoch, log.head(session).seq, [Draft("dreamt", {})], 1e9)
            yield from verify(log, session)
        yield from sorted(told - tried - recovered)
    except StoreError as error:
        yield str(error)
    finally:
        log.close()


def drowned(disk: Disk, path: Path, count: int, seed: int) -> tuple[int, list[str]]:
    """Open images at random moments; return how many there were, and what is wrong with them."""
    moments = sorted(random.Random(seed).choices(range(len(disk.ops) + 1), k=count))
    found: list[str] = []
    for told, held in images(disk, moments, seed):
        found += faults(path, told, held)
    return len(moments), found


def test_nothing_acknowledged_is_lost_in_a_power_cut(tmp_path: Path, image: Path):
    opened = 0
    for seed in range(6):
        disk = Voyage(tmp_path / f"{seed}.db", seed).run(40)
        count, found = drowned(disk, image, 70, seed)
        assert found == []
        opened += count
    assert opened == 420


@pytest.mark.long
def test_nothing_acknowledged_is_lost_in_thousands_of_power_cuts(tmp_path: Path, image: Path):
    for seed in range(100, 140):
        disk = Voyage(tmp_path / f"{seed}.db", seed, deaf=0.05 * (seed % 2)).run(80)
        assert drowned(disk, image, 250, seed) == (250, [])


def test_a_log_that_does_not_sync_each_append_is_found_to_lose_some(tmp_path: Path, image: Path):
    """The seeded fault: a test that cannot fail tells nothing."""
    disk = Voyage(tmp_path / "log.db", 0).run(40, "PRAGMA synchronous = NORMAL")
    _, found = drowned(disk, image, 40, 0)
    assert any(said.startswith("event ") for said in found)


def test_nothing_acknowledged_is_lost_behind_a_sync_that_failed(tmp_path: Path, image: Path):
    for seed in range(4):
        disk = Voyage(tmp_path / f"{seed}.db", seed, deaf=0.1).run(40)
        assert any(op.name == "refused" for op in disk.ops)
        assert drowned(disk, image, 30, seed) == (30, [])


def test_a_log_that_goes_on_behind_a_failed_sync_is_found_to_lose_some(tmp_path: Path, image: Path):
    """The seeded fault: the WAL is not written again before it is written on."""
    found: list[str] = []
    for seed in range(4):
        voyage = Voyage(tmp_path / f"{seed}.db", seed, deaf=0.1)
        voyage.careless = True
        found += drowned(voyage.run(40), image, 30, seed)[1]
    assert any("is damaged" in said or said.startswith("event ") for said in found)


def test_a_store_of_the_first_version_survives_a_cut_in_its_migration(tmp_path: Path, image: Path):
    path = tmp_path / "log.db"
    old = Database(path, migrations=MIGRATIONS[:1])
    old.rows("INSERT INTO records VALUES (1, 'k', 's', 'n', 'p', 1, 1, 1.0, 1, x'00')")
    old.close()
    with mounted(path) as disk:
        log = SqliteLog(path)
        log.create("a", 1.0)
        disk.mark("session a")
        log.close()
    moments = sorted([*range(len(disk.ops) + 1)] * 3)
    for told, held in images(disk, moments, 7):
        assert list(faults(image, told, held)) == []
        connection = apsw.Connection(str(image))
        assert list(connection.execute("SELECT name FROM records")) == [("n",)]
        connection.close()
