"""A writer that is killed at any point of an append: what it was told is there, and no more gaps.

The next writer sees at once that it is dead, and takes the session over.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash.killed import POINTS
from ullage.storage.log import verify
from ullage.storage.log_sqlite import SqliteLog

ROOT = Path(__file__).parents[2]
SEEDS = 200


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="who is alive is read from /proc")
def test_nothing_acknowledged_is_lost_whenever_the_writer_is_killed(tmp_path: Path):
    path = tmp_path / "log.db"
    log = SqliteLog(path)
    log.create("s", 1.0)
    log.close()
    told: dict[int, str] = {}
    tried = 0
    command = [sys.executable, "-m", "tests.crash.killed", str(path)]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        for seed in range(SEEDS):
            point = POINTS[seed % len(POINTS)]
            child.stdin.write(f"{seed} {point}\n")
            child.stdin.flush()
            said = json.loads(child.stdout.readline())
            assert said["killed"], (seed, point)
            told.update({int(seq): id_ for seq, id_ in said["told"].items()})
            tried = max(tried, said["tried"])
            if seed % 10 == 9:
                log = SqliteLog(path)
                kept = {event.seq: event.id for event in log.read("s")}
                assert told.items() <= kept.items(), (seed, point)
                assert verify(log, "s") == []
                assert len(kept) <= tried
                log.close()
        child.stdin.close()
    log = SqliteLog(path)
    leases = log.leases("s")
    assert [lease.epoch for lease in leases] == list(range(1, len(leases) + 1))
    assert len(leases) > SEEDS // 2  # some die while they acquire
    assert all("is dead" in lease.taken for lease in leases[1:])
    assert max(told) <= log.head("s").seq <= tried
    log.close()
