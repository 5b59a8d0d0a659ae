"""Kills, power cuts, crashed servers and full disks, over and over, on real stores; one table.

`python -m tests.crash.torture` runs some rounds of each kind and prints what was attempted,
acknowledged and recovered. What was acknowledged must be recovered, what was recovered must have
been attempted, and each session must be one whole chain. It ends with 1, and the seed, where that
does not hold. `--write FILE` puts the table into a page.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from tests.crash.killed import POINTS
from tests.crash.test_power_cut import Voyage, drowned
from tests.support import postgres
from ullage.core.errors import ConfigurationError, StoreError
from ullage.core.session.log.event import Draft
from ullage.storage.log import EventLog, Owner, verify
from ullage.storage.log_postgres import PostgresLog
from ullage.storage.log_sqlite import SqliteLog

ROOT: Final = Path(__file__).parents[2]
IMAGES: Final = 250
"""Power cuts of one written disk."""

WRITER: Final = """
import sys, time
from ullage.core.errors import StoreError
from ullage.core.session.log.event import Draft
from ullage.storage import open_log
from ullage.storage.log import Owner
log, texts = open_log(sys.argv[1], create=False), iter(range(10**9))
epoch = log.acquire("s", Owner.here("writer"), time.time()).epoch
head = log.head("s").seq
while True:
    draft = Draft("user_message", {"text": f"{sys.argv[2]}-{next(texts)}"})
    print("try", head + 1, flush=True)
    try:
        (event,) = log.append("s", epoch, head, [draft], time.time())
        head = event.seq
        print("told", event.seq, event.id, flush=True)
    except StoreError:
        while True:
            try:
                head = log.head("s").seq
                break
            except StoreError:
                time.sleep(0.01)
"""
"""Append one event after the other, saying what is tried and what was acknowledged."""


@dataclass(slots=True)
class Kind:
    """What came of one kind of fault."""

    fault: str
    store: str
    rounds: int = 0
    tried: int = 0
    told: int = 0
    kept: int | None = None
    wrong: list[str] = field(default_factory=list)
    seconds: float = 0.0
    skipped: str = ""

    def judge(self, log: EventLog, told: dict[int, str], tried: int) -> None:
        """Compare a session with what its writers were told, and count."""
        kept = {event.seq: event.id for event in log.read("s")}
        lost = [seq for seq, id_ in told.items() if kept.get(seq) != id_]
        self.wrong += [f"event {seq} was acknowledged and is lost" for seq in lost]
        if len(kept) > tried:
            self.wrong.append(f"{len(kept)} events are there, and {tried} were attempted")
        self.wrong += verify(log, "s")
        self.tried, self.told, self.kept = tried, len(told), len(kept)

    def row(self) -> str:
        """Return its line of the table."""
        if self.skipped:
            return f"| {self.fault} | {self.store} | 0 | | | | not run: {self.skipped} | |"
        numbers = (self.rounds, self.tried, self.told, self.kept, len(self.wrong))
        cells = " | ".join("" if number is None else f"{number:,}" for number in numbers)
        return f"| {self.fault} | {self.store} | {cells} | {self.seconds:.0f} |"


def kill_writers(kind: Kind, folder: Path, rounds: int, seed: int) -> None:
    """Kill a writer of a file at each point of its appends."""
    path = folder / "killed.db"
    with closing(SqliteLog(path)) as log:
        log.create("s", 1.0)
    told: dict[int, str] = {}
    tried = 0
    command = [sys.executable, "-m", "tests.crash.killed", str(path)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=ROOT, **pipes) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        for number in range(rounds):
            point = POINTS[number % len(POINTS)]
            child.stdin.write(f"{seed + number} {point}\n")
            child.stdin.flush()
            said = json.loads(child.stdout.readline())
            told.update({int(seq): id_ for seq, id_ in said["told"].items()})
            tried = max(tried, said["tried"])
            kind.rounds += 1
        child.stdin.close()
    with closing(SqliteLog(path)) as log:
        kind.judge(log, told, tried)


def cut_power(kind: Kind, folder: Path, rounds: int, seed: int, *, deaf: float = 0.0) -> None:
    """Rebuild the disk as a cut may leave it, at random moments of what was written."""
    while kind.rounds < rounds:
        count = min(IMAGES, rounds - kind.rounds)
        disk = Voyage(folder / f"cut{kind.rounds}-{deaf}.db", seed + kind.rounds, deaf=deaf).run(80)
        opened, found = drowned(disk, folder / "image.db", count, seed + kind.rounds)
        marks = [op.file for op in disk.ops if op.name == "mark"]
        kind.tried += sum(mark.startswith("try ") for mark in marks)
        kind.told += sum(mark.startswith("event ") for mark in marks)
        kind.wrong += found
        kind.rounds += opened


def kill_clients(server: postgres.Server, kind: Kind, rounds: int, seed: int) -> None:
    """Kill a writer of a database at any moment."""
    strike: Callable[[Any], None] = lambda child: child.send_signal(signal.SIGKILL)  # noqa: E731
    _write_through(kind, server.created(), rounds, seed, strike)


def crash_server(server: postgres.Server, kind: Kind, rounds: int, seed: int) -> None:
    """Kill the whole server under a writer, and start it again."""

    def crash(child: subprocess.Popen[str]) -> None:
        server.crash()
        server.start()
        time.sleep(0.2)
        child.send_signal(signal.SIGKILL)

    _write_through(kind, server.created(), rounds, seed, crash)


def _write_through(
    kind: Kind,
    url: str,
    rounds: int,
    seed: int,
    strike: Callable[[subprocess.Popen[str]], None],
) -> None:
    """Have writers append until something strikes, one after the other."""
    chance = random.Random(seed)
    told: dict[int, str] = {}
    tried = 0
    with closing(PostgresLog(url)) as log:
        log.create("s", 1.0)
    for number in range(rounds):
        command = [sys.executable, "-c", WRITER, url, str(number)]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            said = [child.stdout.readline()]
            time.sleep(chance.random() * 0.2)
            strike(child)
            said += child.stdout.readlines()
        for words in (line.split() for line in said if line.endswith("\n")):
            if words[0] == "try":
                tried = max(tried, int(words[1]))
            else:
                told[int(words[1])] = words[2]
        kind.rounds += 1
    with closing(PostgresLog(url)) as log:
        kind.judge(log, told, tried)


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """Lend a file system of 2 MB. Raises ConfigurationError where none can be mounted."""
    place = folder / "small"
    place.mkdir(exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode:
        raise ConfigurationError("a small disk needs root and the right to mount")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def fill_disk(kind: Kind, folder: Path, rounds: int, seed: int) -> None:
    """Write until the disk is full, make room, and go on."""
    chance = random.Random(seed)
    with small_disk(folder) as place:
        told: dict[int, str] = {}
        tried = 0
        with closing(SqliteLog(place / "log.db")) as log:
            log.create("s", 1.0)
            epoch = log.acquire("s", Owner.here(), time.time()).epoch
            for number in range(rounds):
                ballast, free = place / "ballast", os.statvfs(place)
                ballast.write_bytes(bytes(max(0, free.f_bavail * free.f_frsize - 40_960)))
                for _ in range(30):
                    head = log.head("s").seq
                    draft = Draft("user_message", {"text": "x" * chance.randrange(100, 9_000)})
                    tried = max(tried, head + 1)
                    try:
                        (event,) = log.append("s", epoch, head, [draft], time.time())
                    except StoreError:
                        break
                    told[event.seq] = event.id
                else:
                    kind.wrong.append(f"round {number}: nothing was refused")
                ballast.unlink()
                (event,) = log.append(
                    "s", epoch, log.head("s").seq, [Draft("user_message", {"text": "on"})], 1.0
                )
                told[event.seq], tried = event.id, max(tried, event.seq)
                kind.rounds += 1
            kind.judge(log, told, tried)


def run_all(rounds: int, seed: int, *, tell: Callable[[str], None]) -> list[Kind]:
    """Run about so many kills and images in all; return what came of each kind."""
    few = max(2, rounds // 200)
    kinds = [
        (Kind("kill -9 of the writer", "SQLite"), kill_writers, max(10, rounds // 4)),
        (Kind("power cut", "SQLite"), cut_power, max(20, rounds // 4)),
        (Kind("power cut behind refused syncs", "SQLite"), _cut_deaf, max(20, rounds // 4)),
        (Kind("full disk, for real", "SQLite"), fill_disk, min(few, 20)),
    ]
    databases = (
        (Kind("kill -9 of the writer", "PostgreSQL"), kill_clients, max(3, rounds // 20)),
        (Kind("crash of the whole server", "PostgreSQL"), crash_server, few),
    )
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=_find_memory())))
        for kind, work, count in kinds:
            _run_one(kind, partial(work, kind, folder, count, seed), tell)
        for kind, strike, count in databases:
            _run_one(kind, partial(_run_postgres, strike, kind, count, seed), tell)
    return [kind for kind, _, _ in (*kinds, *databases)]


def _run_postgres(
    strike: Callable[[postgres.Server, Kind, int, int], None], kind: Kind, rounds: int, seed: int
) -> None:
    with postgres.Server(postgres.obtain()) as server:
        strike(server, kind, rounds, seed)


def _cut_deaf(kind: Kind, folder: Path, rounds: int, seed: int) -> None:
    cut_power(kind, folder, rounds, seed, deaf=0.05)


def _run_one(kind: Kind, work: Callable[[], None], tell: Callable[[str], None]) -> None:
    began = time.monotonic()
    tell(f"{kind.fault}, {kind.store} ...")
    try:
        work()
    except ConfigurationError as error:
        kind.skipped = str(error)
    kind.seconds = time.monotonic() - began
    tell(f"  {kind.skipped or f'{kind.rounds:,} rounds, {len(kind.wrong)} violations'}")


def _find_memory() -> str | None:
    memory = Path("/dev/shm")
    return str(memory) if memory.is_dir() else None


HEAD: Final = (
    "| fault | store | rounds | attempted | acknowledged | recovered | violations | seconds |",
    "|---|---|---|---|---|---|---|---|",
)


def make_page(kinds: Sequence[Kind], command: str, seed: int) -> str:
    """Return the page with the table."""
    total = sum(kind.rounds for kind in kinds)
    wrong = sum(len(kind.wrong) for kind in kinds)
    day = dt.datetime.now(dt.UTC).date()
    return "\n".join(
        (
            "# What the log went through\n",
            f"Made by `{command}` on {day}.",
            "",
            f"Seed {seed}: {total:,} kills, cuts and crashes, {wrong} violations.",
            "",
            "An event is *attempted* when a writer tries to append it, *acknowledged* when the",
            "store said that it is there, and *recovered* when it is read afterwards. A violation",
            "is an acknowledged event that is lost or another, a recovered one that nobody",
            "attempted, a gap, a broken chain, or an epoch lower than the one before. Each power",
            "cut is judged by what was acknowledged before its moment; it has no sum of its own.",
            "The faults that are put in on purpose, and found, are in `tests/crash`.",
            "",
            *HEAD,
            *(kind.row() for kind in kinds),
            "",
        )
    )


def main(words: Sequence[str] | None = None) -> int:
    """Run; 1 where something was violated."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash.torture")
    parser.add_argument("--rounds", type=int, default=10_000, help="kills and images, about")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**9))
    parser.add_argument("--write", type=Path, help="the page that is written")
    given = parser.parse_args(words)
    kinds = run_all(given.rounds, given.seed, tell=_tell)
    command = f"make torture ARGS='--rounds {given.rounds} --seed {given.seed}'"
    page = make_page(kinds, command, given.seed)
    if given.write is not None:
        given.write.write_text(page, "utf-8")
    return report(kinds, page)


def report(kinds: Sequence[Kind], page: str) -> int:
    """Print the page, and what was violated; 1 where something was."""
    sys.stdout.write(page)
    for kind in kinds:
        for said in kind.wrong[:5]:
            _tell(f"{kind.fault}, {kind.store}: {said}")
    return int(any(kind.wrong for kind in kinds))


def _tell(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
