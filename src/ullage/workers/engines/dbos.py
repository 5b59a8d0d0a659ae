"""DBOS: durable workflows in the log's PostgreSQL database, one workflow per job.

A tenant is a DBOS queue with the tenant's limit. A session is a partition of it, which runs one
workflow at a time. DBOS itself does not detect dead workers (its paid conductor does). So workers
write heartbeats to a table of ours, and any worker that sees a dead one enqueues its jobs again.
There is no news channel: workers and callers check every `LOOK_S`, and pieces of answers are not
sent.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import threading
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, Final, TypeVar

import msgspec
import sqlalchemy
from dbos import (
    DBOS,
    DBOSClient,
    WorkflowSerializationFormat,
    WorkflowStatus,
)
from sqlalchemy.exc import SQLAlchemyError

from ullage.core.errors import ConfigurationError, StoreAway
from ullage.storage.log import Owner, dead
from ullage.storage.postgres_url import hide_password
from ullage.workers.engine import (
    MOST_DEATHS,
    News,
    Perform,
    Post,
    Running,
    lend_looks,
    make_full_error,
)
from ullage.workers.job import (
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

SCHEMA: Final = "ullage_dbos"
"""The schema of DBOS's tables and ours, separate from the log's."""

WORKFLOW: Final = "ullage_turn"
QUEUE: Final = "ullage."
"""Prefix of a tenant's queue name."""

APPLICATION: Final = "ullage"
RELEASE: Final = "1"
"""The version of the workflow: workers with another one ignore its jobs."""

LOOK_S: Final = 0.2
"""Seconds between two checks: for jobs, cancellations, and ends."""

BEATS: Final = 4
LONGEST_BEAT_S: Final = 1.0

SLOTS: Final = 4
"""Workflows of one tenant that a worker takes, until one with other slots starts."""

CLOSING_S: Final = 5.0
"""Seconds for turns to release their sessions after they were told to."""

TABLES: Final = """
    CREATE TABLE IF NOT EXISTS ullage_tenants (
        name    text PRIMARY KEY,
        running bigint NOT NULL,
        waiting bigint NOT NULL
    );
    CREATE TABLE IF NOT EXISTS ullage_posts (
        worker   text PRIMARY KEY,
        name     text NOT NULL,
        owner    text NOT NULL,
        slots    bigint NOT NULL,
        lease_s  double precision NOT NULL,
        seen     timestamptz NOT NULL,
        draining boolean NOT NULL
    );
"""
LOCK: Final = f"hashtext('{SCHEMA}')"
NEW_TENANT: Final = """
    INSERT INTO ullage_tenants (name, running, waiting)
    VALUES (:name, :running, :waiting) ON CONFLICT (name) DO NOTHING RETURNING name
"""
LIMIT: Final = """
    INSERT INTO ullage_tenants (name, running, waiting)
    VALUES (:name, :running, :waiting) ON CONFLICT (name) DO UPDATE
    SET running = excluded.running, waiting = excluded.waiting
"""
WAITING: Final = """
    SELECT t.waiting AS most, count(w.workflow_uuid) AS waiting
    FROM ullage_tenants AS t LEFT JOIN workflow_status AS w
    ON w.queue_name = 'ullage.' || t.name AND w.status = 'ENQUEUED'
    WHERE t.name = :name GROUP BY t.name
"""
TENANTS: Final = """
    SELECT t.name, t.running AS most_running, t.waiting AS most_waiting,
           count(*) FILTER (WHERE w.status = 'ENQUEUED') AS waiting,
           count(*) FILTER (WHERE w.status = 'PENDING') AS running
    FROM ullage_tenants AS t LEFT JOIN workflow_status AS w
    ON w.queue_name = 'ullage.' || t.name AND w.status IN ('ENQUEUED', 'PENDING')
    GROUP BY t.name ORDER BY t.name
"""
BEAT: Final = """
    UPDATE ullage_posts SET seen = clock_timestamp(), draining = :draining
    WHERE worker = :worker RETURNING worker
"""
ENLIST: Final = """
    INSERT INTO ullage_posts (worker, name, owner, slots, lease_s, seen, draining)
    VALUES (:worker, :name, :owner, :slots, :lease_s, clock_timestamp(), false)
    ON CONFLICT (worker) DO UPDATE SET seen = clock_timestamp()
"""
RESIGN: Final = "UPDATE ullage_posts SET seen = '-infinity' WHERE worker = :worker"
POSTS: Final = """
    SELECT p.worker, p.name, p.owner, p.slots, p.draining,
           p.seen < clock_timestamp() - p.lease_s * interval '1 second' AS silent,
           CASE WHEN p.seen = '-infinity' THEN 0
                ELSE extract(epoch FROM clock_timestamp() - p.seen)::double precision
           END AS silent_s,
           (SELECT count(*) FROM workflow_status AS w
            WHERE w.executor_id = p.worker AND w.status = 'PENDING') AS running
    FROM ullage_posts AS p ORDER BY p.name, p.worker
"""
FORGET: Final = "DELETE FROM ullage_posts WHERE worker = :worker"
CANCELLED: Final = """
    SELECT workflow_uuid AS id FROM workflow_status
    WHERE executor_id = :worker AND status = 'CANCELLED' AND workflow_uuid = ANY(:ids)
"""

STATES: Final[Mapping[str, JobState]] = {
    "ENQUEUED": "waiting",
    "DELAYED": "waiting",
    "PENDING": "running",
    "SUCCESS": "done",
    "CANCELLED": "cancelled",
}
"""Any other status is a failure of DBOS itself."""

Result = TypeVar("Result")


class DbosEngine:
    """A queue in a PostgreSQL database; raises StoreError if the database cannot be used."""

    def __init__(self, url: str) -> None:
        self.url = hide_password(url)
        self.plain = url
        made = sqlalchemy.make_url(url).set(drivername="postgresql+psycopg")
        self._database = sqlalchemy.create_engine(
            made,
            isolation_level="AUTOCOMMIT",
            pool_pre_ping=True,
            pool_size=4,
            connect_args={"options": f"-c search_path={SCHEMA}"},
        )
        self._gate = asyncio.Lock()
        self._client: DBOSClient | None = None

    async def submit(self, job: TurnJob) -> str:
        """Add a job and return its id; raises QueueFull.

        Several callers at the same moment may each find the last place free.
        """
        if job.key:
            told = hashlib.sha256(f"{job.tenant}\0{job.key}".encode()).hexdigest()[:16]
            job = msgspec.structs.replace(job, id=told)
            if await self.find(told) is not None:
                return told
        client = await self.open()
        standard = {"running": STANDARD_LIMITS.running, "waiting": STANDARD_LIMITS.waiting}
        if await self.ask(NEW_TENANT, name=job.tenant, **standard):
            await self._register(job.tenant, STANDARD_LIMITS.running, None)
        (row,) = await self.ask(WAITING, name=job.tenant)
        if row["waiting"] >= row["most"]:
            raise make_full_error(job.tenant, row["waiting"], row["most"])
        options: Any = {
            "workflow_name": WORKFLOW,
            "queue_name": f"{QUEUE}{job.tenant}",
            "workflow_id": job.id,
            "queue_partition_key": job.session,
            "priority": 1_000 - job.priority,  # DBOS runs the lowest number first
            "app_version": RELEASE,
            "serialization_type": WorkflowSerializationFormat.PORTABLE,
        }
        await self.call(lambda: client.enqueue(options, job.to_text()))
        return job.id

    async def cancel(self, job: str) -> bool:
        """Cancel a waiting or running job."""
        row = await self.find(job)
        if row is None or row.state not in ("waiting", "running"):
            return False
        client = await self.open()
        await self.call(lambda: client.cancel_workflow(job))
        return True

    async def find(self, job: str) -> JobRow | None:
        """Return the current state of a job."""
        client = await self.open()
        found = await self.call(lambda: client.list_workflows(workflow_ids=[job]))
        names = await self._list_names()
        return _read_row(found[0], names) if found else None

    async def report(self, most: int = 100) -> QueueReport:
        """Return the contents of the queue."""
        client = await self.open()
        tenants = await self.ask(TENANTS)
        posts = await self.ask(POSTS)
        jobs: list[WorkflowStatus] = []
        if most:
            jobs = await self.call(
                lambda: client.list_workflows(name=WORKFLOW, limit=most, sort_desc=True)
            )
        names = {row["worker"]: row["name"] for row in posts}
        return QueueReport(
            tenants=[TenantRow(**row) for row in tenants],
            workers=[
                WorkerRow(
                    name=row["name"],
                    slots=row["slots"],
                    running=row["running"],
                    silent_s=row["silent_s"],
                    draining=row["draining"],
                )
                for row in posts
            ],
            jobs=[_read_row(found, names) for found in jobs],
        )

    async def set_limits(self, tenant: str, limits: TenantLimits) -> None:
        """Set a tenant's limits."""
        if not limits.running:
            raise ConfigurationError(
                "a queue of DBOS runs one job or more: set --most-waiting 0 to take no more in"
            )
        await self.open()
        given = {"running": limits.running, "waiting": limits.waiting}
        await self.ask(LIMIT, name=tenant, **given)
        await self._register(tenant, limits.running, None)

    def listen(self, job: str) -> AbstractAsyncContextManager[AsyncIterator[News | None]]:
        """Lend the times at which to look again."""
        del job
        return lend_looks(LOOK_S)

    async def work(self, post: Post, perform: Perform) -> None:
        """Run jobs until the post drains and no job runs here."""
        await self.open()
        for row in await self.ask(TENANTS):
            await self._register(row["name"], row["most_running"], post.slots)
        await DbosShift(self, post, perform).run()

    async def tell(self, news: list[News]) -> None:
        """Drop news: callers read the log."""

    async def aclose(self) -> None:
        """Close all connections."""
        if self._client is not None:
            await asyncio.to_thread(self._client.destroy)
        await asyncio.to_thread(self._database.dispose)

    # --- inside ---------------------------------------------------------------------------------

    async def open(self) -> DBOSClient:
        """Return DBOS's client, and create its schema if it is missing."""
        async with self._gate:
            if self._client is None:
                self._client = await self.call(self._connect)
            return self._client

    def _connect(self) -> DBOSClient:
        with self._database.connect() as connection:  # waits for anyone else who creates it
            connection.execute(sqlalchemy.text(f"SELECT pg_advisory_lock({LOCK})"))
            try:
                DBOS.migrate(self.plain, schema=SCHEMA)
                connection.execute(sqlalchemy.text(TABLES))
            finally:
                connection.execute(sqlalchemy.text(f"SELECT pg_advisory_unlock({LOCK})"))
        return DBOSClient(
            system_database_url=self.plain,
            dbos_system_schema=SCHEMA,
            application_name=APPLICATION,
            retry_connection_errors=False,
        )

    async def ask(self, sql: str, **values: Any) -> list[dict[str, Any]]:
        """Return the rows of one statement, in its own transaction."""

        def work() -> list[dict[str, Any]]:
            with self._database.connect() as connection:
                done = connection.execute(sqlalchemy.text(sql), values)
                return [dict(row) for row in done.mappings()] if done.returns_rows else []

        return await self.call(work)

    async def call(self, work: Callable[[], Result]) -> Result:
        """Do blocking database work in a thread; raises StoreAway if the database is away."""
        try:
            return await asyncio.to_thread(work)
        except SQLAlchemyError as error:
            said = str(getattr(error, "orig", None) or error).strip().partition("\n")[0]
            raise StoreAway(f"the queue in {self.url} cannot be used: {said}") from error

    async def _register(self, tenant: str, running: int, slots: int | None) -> None:
        """Create the queue of a tenant, or change it."""
        client = await self.open()
        await self.call(
            lambda: client.register_queue(
                f"{QUEUE}{tenant}",
                global_concurrency=running,
                partition_concurrency=1,
                worker_concurrency=min(slots or SLOTS, running),
                polling_interval_sec=LOOK_S,
            )
        )

    async def _list_names(self) -> dict[str, str]:
        return {row["worker"]: row["name"] for row in await self.ask(POSTS)}


class DbosShift:
    """One DBOS worker; DBOS runs workflows on its own loop. `run` may be called once."""

    def __init__(self, engine: DbosEngine, post: Post, perform: Perform) -> None:
        self._engine, self._post, self._perform = engine, post, perform
        self._id = uuid.uuid4().hex  # never a name: a dead worker may have had it
        self._lock = threading.Lock()
        self._under_way: dict[str, Running] = {}
        self._slots: asyncio.Semaphore | None = None
        self._leaving = False

    async def run(self) -> None:
        """Work until the post drains and no job runs."""
        await self._enlist()
        await asyncio.to_thread(self._launch)
        keeping = asyncio.create_task(self._keep())
        try:
            await self._post.draining.wait()
            await self._drain()
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
            await self._engine.ask(RESIGN, worker=self._id)

    def _launch(self) -> None:
        DBOS(
            config={
                "name": APPLICATION,
                "system_database_url": self._engine.plain,
                "dbos_system_schema": SCHEMA,
                "executor_id": self._id,
                "application_version": RELEASE,
                "log_level": "ERROR",
                "run_migrations": False,
            }
        )

        @DBOS.workflow(
            name=WORKFLOW,
            max_recovery_attempts=MOST_DEATHS,
            serialization_type=WorkflowSerializationFormat.PORTABLE,
        )
        async def run_turn(body: str) -> str:
            return await self._turn(body)

        DBOS.launch()

    async def _turn(self, body: str) -> str:
        """Run a job; one left to other workers ends as cancelled, which records nothing."""
        job = read_job(body)
        if self._slots is None:
            self._slots = asyncio.Semaphore(self._post.slots)
        async with self._slots:
            while not (self._leaving or self._post.draining.is_set()):
                running = self._perform(job, 0)
                with self._lock:
                    self._under_way[job.id] = running
                try:
                    outcome = await running.run()
                finally:
                    with self._lock:
                        del self._under_way[job.id]
                if outcome is not None:
                    return outcome.to_text()
                await asyncio.sleep(LOOK_S)
        raise asyncio.CancelledError

    async def _enlist(self) -> None:
        post = self._post
        await self._engine.ask(
            ENLIST,
            worker=self._id,
            name=post.name,
            owner=json.dumps(post.owner.to_dict()),
            slots=post.slots,
            lease_s=post.lease_s,
        )

    async def _keep(self) -> None:
        """Send heartbeats, and check for dead workers and cancellations, until cancelled."""
        every, due = min(self._post.lease_s / BEATS, LONGEST_BEAT_S), 0.0
        loop = asyncio.get_running_loop()
        while True:
            try:
                if loop.time() >= due:
                    due = loop.time() + every
                    draining = self._post.draining.is_set()
                    if not await self._engine.ask(BEAT, worker=self._id, draining=draining):
                        self._end_all()
                        await self._enlist()
                    await self._reap()
                await self._hear_cancellations()
            except StoreAway:
                pass  # the next one may succeed; the log's lease decides who may write
            await asyncio.sleep(LOOK_S)

    async def _reap(self) -> None:
        """Enqueue the jobs of dead workers again."""
        for row in await self._engine.ask(POSTS):
            gone = row["silent"] or dead(Owner(**json.loads(row["owner"])))
            if gone and row["worker"] != self._id and not self._leaving:
                await self._engine.call(partial(_recover, row["worker"]))
                await self._engine.ask(FORGET, worker=row["worker"])

    async def _hear_cancellations(self) -> None:
        with self._lock:
            held = dict(self._under_way)
        if held:
            for row in await self._engine.ask(CANCELLED, worker=self._id, ids=list(held)):
                held[row["id"]].cancel()

    def _end_all(self) -> None:
        with self._lock:
            held = list(self._under_way.values())
        for running in held:
            running.let_go()

    async def _drain(self) -> None:
        """Take no more jobs; give running ones their time, then leave them to other workers."""
        longest = math.ceil(self._post.drain_s + CLOSING_S)
        ending = asyncio.create_task(
            asyncio.to_thread(
                DBOS.destroy, destroy_registry=True, workflow_completion_timeout_sec=longest
            )
        )
        await asyncio.wait({ending}, timeout=self._post.drain_s)
        self._leaving = True
        self._end_all()
        await ending


def _recover(worker: str) -> None:
    """Enqueue a worker's jobs again; DBOS's conductor uses this, but it has no public name."""
    DBOS._recover_pending_workflows([worker])  # noqa: SLF001 - see above


def _read_row(found: WorkflowStatus, names: Mapping[str, str]) -> JobRow:
    given: Mapping[str, Any] = dict(found.input or {})
    job = read_job(given["args"][0])
    state: JobState = STATES.get(str(found.status), "failed")
    outcome: JobOutcome | None = None
    if state == "done":
        outcome = read_outcome(str(found.output))
        state = outcome.state
    elif state == "cancelled":
        outcome = make_cancelled(job.session)
    elif state == "failed":
        said = f"DBOS gave the job up ({found.status}): {found.error or 'too many workers ended'}"
        outcome = JobOutcome(state="failed", session=job.session, reason="crashed", error=said)
    return JobRow(
        job=job,
        state=state,
        attempts=max((found.recovery_attempts or 1) - 1, 0),
        worker=names.get(found.executor_id or "", "") if state == "running" else "",
        submitted=(found.created_at or 0) / 1000,
        ended=(found.completed_at or 0) / 1000,
        outcome=outcome,
    )
