"""What a second process does to a log: two writers at once, and a writer that is killed.

Run as a program, `python test_log_writer.py URL NAME`, it is that process. The same for every log
that processes can share.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ullage.core.errors import BusyWriter, Fenced
from ullage.core.session.log.event import Draft
from ullage.storage import open_log
from ullage.storage.log import EventLog, Owner, verify

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="who is alive is read from /proc")


@pytest.fixture(params=["sqlite", "postgres"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[EventLog]:
    """Open a log with a session `s` of each make, which other processes can open too."""
    if request.param == "sqlite":
        opened = open_log(f"sqlite:{tmp_path / 'log.db'}")
    else:
        from tests.storage.databases import TimedLog  # as a program we know no tests

        opened = TimedLog(request.getfixturevalue("postgres_database")())
    opened.create("s", 1.0)
    yield opened
    opened.close()


def word(text: str) -> Draft:
    """Return a user's message."""
    return Draft("user_message", {"text": text})


def write(url: str, name: str) -> None:
    """Append one event after the other, saying each that was acknowledged.

    The one named `stale` waits for a line behind its first: it is stopped there, since within an
    append it would hold the file.
    """
    log = open_log(url, create=False)
    lease = log.acquire("s", Owner.here(name), time.time())
    sys.stdout.write(f"epoch {lease.epoch}\n")
    sys.stdout.flush()
    head = log.head("s").seq
    for n in range(100_000):
        try:
            (event,) = log.append("s", lease.epoch, head, [word(f"{name} {n}")], time.time())
        except Fenced:
            sys.stdout.write("fenced\n")
            return
        head = event.seq
        sys.stdout.write(f"{event.seq} {event.id}\n")
        sys.stdout.flush()
        if name == "stale" and n == 0:
            sys.stdin.readline()


def started(url: str, name: str) -> subprocess.Popen[str]:
    """Start another writer and wait for its lease."""
    child = subprocess.Popen(
        [sys.executable, __file__, url, name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert child.stdout.readline().startswith("epoch ")
    return child


@LINUX
@pytest.mark.slow
def test_nothing_acknowledged_is_lost_when_the_writer_is_killed(log: EventLog):
    acknowledged: dict[int, str] = {}
    for seed in range(20):
        with started(log.url, f"seed{seed}") as child:
            assert child.stdout is not None
            said = [child.stdout.readline() for _ in range(random.Random(seed).randrange(1, 30))]
            child.kill()
            rest = child.stdout.read()  # `communicate` would pass by what was read ahead
        lines = [line for line in [*said, *rest.splitlines(keepends=True)] if line.endswith("\n")]
        acknowledged.update({int(seq): id_ for seq, id_ in (line.split() for line in lines)})
    kept = {event.seq: event.id for event in log.read("s")}
    assert acknowledged.items() <= kept.items()
    assert len(kept) <= len(acknowledged) + 20  # attempted, not told
    assert verify(log, "s") == []
    leases = log.leases("s")
    assert [lease.epoch for lease in leases] == list(range(1, 21))
    assert all("is dead" in lease.taken for lease in leases[1:])


@LINUX
def test_a_writer_that_was_stopped_past_its_lease_is_fenced_and_the_log_stays_one(log: EventLog):
    child = started(log.url, "stale")
    assert child.stdout is not None
    child.stdout.readline()
    os.kill(child.pid, signal.SIGSTOP)
    try:
        os.waitid(os.P_PID, child.pid, os.WSTOPPED)
        with pytest.raises(BusyWriter, match="is being written by stale"):
            log.acquire("s", Owner.here("next"), time.time())
        lease = log.acquire("s", Owner.here("next"), time.time() + 31)
        head = log.head("s").seq
        log.append("s", lease.epoch, head, [word("mine")], time.time())
        os.kill(child.pid, signal.SIGCONT)
        rest, _ = child.communicate("go on\n", timeout=30)
        log.append("s", lease.epoch, head + 1, [word("mine too")], time.time())
    finally:
        child.kill()
        child.communicate()
    assert rest.splitlines()[-1] == "fenced"
    assert verify(log, "s") == []
    assert [e.data["text"] for e in log.read("s", head)] == ["mine", "mine too"]
    assert "gave no sign" in log.leases("s")[-1].taken


@LINUX
@pytest.mark.slow
@pytest.mark.parametrize("log", ["postgres"], indirect=True)
def test_a_writer_that_was_stopped_anywhere_is_fenced_where_it_holds_nothing(log: EventLog):
    """Also within an append: what is stopped is the client, not the database."""
    acknowledged: dict[int, str] = {}
    for seed in range(10):
        child = started(log.url, f"seed{seed}")
        assert child.stdout is not None
        said = [child.stdout.readline() for _ in range(random.Random(seed).randrange(1, 30))]
        os.kill(child.pid, signal.SIGSTOP)
        try:
            os.waitid(os.P_PID, child.pid, os.WSTOPPED)
            lease = log.acquire("s", Owner.here("next"), time.time() + 31)
            head = log.head("s").seq
            (first,) = log.append("s", lease.epoch, head, [word("mine")], time.time())
            os.kill(child.pid, signal.SIGCONT)
            rest, _ = child.communicate(timeout=30)
            (second,) = log.append("s", lease.epoch, head + 1, [word("mine")], time.time())
            log.release("s", lease.epoch, time.time())
        finally:
            child.kill()
            child.communicate()
        *lines, last = [*said, *rest.splitlines()]
        assert last == "fenced"
        acknowledged.update({int(seq): id_ for seq, id_ in (line.split() for line in lines)})
        acknowledged.update({event.seq: event.id for event in (first, second)})
    kept = {event.seq: event.id for event in log.read("s")}
    assert acknowledged.items() <= kept.items()
    assert verify(log, "s") == []


if __name__ == "__main__":
    write(sys.argv[1], sys.argv[2])
