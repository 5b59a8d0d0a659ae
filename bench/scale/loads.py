"""How fast a log is written and read: rivals, one hot session, leases, resumes, what goes.

Every figure comes from the product's own log and store on a real server.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from statistics import median
from typing import Any, Final

from bench.scale.counters import Counters, subtract
from bench.scale.turns import scale, time_calls
from tests.support.postgres import Server
from ullage.core.compaction.edits import reference
from ullage.core.errors import BusyWriter
from ullage.core.guard.conversation import Conversation
from ullage.core.session.log.event import Draft
from ullage.core.session.log.fold import fold
from ullage.storage import open_log, open_store
from ullage.storage.log import EventLog, Owner
from ullage.storage.log_postgres import PostgresLog
from ullage.storage.postgres import PostgresStore

TEXT: Final = "the gauge of cask 4711 reads 12.5 at line 88 " * 20
"""900 bytes."""

EACH_S: Final = 3.0
"""Seconds of a load."""

TICK_S: Final = 1 / os.sysconf("SC_CLK_TCK")


def draft(nth: int) -> Draft:
    """Return an event of a kilobyte."""
    return Draft("tool_result", {"call_id": f"c{nth}", "text": f"{nth} {TEXT}"})


def read_cpu(pid: int) -> float:
    """Return the seconds of CPU of a process and all its children, gone ones too."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    total = 0.0
    for one in (str(pid), *children):
        with suppress(OSError):
            fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
            total += sum(map(int, fields[11:15] if one == str(pid) else fields[11:13]))
    return total * TICK_S


def load_together(step: Callable[[int], Callable[[], object]], threads: int, seconds: float) -> Any:
    """Have threads repeat a step for some seconds; return the rate and the middle times, in s.

    `step` makes the work of one thread.
    """
    took: list[list[float]] = [[] for _ in range(threads)]
    works = [step(n) for n in range(threads)]
    gate, until = threading.Barrier(threads + 1), [0.0]

    def drive(number: int) -> None:
        work, mine = works[number], took[number]
        gate.wait()
        while time.perf_counter() < until[0]:
            begun = time.perf_counter()
            work()
            mine.append(time.perf_counter() - begun)

    running = [threading.Thread(target=drive, args=(n,)) for n in range(threads)]
    for thread in running:
        thread.start()
    until[0] = time.perf_counter() + seconds
    begun = time.perf_counter()
    gate.wait()
    for thread in running:
        thread.join()
    spent = time.perf_counter() - begun
    every = sorted(x for one in took for x in one)
    return {
        "threads": threads,
        "rate": len(every) / spent,
        "p50": every[len(every) // 2],
        "p99": every[int(len(every) * 0.99)],
        "count": len(every),
    }


def append_together(log: EventLog, threads: int, seconds: float) -> Any:
    """Append an event of a kilobyte to a session for each thread, again and again."""
    mark = f"{time.monotonic_ns()}"

    def step(number: int) -> Callable[[], object]:
        name, head = f"s{mark}-{number}", [0]
        log.create(name, 1.0)
        epoch = log.acquire(name, Owner.here(), time.time()).epoch

        def work() -> None:
            log.append(name, epoch, head[0], [draft(head[0])], time.time())
            head[0] += 1

        return work

    return load_together(step, threads, seconds)


def measure_rivals(server: Server, counts: tuple[int, ...], seconds: float = EACH_S) -> list[Any]:
    """Return rates of appends by threads at once, with the server's CPU, syncs and WAL for each."""
    found, url = [], server.created()
    for threads in counts:
        counters = Counters(server, url)
        with closing(counters):
            before = counters.read()
            with closing(PostgresLog(url)) as log:
                warm = append_together(log, threads, 0.3)["count"]
                own = time.process_time()
                cpu = read_cpu(server.pid or 0)
                shown = append_together(log, threads, seconds)
                cpu, own = read_cpu(server.pid or 0) - cpu, time.process_time() - own
            spent = subtract(counters.read(), before)
        shown["server_cpu"], shown["client_cpu"] = cpu / shown["count"], own / shown["count"]
        shown["spent"] = scale(spent, 1 / (warm + shown["count"]))
        found.append(shown)
    return found


def measure_sqlite_rivals(
    folder: Path, counts: tuple[int, ...], seconds: float = EACH_S
) -> list[Any]:
    """Return rates of appends to a file by threads at once."""
    found = []
    for threads in counts:
        with closing(open_log(f"sqlite://{folder / f'rivals-{threads}.db'}")) as log:
            found.append(append_together(log, threads, seconds))
    return found


def measure_hot_session(server: Server, rivals: int, seconds: float = EACH_S) -> Any:
    """Return the rate of the one writer of a session while rivals ask for its lease."""
    url, stop = server.created(), threading.Event()
    refused = [0] * max(rivals, 1)
    with closing(PostgresLog(url)) as log, closing(PostgresLog(url)) as others:
        log.create("hot", 1.0)
        epoch, head = log.acquire("hot", Owner.here(), 1.0).epoch, [0]

        def ask(number: int) -> None:
            while not stop.is_set():
                try:
                    others.acquire("hot", Owner.here("rival"), 1.0)
                except BusyWriter:
                    refused[number] += 1

        def work() -> None:
            log.append("hot", epoch, head[0], [draft(head[0])], 1.0)
            head[0] += 1

        asking = [threading.Thread(target=ask, args=(n,)) for n in range(rivals)]
        for thread in asking:
            thread.start()
        shown = load_together(lambda _: work, 1, seconds)
        stop.set()
        for thread in asking:
            thread.join()
    return {**shown, "rivals": rivals, "refused": sum(refused) / seconds}


def measure_scopes(server: Server, threads: int, *, hot: bool, seconds: float = EACH_S) -> Any:
    """Return the rate at which conversations are saved: all of one tenant, or each of its own."""
    with closing(PostgresStore(server.created())) as store:

        def step(number: int) -> Callable[[], object]:
            scope = "tenant" if hot else f"tenant {number}"
            count = [0]

            def work() -> None:
                count[0] += 1
                made = {"scope": scope, "prefix": f"{number}-{count[0] % 50}"}
                store.conversations.save(Conversation(**made))

            return work

        return {**load_together(step, threads, seconds), "hot": hot}


def measure_leases(server: Server, sessions: int, beats: int) -> Any:
    """Return what signs of life cost: seconds, WAL, the share of HOT updates, dead rows."""
    url = server.created()
    counters = Counters(server, url)
    with closing(counters):
        with closing(PostgresLog(url)) as log:
            held = {}
            for n in range(sessions):
                log.create(f"s{n}", 1.0)
                held[f"s{n}"] = log.acquire(f"s{n}", Owner.here(), 1.0).epoch
        counters.ask("CHECKPOINT")
        before = counters.read()
        with closing(PostgresLog(url)) as log:
            cpu, took = read_cpu(server.pid or 0), []
            for _ in range(beats):
                for name, epoch in held.items():
                    took += time_calls(lambda n=name, e=epoch: log.heartbeat(n, e, 1.0), 1)
            cpu = read_cpu(server.pid or 0) - cpu
        spent = subtract(counters.read(), before)
    count = sessions * beats
    leases = spent["tables"]["leases"]
    return {
        "sessions": sessions,
        "beats": count,
        "p50": median(took),
        "server_cpu": cpu / count,
        "wal_bytes": spent["wal_bytes"] / count,
        "wal_pages": spent["wal_pages"] / count,
        "hot": leases["hot"] / max(leases["updated"], 1),
        "dead": leases["dead"] / count,
        "autovacuums": leases["autovacuums"],
    }


def measure_resumes(url: str, lengths: tuple[int, ...], rounds: int = 3) -> list[Any]:
    """Return the seconds of reading and folding a session, by its number of events."""
    found = []
    with closing(open_log(url)) as log:
        for length in lengths:
            name = f"length-{length}"
            log.create(name, 1.0)
            epoch = log.acquire(name, Owner.here(), 1.0).epoch
            for start in range(0, length, 500):
                many = [draft(n) for n in range(start, min(start + 500, length))]
                log.append(name, epoch, start, many, 1.0)
            read = time_calls(lambda n=name: log.read(n), rounds)
            both = time_calls(lambda n=name: fold(log.read(n)), rounds)
            found.append({"events": length, "read": median(read), "resume": median(both)})
    return found


def measure_removal(server: Server, sessions: int, events: int) -> Any:
    """Return what it costs to be rid of old events: by rows, by the vacuum behind, by a table."""
    url = server.created()
    counters = Counters(server, url)
    with closing(PostgresLog(url)) as log:
        for n in range(sessions):
            log.create(f"s{n}", 1.0)
            epoch = log.acquire(f"s{n}", Owner.here(), 1.0).epoch
            log.append(f"s{n}", epoch, 0, [draft(i) for i in range(events)], 1.0)
            log.release(f"s{n}", epoch, 1.0)
    with closing(counters):
        count = sessions * events // 2
        half = "SELECT session_id FROM ullage.sessions WHERE number % 2 = 0"
        copy = "CREATE TABLE ullage.part (LIKE ullage.events INCLUDING ALL)"
        counters.ask(copy)
        counters.ask("INSERT INTO ullage.part SELECT * FROM ullage.events")
        counters.ask("CHECKPOINT")
        before = counters.read()
        begun = time.perf_counter()
        counters.ask(f"DELETE FROM ullage.events WHERE session_id IN ({half})")
        deleted = time.perf_counter() - begun
        spent = subtract(counters.read(), before)
        begun = time.perf_counter()
        counters.ask("VACUUM ullage.events")
        vacuumed = time.perf_counter() - begun
        both = subtract(counters.read(), before)
        size = "SELECT pg_total_relation_size('ullage.events')"
        left = counters.ask(size)
        begun = time.perf_counter()
        counters.ask("DROP TABLE ullage.part")
        dropped = time.perf_counter() - begun
    return {
        "events": count,
        "delete_s": deleted / count,
        "delete_wal": spent["wal_bytes"] / count,
        "vacuum_s": vacuumed / count,
        "vacuum_wal": (both["wal_bytes"] - spent["wal_bytes"]) / count,
        "drop_s": dropped,
        "bytes_left": left,
    }


def measure_disk(folder: Path, writes: int = 300) -> Any:
    """Return the middle seconds of a write of 8 KiB with its sync, and the rate of long writes."""
    path = folder / "disk"
    with path.open("wb", 0) as file:

        def sync() -> None:
            file.write(bytes(8192))
            os.fdatasync(file.fileno())

        took = time_calls(sync, writes)
        begun = time.perf_counter()
        for _ in range(128):
            file.write(os.urandom(1 << 20))
        os.fdatasync(file.fileno())
        rate = 128 * (1 << 20) / (time.perf_counter() - begun)
    path.unlink()
    return {"sync_p50": median(took), "sync_p99": took[int(len(took) * 0.99)], "write": rate}


def measure_originals(url: str, sizes: tuple[int, ...], count: int = 30) -> list[Any]:
    """Return the seconds of keeping and reading texts that were left out, by their bytes."""
    found = []
    with closing(open_store(url)) as store:
        for size in sizes:
            texts = [f"{n} {TEXT * (size // len(TEXT) + 1)}"[:size] for n in range(count)]
            named = [{reference(text): text} for text in texts]
            pending = iter(named)
            kept = time_calls(lambda p=pending: store.originals.keep(next(p)), count)
            names = iter([name for one in named for name in one])
            read = time_calls(lambda n=names: store.originals.read(next(n)), count)
            found.append({"bytes": size, "keep": median(kept), "read": median(read)})
    return found
