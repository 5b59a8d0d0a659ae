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
from ullage.agent.moving import move_texts
from ullage.core.compaction.edits import reference
from ullage.core.errors import BusyWriter
from ullage.core.guard.conversation import Conversation
from ullage.core.session.log.event import Draft
from ullage.core.session.log.fold import fold
from ullage.storage import open_log, open_store
from ullage.storage.log import EventLog, Owner
from ullage.storage.log_postgres import PostgresLog
from ullage.storage.log_sqlite import SqliteLog
from ullage.storage.objects import ObjectPlace
from ullage.storage.postgres import PostgresStore

TEXT: Final = "the gauge of cask 4711 reads 12.5 at line 88 " * 20
"""900 bytes."""

EACH_S: Final = 3.0
"""Seconds of a load."""

LSN: Final = "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')"

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


def fill(log: EventLog, sessions: int, events: int) -> None:
    """Write sessions of so many events of a kilobyte, each released again."""
    for n in range(sessions):
        log.create(f"s{n}", 1.0)
        epoch = log.acquire(f"s{n}", Owner.here(), 1.0).epoch
        log.append(f"s{n}", epoch, 0, [draft(i) for i in range(events)], 1.0)
        log.release(f"s{n}", epoch, 1.0)


def measure_removal(server: Server, sessions: int, events: int) -> Any:
    """Return what it costs to be rid of half of the sessions: by rows, by a vacuum, by a table."""
    url = server.created()
    counters = Counters(server, url)
    with closing(counters), closing(PostgresLog(url)) as log:
        fill(log, sessions, events)
        whole = sessions * events
        found: dict[str, Any] = {"events": whole // 2}
        for name in ("pg_table_size", "pg_indexes_size"):
            found[name] = counters.ask(f"SELECT {name}('ullage.events')") / whole
        counters.ask("CREATE TABLE ullage.part (LIKE ullage.events INCLUDING ALL)")
        counters.ask("INSERT INTO ullage.part SELECT * FROM ullage.events")
        counters.ask("CHECKPOINT")
        before = counters.ask(LSN)
        begun = time.perf_counter()
        for n in range(0, sessions, 2):
            assert log.remove(f"s{n}", log.acquire(f"s{n}", Owner.here(), 1.0).epoch)
        found["delete_s"] = (time.perf_counter() - begun) / found["events"]
        deleted = counters.ask(LSN)
        begun = time.perf_counter()
        counters.ask("VACUUM ullage.events")
        found["vacuum_s"] = (time.perf_counter() - begun) / found["events"]
        found["delete_wal"] = float(deleted - before) / found["events"]
        found["vacuum_wal"] = float(counters.ask(LSN) - deleted) / found["events"]
        begun, before = time.perf_counter(), counters.ask(LSN)
        counters.ask("DROP TABLE ullage.part")
        found["drop_s"] = time.perf_counter() - begun
        found["drop_wal"] = float(counters.ask(LSN) - before)
        found["bytes_left"] = counters.ask("SELECT pg_total_relation_size('ullage.events')") / whole
    return found


def measure_partitions(server: Server, sessions: int, events: int, seconds: float = EACH_S) -> Any:
    """Return how long partitions take to begin and to end, and how fast appends are with them."""
    url, found = server.created(), {}
    with closing(PostgresLog(url)) as log:
        fill(log, sessions, events)
        found["begin_s"] = time_calls(lambda: log.partitions.begin("month"), 1)[0]
        append_together(log, 4, 0.3)
        cpu = read_cpu(server.pid or 0)
        shown = append_together(log, 4, seconds)
        found["server_cpu"] = (read_cpu(server.pid or 0) - cpu) / shown["count"]
        found["read_s"] = median(time_calls(lambda: log.read("s0"), 20))
        found["end_s"] = time_calls(log.partitions.end, 1)[0]
    with closing(PostgresLog(url)) as log:
        found["read_whole_s"] = median(time_calls(lambda: log.read("s0"), 20))
    return {**found, **{k: shown[k] for k in ("rate", "p50", "p99")}, "events": sessions * events}


def measure_sqlite_removal(path: Path, sessions: int, events: int) -> Any:
    """Return the seconds of taking a session out of a file, and what is left of the file."""
    with closing(SqliteLog(path)) as log:
        fill(log, sessions, events)
        size = path.stat().st_size
        took = []
        for n in range(0, sessions, 2):
            epoch = log.acquire(f"s{n}", Owner.here(), 1.0).epoch
            took += time_calls(lambda n=n, e=epoch: log.remove(f"s{n}", e), 1)
    return {
        "events": events,
        "remove_s": median(took),
        "longest_s": max(took),
        "left": path.stat().st_size / size,
    }


def measure_disk(folder: Path, rounds: int = 8) -> Any:
    """Return the quietest of some rounds: what else runs makes syncs twenty times as long."""
    return min((_measure_disk(folder) for _ in range(rounds)), key=lambda one: one["sync_mean"])


def _measure_disk(folder: Path, writes: int = 300) -> Any:
    """Return the seconds of writing 8 KiB again with a sync, and the rate of long writes."""
    path = folder / "disk"
    with path.open("wb", 0) as file:
        begun = time.perf_counter()
        for _ in range(128):
            file.write(os.urandom(1 << 20))
        os.fdatasync(file.fileno())
        rate = 128 * (1 << 20) / (time.perf_counter() - begun)
        file.seek(0)

        def sync() -> None:
            file.write(bytes(8192))
            os.fdatasync(file.fileno())

        took = time_calls(sync, writes)
    path.unlink()
    return {
        "sync_p50": median(took),
        "sync_mean": sum(took) / len(took),
        "sync_p99": took[int(len(took) * 0.99)],
        "syncs": [float(f"{one:.3g}") for one in took],
        "write": rate,
    }


def measure_moved(url: str, folder: Path, sizes: tuple[int, ...], count: int = 40) -> list[Any]:
    """Return the seconds of reading a session of large texts: in the log, and as objects."""
    found, place = [], ObjectPlace(f"file://{folder}/objects", create=True)
    with closing(open_log(url)) as log:
        for size in sizes:
            name = f"of-{size}"
            log.create(name, 1.0)
            epoch = log.acquire(name, Owner.here(), 1.0).epoch
            texts = [f"{n} {TEXT * (size // len(TEXT) + 1)}"[:size] for n in range(count)]
            many = [Draft("tool_result", {"call_id": "c", "text": text}) for text in texts]
            log.append(name, epoch, 0, many, 1.0)
            log.release(name, epoch, 1.0)
            inside = median(time_calls(lambda n=name: log.read(n), 5))
            begun = time.perf_counter()
            moved = move_texts(log, place, 4e9, size // 2)
            took = time.perf_counter() - begun
            assert moved.texts == count
            outside = median(time_calls(lambda n=name: log.read(n), 5))
            found.append(
                {
                    "bytes": size,
                    "texts": count,
                    "inside": inside,
                    "outside": outside,
                    "move": took / count,
                }
            )
    return found


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
