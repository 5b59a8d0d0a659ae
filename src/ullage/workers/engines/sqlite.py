"""The queue of one machine: three tables in an SQLite file next to the log's; no more packages.

It has its own file, so that frequent queries never wait for the log's syncs. Waiting callers check
every `LOOK_S`, as there is no news channel. Times are this machine's.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Final, TypeVar

from ullage.storage.database import Database
from ullage.storage.log import Owner, dead
from ullage.threads import Threads
from ullage.workers.engine import (
    KEPT_S,
    Loan,
    News,
    Perform,
    Post,
    Taken,
    lend_looks,
    make_full_error,
)
from ullage.workers.job import (
    ENDED,
    STANDARD_LIMITS,
    JobOutcome,
    JobRow,
    JobState,
    QueueReport,
    TenantLimits,
    TenantRow,
    TurnJob,
    WorkerRow,
    make_cancelled,
    read_job,
    read_outcome,
)
from ullage.workers.pulling import PullLoop

LOOK_S: Final = 0.1
"""Seconds between two checks of a waiting caller."""

SUFFIX: Final = ".jobs"
"""Added to the name of the log's file."""

MIGRATIONS: Final[Sequence[str]] = (
    """
    CREATE TABLE jobs (
        number    INTEGER PRIMARY KEY AUTOINCREMENT,
        id        TEXT    NOT NULL UNIQUE,
        tenant    TEXT    NOT NULL,
        session   TEXT    NOT NULL,
        priority  INTEGER NOT NULL,
        key       TEXT,
        state     TEXT    NOT NULL,
        attempt   INTEGER NOT NULL DEFAULT 0,
        deaths    INTEGER NOT NULL DEFAULT 0,
        worker    INTEGER,
        cancelled INTEGER NOT NULL DEFAULT 0,
        submitted REAL    NOT NULL,
        ended     REAL    NOT NULL DEFAULT 0,
        body      TEXT    NOT NULL,
        outcome   TEXT,
        UNIQUE (tenant, key)
    ) STRICT;
    CREATE INDEX jobs_waiting ON jobs (tenant, priority DESC, number) WHERE state = 'waiting';
    CREATE INDEX jobs_running ON jobs (tenant, worker) WHERE state = 'running';
    CREATE INDEX jobs_session ON jobs (session) WHERE state IN ('waiting', 'running');
    CREATE TABLE tenants (
        name    TEXT PRIMARY KEY,
        running INTEGER,
        waiting INTEGER,
        served  INTEGER NOT NULL DEFAULT 0
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE workers (
        number   INTEGER PRIMARY KEY AUTOINCREMENT,
        name     TEXT    NOT NULL,
        owner    TEXT    NOT NULL,
        slots    INTEGER NOT NULL,
        lease_s  REAL    NOT NULL,
        seen     REAL    NOT NULL,
        draining INTEGER NOT NULL DEFAULT 0
    ) STRICT;
    """,
)

TENANTS: Final = """
    SELECT t.name, t.running, t.waiting,
           (SELECT count(*) FROM jobs AS j WHERE j.tenant = t.name AND j.state = 'waiting'),
           (SELECT count(*) FROM jobs AS j WHERE j.tenant = t.name AND j.state = 'running'),
           t.served
    FROM tenants AS t
"""
NEXT: Final = """
    SELECT j.number, j.attempt, j.deaths, j.body FROM jobs AS j
    WHERE j.tenant = ? AND j.state = 'waiting' AND NOT EXISTS (
        SELECT 1 FROM jobs AS o WHERE o.session = j.session AND (
            o.state = 'running' OR (o.state = 'waiting' AND o.tenant = j.tenant AND
                (o.priority > j.priority OR (o.priority = j.priority AND o.number < j.number)))))
    ORDER BY j.priority DESC, j.number LIMIT 1
"""
"""The first job of a tenant whose session no worker has, as with procrastinate's locks."""

TAKE: Final = (
    "UPDATE jobs SET state = 'running', worker = ?, attempt = attempt + 1 WHERE number = ?"
)
OLD: Final = "DELETE FROM jobs WHERE ended > 0 AND ended < ?"
CANCELLED: Final = "SELECT cancelled, session FROM jobs WHERE"
BACK: Final = "UPDATE jobs SET state = 'waiting', worker = NULL WHERE"
END: Final = "UPDATE jobs SET state = ?, ended = ?, outcome = ? WHERE"
LOST: Final = """
    SELECT number, session FROM jobs WHERE state = 'running' AND cancelled AND worker IN
"""
RESIGN: Final = "DELETE FROM workers WHERE number IN"
MINE: Final = "number = ? AND state = 'running' AND worker = ? AND attempt = ?"
GONE: Final = "UPDATE jobs SET state = 'waiting', worker = NULL{} WHERE worker IN ({})"
STOPPED: Final = """
    UPDATE jobs SET state = 'cancelled', worker = NULL, ended = ?, outcome = ?
    WHERE number = ?
"""
ROW: Final = """
    SELECT j.body, j.state, j.deaths, coalesce(w.name, ''), j.submitted, j.ended, j.outcome
    FROM jobs AS j LEFT JOIN workers AS w ON w.number = j.worker
"""

Result = TypeVar("Result")

Connection = Any
"""An apsw connection, which only the storage package knows."""


def place_queue(log: Path) -> Path:
    """Return the file of a log's queue, in the same folder."""
    return log.with_name(f"{log.name}{SUFFIX}")


class SqliteEngine:
    """A queue in a file next to the log's; raises StoreError if the file cannot be used."""

    def __init__(self, log: Path) -> None:
        path = place_queue(log)
        self._database = Database(path, migrations=MIGRATIONS)
        self._threads = Threads("ullage-jobs", 1)
        self.url = f"sqlite://{path}"

    async def submit(self, job: TurnJob) -> str:
        """Add a job and return its id; raises QueueFull."""

        def step(connection: Connection) -> str:
            connection.execute("INSERT OR IGNORE INTO tenants (name) VALUES (?)", (job.tenant,))
            if job.key:
                held = "SELECT id FROM jobs WHERE tenant = ? AND key = ?"
                for (found,) in connection.execute(held, (job.tenant, job.key)):
                    return str(found)
            ((_, _, most, waiting, _, _),) = connection.execute(
                f"{TENANTS} WHERE t.name = ?", (job.tenant,)
            )
            most = STANDARD_LIMITS.waiting if most is None else most
            if waiting >= most:
                raise make_full_error(job.tenant, waiting, most)
            row = (job.id, job.tenant, job.session, job.priority, job.key or None, "waiting")
            connection.execute(
                "INSERT INTO jobs (id, tenant, session, priority, key, state, submitted, body) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (*row, time.time(), job.to_text()),
            )
            return job.id

        return await self._write(step)

    async def cancel(self, job: str) -> bool:
        """Cancel a waiting or running job."""

        def step(connection: Connection) -> bool:
            found = list(
                connection.execute("SELECT number, state, session FROM jobs WHERE id = ?", (job,))
            )
            if not found or found[0][1] in ENDED:
                return False
            number, state, session = found[0]
            if state == "running":
                connection.execute("UPDATE jobs SET cancelled = 1 WHERE number = ?", (number,))
            else:
                said = make_cancelled(session)
                connection.execute(STOPPED, (time.time(), said.to_text(), number))
            return True

        return await self._write(step)

    async def find(self, job: str) -> JobRow | None:
        """Return the current state of a job."""
        rows = await self._read(f"{ROW} WHERE j.id = ?", (job,))
        return _read_row(rows[0]) if rows else None

    async def report(self, most: int = 100) -> QueueReport:
        """Return the contents of the queue."""
        tenants = await self._read(f"{TENANTS} ORDER BY t.name")
        workers = await self._read(
            "SELECT w.name, w.slots, (SELECT count(*) FROM jobs AS j WHERE j.state = 'running' AND "
            "j.worker = w.number), w.seen, w.draining FROM workers AS w ORDER BY w.number"
        )
        jobs = await self._read(f"{ROW} ORDER BY j.number DESC LIMIT ?", (most,))
        now = time.time()
        return QueueReport(
            tenants=[_read_tenant(row) for row in tenants],
            workers=[
                WorkerRow(
                    name=name,
                    slots=slots,
                    running=running,
                    silent_s=max(now - seen, 0.0),
                    draining=bool(draining),
                )
                for name, slots, running, seen, draining in workers
            ],
            jobs=[_read_row(row) for row in jobs],
        )

    async def set_limits(self, tenant: str, limits: TenantLimits) -> None:
        """Set a tenant's limits."""
        await self._write(
            lambda connection: connection.execute(
                "INSERT INTO tenants (name, running, waiting) VALUES (?1, ?2, ?3) ON CONFLICT "
                "(name) DO UPDATE SET running = ?2, waiting = ?3",
                (tenant, limits.running, limits.waiting),
            )
        )

    def listen(self, job: str) -> AbstractAsyncContextManager[AsyncIterator[News | None]]:
        """Lend the times at which to look again; this engine sends no news."""
        del job
        return lend_looks(LOOK_S)

    async def work(self, post: Post, perform: Perform) -> None:
        """Run jobs until the post drains and no job runs here."""
        await PullLoop(self, post, perform).run()

    async def tell(self, news: list[News]) -> None:
        """Drop news: callers read the log."""

    async def aclose(self) -> None:
        """Close the file."""
        await self._threads.run(self._database.close)

    # --- single steps ---------------------------------------------------------------------------

    async def enlist(self, post: Post) -> int:
        """Register a worker; return its number."""

        def step(connection: Connection) -> int:
            connection.execute(OLD, (time.time() - KEPT_S,))
            row = (post.name, json.dumps(post.owner.to_dict()), post.slots, post.lease_s)
            connection.execute(
                "INSERT INTO workers (name, owner, slots, lease_s, seen) VALUES (?, ?, ?, ?, ?)",
                (*row, time.time()),
            )
            made: int = connection.last_insert_rowid()
            return made

        return await self._write(step)

    async def resign(self, worker: int) -> None:
        """Remove a worker."""
        await self._write(lambda connection: _forget(connection, [worker], ""))

    async def beat(self, worker: int, *, draining: bool) -> bool:
        """Send a heartbeat."""

        def step(connection: Connection) -> bool:
            row = (time.time(), draining, worker)
            connection.execute("UPDATE workers SET seen = ?, draining = ? WHERE number = ?", row)
            return bool(connection.changes())

        return await self._write(step)

    async def take(self, worker: int) -> Taken | None:
        """Take the next job of the tenant whose turn it is."""
        if not await self._read("SELECT 1 FROM jobs WHERE state = 'waiting' LIMIT 1"):
            return None
        return await self._write(lambda connection: _take(connection, worker))

    async def settle(
        self, worker: int, number: int, attempt: int, outcome: JobOutcome | None
    ) -> bool:
        """Record how a job ended, or give it back."""

        def step(connection: Connection) -> bool:
            mine = (number, worker, attempt)
            found = list(connection.execute(f"{CANCELLED} {MINE}", mine))
            if not found:
                return False
            ended = outcome
            cancelled, session = found[0]
            if ended is None and cancelled:
                ended = make_cancelled(session)
            if ended is None:
                back = f"{BACK} {MINE}"
                connection.execute(back, mine)
                return True
            done = f"{END} {MINE}"
            connection.execute(done, (ended.state, time.time(), ended.to_text(), *mine))
            return True

        return await self._write(step)

    async def list_lent(self, worker: int) -> list[Loan]:
        """Return the jobs that the queue assigns to the worker."""
        sql = "SELECT number, attempt, cancelled FROM jobs WHERE state = 'running' AND worker = ?"
        rows = await self._read(sql, (worker,))
        return [Loan(number, attempt, bool(cancelled)) for number, attempt, cancelled in rows]

    async def reap(self) -> int:
        """Give back the jobs of dead or silent workers."""
        rows = await self._read("SELECT number, owner, lease_s, seen FROM workers")
        now = time.time()
        gone = [
            number
            for number, owner, lease_s, seen in rows
            if now - seen > lease_s or dead(Owner(**json.loads(owner)))
        ]
        if not gone:
            return 0
        return await self._write(
            lambda connection: _forget(connection, gone, ", deaths = deaths + 1")
        )

    async def wait(self, seconds: float) -> None:
        """Wait a moment."""
        await asyncio.sleep(min(seconds, LOOK_S))

    # --- inside ---------------------------------------------------------------------------------

    async def _write(self, step: Callable[[Connection], Result]) -> Result:
        def write() -> Result:
            with self._database.writing() as connection:
                return step(connection)

        return await self._threads.run(write)

    async def _read(self, sql: str, bindings: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return await self._threads.run(self._database.read, sql, bindings)


def _take(connection: Connection, worker: int) -> Taken | None:
    """Take the next job: from the tenant with the fewest running jobs, least recently served."""
    rows = list(connection.execute(TENANTS))
    open_ones = [
        (running, served, name)
        for name, most, _, waiting, running, served in rows
        if waiting and running < (STANDARD_LIMITS.running if most is None else most)
    ]
    for _, _, name in sorted(open_ones):
        for number, attempt, deaths, body in list(connection.execute(NEXT, (name,))):
            connection.execute(TAKE, (worker, number))
            order = (
                "UPDATE tenants SET served = (SELECT max(served) + 1 FROM tenants) WHERE name = ?"
            )
            connection.execute(order, (name,))
            return Taken(number, attempt + 1, deaths, read_job(body))
    return None


def _forget(connection: Connection, workers: Sequence[int], more: str) -> int:
    """Remove workers and give back their jobs; end those that should be cancelled."""
    places = ", ".join("?" * len(workers))
    stopped = connection.execute(f"{LOST} ({places})", workers)
    for number, session in list(stopped):
        said = make_cancelled(session)
        connection.execute(STOPPED, (time.time(), said.to_text(), number))
    connection.execute(f"{GONE.format(more, places)} AND state = 'running'", workers)
    given_back: int = connection.changes()
    connection.execute(f"{RESIGN} ({places})", workers)
    return given_back


def _read_row(row: tuple[Any, ...]) -> JobRow:
    body, state, deaths, worker, submitted, ended, outcome = row
    told: JobState = state
    return JobRow(
        job=read_job(body),
        state=told,
        attempts=deaths,
        worker=worker,
        submitted=submitted,
        ended=ended,
        outcome=None if outcome is None else read_outcome(outcome),
    )


def _read_tenant(row: tuple[Any, ...]) -> TenantRow:
    name, most_running, most_waiting, waiting, running, _ = row
    return TenantRow(
        name=name,
        waiting=waiting,
        running=running,
        most_running=STANDARD_LIMITS.running if most_running is None else most_running,
        most_waiting=STANDARD_LIMITS.waiting if most_waiting is None else most_waiting,
    )
