"""Measures the log: an append compared with a bare fsync, parallel threads, a long session's fold.

As a program with a file as argument, it is the fresh process that reads and folds the session in
the file.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from bench import venvs
from bench.cells import Row, table
from bench.measure import Bench
from ullage.core.session.log.event import Draft
from ullage.core.session.log.fold import fold
from ullage.storage.log import Owner
from ullage.storage.log_sqlite import SqliteLog

FRAME: Final = 24 + 4096
"""Bytes that SQLite writes to its WAL for a page (sqlite.org, The WAL-mode File Format)."""

APPENDS: Final = 3_000
THREADS: Final = 16
EACH: Final = 100
EVENTS: Final = 100_000
PATIENCE_S: Final = 600
WORDS: Final = ("the", "file", "error", "é", "return", '"x"', "\n", "in", "not found")


def log(bench: Bench) -> None:
    """Measure everything, on the disk that holds the results."""
    quick = bench.plan.rounds < 5
    scale = 20 if quick else 1
    with tempfile.TemporaryDirectory(dir=bench.folder) as folder:
        found: dict[str, Any] = {
            "append": appends(Path(folder) / "append", APPENDS // scale),
            "threads": {
                str(count): crowd(Path(folder) / f"threads-{count}", count, EACH * 16 // count)
                for count in (1, THREADS)
            },
            "fold": folds(Path(folder) / "fold.db", EVENTS // scale, bench.plan.rounds),
        }
    bench.results["log"] = found
    bench.say(f"log: {found}")


def appends(folder: Path, count: int) -> dict[str, list[float]]:
    """Time appends of single events, and bare writes with fsync; return seconds, sorted."""
    folder.mkdir()
    chance = random.Random(1)
    store, epoch = begun(folder / "log.db")
    spent: dict[str, list[float]] = {"append": [], "line": [], "pages": []}
    with (folder / "line").open("ab", 0) as line, (folder / "pages").open("ab", 0) as pages:
        for seq in range(count):
            draft = Draft("tool_result", {"call_id": f"c{seq}", "text": words(chance, 200, 2_000)})
            start = time.perf_counter()
            (event,) = store.append("s", epoch, seq, [draft], 1.0)
            spent["append"].append(time.perf_counter() - start)
            written = event.line().encode() + b"\n"
            # Three pages: the end of the events, the overflow, the session's head.
            for name, file, data in (("line", line, written), ("pages", pages, bytes(3 * FRAME))):
                start = time.perf_counter()
                file.write(data)
                os.fsync(file.fileno())
                spent[name].append(time.perf_counter() - start)
    store.close()
    return {name: sorted(times) for name, times in spent.items()}


def crowd(folder: Path, threads: int, each: int) -> dict[str, Any]:
    """Append from parallel threads, one session each; return the rate and the sorted seconds."""
    folder.mkdir()
    store = SqliteLog(folder / "log.db")
    times: list[float] = []
    draft = Draft("tool_result", {"call_id": "c", "text": words(random.Random(2), 800, 801)})

    def run(session: str) -> None:
        for seq in range(each):
            start = time.perf_counter()
            store.append(session, 1, seq, [draft], 1.0)
            times.append(time.perf_counter() - start)

    names = [f"s{number}" for number in range(threads)]
    for name in names:
        store.create(name, 1.0)
        store.acquire(name, Owner.here(), 1.0)
    running = [threading.Thread(target=run, args=(name,)) for name in names]
    start = time.perf_counter()
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    spent = time.perf_counter() - start
    store.close()
    return {"rate": threads * each / spent, "append": sorted(times)}


def folds(path: Path, count: int, rounds: int) -> dict[str, Any]:
    """Write a long session; read and fold it in fresh processes; return the readings."""
    store, epoch = begun(path)
    drafts = list(session(count))
    for at in range(0, count, 5_000):
        store.append("s", epoch, at, drafts[at : at + 5_000], 1.0)
    store.close()
    readings: list[dict[str, float]] = []
    for _ in range(rounds):
        done = subprocess.run(
            [sys.executable, "-m", "bench.log", str(path)],
            cwd=venvs.ROOT, capture_output=True, text=True, check=True, timeout=PATIENCE_S,
        )  # fmt: skip
        readings.append(json.loads(done.stdout))
    last = sorted(readings, key=lambda reading: reading["wall_s"])[len(readings) // 2]
    return {**last, "events": count, "mb": path.stat().st_size / 1e6}


def folded(path: Path) -> dict[str, float]:
    """Open, read and fold a session, then take one more event; return CPU and clock seconds."""
    clock, start = time.perf_counter(), time.process_time()
    store = SqliteLog(path, create=False)
    events = store.read("s")
    read = time.process_time()
    state = fold(events[:-1])
    done, wall = time.process_time(), time.perf_counter() - clock
    nearest = time.perf_counter()
    state.apply(events[-1])
    next_s = time.perf_counter() - nearest
    store.close()
    return {"read_s": read - start, "fold_s": done - read, "wall_s": wall, "next_s": next_s}


def begun(path: Path) -> tuple[SqliteLog, int]:
    """Return a log with a session `s`, and the epoch that may write to it."""
    store = SqliteLog(path)
    store.create("s", 1.0)
    return store, store.acquire("s", Owner.here(), 1.0).epoch


def session(count: int) -> Iterator[Draft]:
    """Yield the events of an agent's turns: a word, two rounds of calls, an answer."""
    chance = random.Random(1)
    for number in range(count):
        turn, place = divmod(number, 12)
        step = place % 4 if place < 10 else 4
        of = {"model": "m", "round": place // 4 + 1}
        call = f"c{turn}-{place // 4}"
        if place == 0:
            yield Draft("user_message", {"text": words(chance, 200, 800)})
        elif place == 1 or step == 0:
            yield Draft("provider_usage", {**of, "input": 900, "cache_read": 90, "output": 20})
        elif place == 11:
            yield Draft("turn_completed", {"turn": f"t{turn}"})
        elif step == 2:
            arguments = json.dumps({"path": words(chance, 20, 200)})
            of |= {"idempotent": True, "reads_only": True}
            yield Draft(
                "tool_call", {"call_id": call, "name": "read", "arguments": arguments, **of}
            )
        elif step == 3:
            yield Draft("tool_result", {"call_id": call, "text": words(chance, 200, 2_000)})
        else:
            yield Draft("assistant_message", {"text": words(chance, 200, 600), **of})


def words(chance: random.Random, least: int, most: int) -> str:
    """Return text of at least `least` and fewer than `most` characters."""
    size = chance.randrange(least, most)
    return " ".join(chance.choices(WORDS, k=size // 2))[:size]


def shown(results: Row) -> str:
    """Return the section on the log: appends compared with a bare fsync, threads, and folds."""
    found = results["log"]
    bare = found["append"]["line"]
    names = {
        "line": "a bare write and fsync of the event's line",
        "pages": "... of three pages, as SQLite writes them",
        "append": "an append",
    }
    rows = [
        [label, *(f"{at(found['append'][key], share) * 1e3:.2f}" for share in (0.5, 0.95)),
         *(f"{at(found['append'][key], share) / at(bare, share):.2f}" for share in (0.5, 0.95))]
        for key, label in names.items()
    ]  # fmt: skip
    crowds = [
        [
            threads,
            f"{row['rate']:,.0f}",
            *(f"{at(row['append'], s) * 1e3:.2f}" for s in (0.5, 0.95)),
        ]
        for threads, row in found["threads"].items()
    ]
    cold = found["fold"]
    steps = [
        ["opening and reading it, CPU", f"{cold['read_s'] * 1e3:,.0f}"],
        ["folding it, CPU", f"{cold['fold_s'] * 1e3:,.0f}"],
        ["both, by the clock", f"{cold['wall_s'] * 1e3:,.0f}"],
        ["the next event", f"{cold['next_s'] * 1e3:.3f}"],
    ]
    return (
        "## The log\n\nAppends of one event of 200 to 2,000 characters to a session in SQLite, "
        "each followed by the bare writes: ms, and the multiple of the bare line. What an append "
        "takes beside its sync is CPU, about 0.1 ms: much of the whole where syncs are fast:\n\n"
        + table(["", "median", "95th", "times", "times, 95th"], rows)
        + "\nThreads that append at once, to a session each; those that wait share a sync. ms:\n\n"
        + table(["threads", "appends a second", "median", "95th"], crowds)
        + f"\nA session of {cold['events']:,} events ({cold['mb']:.0f} MB), in a fresh process, "
        "ms:\n\n" + table(["", "ms"], steps)
    )


def at(times: Sequence[float], share: float) -> float:
    """Return the reading below which this share of the sorted readings lies."""
    return times[min(int(len(times) * share), len(times) - 1)]


if __name__ == "__main__":
    print(json.dumps(folded(Path(sys.argv[1]))))
