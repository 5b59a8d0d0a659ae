"""Replays on a real Ray, to be run where it is installed: `python -m tests.replay.ray_runs FOLDER`.

The same sessions in processes, and on Ray with one, two and four workers, one of which is killed in
the middle: the totals are the same, nothing is there twice, nothing is missing.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.replay.recording import presets
from ullage.core.values.progress import Progress
from ullage.replay import PolicyComparison, ReplayOptions, list_places, replay_corpus, replay_on_ray
from ullage.replay.on_ray import ReplayParts

WINDOW = 100_000


def plain(found: PolicyComparison) -> dict[str, Any]:
    """Return totals without the time they took."""
    return {label: replace(totals, own_ms=0) for label, totals in found.totals.items()}


def kill_worker(done: threading.Event, killed: list[int]) -> None:
    """Kill one process of Ray that replays, once some results are there."""
    while not done.wait(0.05):
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                title = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if title.startswith(b"ray::") and b"MapBatches" in title:
                os.kill(int(entry.name), signal.SIGKILL)
                killed.append(int(entry.name))
                return


def check_rows(folder: Path, options: ReplayOptions, places: int) -> None:
    """Raise AssertionError where a session and a policy are in the parts twice, or not at all."""
    from pyarrow import parquet

    found: Counter[tuple[str, str]] = Counter()
    for part in folder.glob("*.parquet"):
        held = parquet.read_table(part).to_pydict()
        found.update(zip(held["place"], held["policy"], strict=True))
    assert set(found.values()) == {1}, found.most_common(3)
    assert len(found) == places * len(options.policies)
    assert len(ReplayParts(folder, options.name_run()).read_rows()) == len(found)


def main() -> None:
    """Run all, and print what was compared."""
    sessions, out = Path(sys.argv[1]), Path(sys.argv[2])
    places = list_places([sessions])
    options = ReplayOptions(presets(), window=WINDOW)
    began = time.monotonic()
    alone = replay_corpus(places, options, jobs=2)
    expected = plain(alone)
    sys.stdout.write(f"processes: {len(places)} sessions in {time.monotonic() - began:.0f} s\n")
    import ray

    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False)
    for workers in (1, 2, 4):
        began, folder = time.monotonic(), out / str(workers)
        with killing(workers == 2) as (report, killed):
            found = replay_on_ray(places, options, folder, workers=workers, report=report)
        assert len(killed) == (workers == 2)
        assert plain(found) == expected, workers
        assert found.faults == alone.faults
        check_rows(folder, options, len(places))
        again = replay_on_ray(places, options, folder, workers=workers)
        assert plain(again) == expected
        told = f", {len(killed)} killed" if killed else ""
        spent = time.monotonic() - began
        sys.stdout.write(f"Ray, {workers} workers{told}: the same, in {spent:.0f} s\n")


@contextmanager
def killing(wanted: bool) -> Iterator[tuple[Progress, list[int]]]:
    """Lend what takes reports; once some results are there one worker is killed, if wanted."""
    ended, killed, seen = threading.Event(), list[int](), list[int]()
    thread = threading.Thread(target=kill_worker, args=(ended, killed))

    def report(done: int, total: int | None) -> None:
        seen.append(done)
        if wanted and len(seen) == 3:
            thread.start()

    try:
        yield report, killed
    finally:
        ended.set()
        if thread.ident is not None:
            thread.join()


if __name__ == "__main__":
    main()
