"""procrastinate: a queue for many machines, in the log's PostgreSQL database.

A tenant is a procrastinate queue, and a session one of its locks, so that it never lends two jobs
of one session. procrastinate lacks limits, turns between tenants and a check of who may settle a
job: these are in `procrastinate.sql`, one statement per step, so that a suspended worker leaves no
lock. News travel by NOTIFY. Times are the database's.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from importlib import resources
from typing import Any, Final, LiteralString

import procrastinate
from procrastinate.exceptions import ConnectorException
from procrastinate.schema import SchemaManager

from ullage.core.errors import StoreAway, StoreError
from ullage.storage.log import Owner, dead
from ullage.storage.postgres_url import hide_password
from ullage.workers.engine import KEPT_S, Loan, News, Perform, Post, Taken, make_full_error
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
    read_job,
    read_outcome,
)
from ullage.workers.pulling import PullLoop

SCHEMA: Final = "ullage_jobs"
"""The schema of procrastinate's tables and ours, separate from the log's."""

NEWS: Final = "ullage_jobs"
"""The channel for news of jobs."""

CHANNELS: Final = (NEWS, "procrastinate_any_queue_v1")

LONGEST_NEWS: Final = 7_900
"""Most bytes of one notification: PostgreSQL takes less than 8,000 (NOTIFY, "Parameters")."""

CONNECTIONS: Final = 4
WAIT_S: Final = 5.0
"""Connections of a process in addition to the listening one, and the longest wait for one."""

HEARD_S: Final = 60.0
"""Seconds of listening after which a failure is logged as a new outage; a failed try takes less."""

VERSION: Final = "ullage jobs 1"
"""The comment of the schema; another value comes from another version of ullage."""

ANSWER_S: Final = 15.0
"""Seconds to wait for an answer before the database counts as away."""

STATES: Final[Mapping[str, JobState]] = {
    "todo": "waiting",
    "doing": "running",
    "succeeded": "done",
    "failed": "failed",
    "cancelled": "cancelled",
    "aborted": "cancelled",
    "aborting": "running",
}
STATUSES: Final[Mapping[str, str]] = {
    "done": "succeeded",
    "failed": "failed",
    "cancelled": "aborted",
}

CANCELLED: Final[Mapping[str, str]] = {
    "state": "cancelled",
    "reason": "interrupted",
    "error": "the job was cancelled",
}

ROW: Final[LiteralString] = """
    SELECT j.args::text AS body, j.status::text AS status, s.deaths, s.submitted,
           coalesce(p.name, '') AS worker, coalesce(e.ended, 0) AS ended, e.outcome
    FROM procrastinate_jobs AS j JOIN starts AS s ON s.job = j.id
    LEFT JOIN posts AS p ON p.worker = j.worker_id AND j.status = 'doing'
    LEFT JOIN ends AS e ON e.job = j.id
"""
OLD: Final[LiteralString] = """
    DELETE FROM procrastinate_jobs AS j USING ends AS e WHERE e.job = j.id
    AND e.ended < extract(epoch FROM clock_timestamp()) - %(kept)s RETURNING j.id
"""
TENANTS: Final[LiteralString] = """
    SELECT t.name, t.running AS most_running, t.waiting AS most_waiting,
           count(j.id) FILTER (WHERE j.status = 'todo') AS waiting,
           count(j.id) FILTER (WHERE j.status = 'doing') AS running
    FROM tenants AS t
    LEFT JOIN procrastinate_jobs AS j ON j.queue_name = t.name AND j.status IN ('todo', 'doing')
    GROUP BY t.name ORDER BY t.name
"""
WORKERS: Final[LiteralString] = """
    SELECT p.name, p.slots, p.draining,
           extract(epoch FROM clock_timestamp() - w.last_heartbeat)::double precision AS silent_s,
           (SELECT count(*) FROM procrastinate_jobs AS j
            WHERE j.worker_id = w.id AND j.status = 'doing') AS running
    FROM posts AS p JOIN procrastinate_workers AS w ON w.id = p.worker ORDER BY w.id
"""

log = logging.getLogger("ullage.workers")


class ProcrastinateEngine:
    """A queue in a PostgreSQL database; raises StoreError if the database cannot be used."""

    def __init__(self, url: str) -> None:
        self.url = hide_password(url)
        self._connector = procrastinate.PsycopgConnector(
            conninfo=url,
            kwargs={"options": f"-c search_path={SCHEMA}"},
            configure=_set_autocommit,
            min_size=1,
            max_size=CONNECTIONS,
            timeout=WAIT_S,
        )
        self._opening: asyncio.Task[None] | None = None
        self._listening: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self._ears: dict[str, set[asyncio.Queue[News | None]]] = {}

    async def submit(self, job: TurnJob) -> str:
        """Add a job and return its id; raises QueueFull."""
        row = await self._ask(
            "SELECT * FROM submit_turn(%(job)s, %(tenant)s, %(session)s, %(priority)s, %(most)s)",
            job=json.loads(job.to_text()),
            tenant=job.tenant,
            session=job.session,
            priority=job.priority,
            most=STANDARD_LIMITS.waiting,
        )
        if row["job"] is None:
            raise make_full_error(job.tenant, row["waits"], row["most"])
        return str(row["job"])

    async def cancel(self, job: str) -> bool:
        """Cancel a waiting or running job."""
        row = await self._ask(
            "SELECT cancel_turn(%(job)s, %(said)s) AS cancelled", job=job, said=dict(CANCELLED)
        )
        return bool(row["cancelled"])

    async def find(self, job: str) -> JobRow | None:
        """Return the current state of a job."""
        rows = await self._list(f"{ROW} WHERE j.args ->> 'id' = %(job)s", job=job)
        return _read_row(rows[0]) if rows else None

    async def report(self, most: int = 100) -> QueueReport:
        """Return the contents of the queue."""
        tenants = await self._list(TENANTS)
        workers = await self._list(WORKERS)
        jobs = await self._list(f"{ROW} ORDER BY j.id DESC LIMIT %(most)s", most=most)
        return QueueReport(
            tenants=[_read_tenant(row) for row in tenants],
            workers=[WorkerRow(**row) for row in workers],
            jobs=[_read_row(row) for row in jobs],
        )

    async def set_limits(self, tenant: str, limits: TenantLimits) -> None:
        """Set a tenant's limits."""
        await self._list(
            "INSERT INTO tenants (name, running, waiting) VALUES (%(name)s, %(running)s, "
            "%(waiting)s) ON CONFLICT (name) DO UPDATE SET running = excluded.running, "
            "waiting = excluded.waiting RETURNING name",
            name=tenant,
            running=limits.running,
            waiting=limits.waiting,
        )

    @asynccontextmanager
    async def listen(self, job: str) -> AsyncIterator[AsyncIterator[News | None]]:
        """Lend the news of a job as they happen; a None says: look again."""
        await self._begin_listening()
        told: asyncio.Queue[News | None] = asyncio.Queue(1_000)
        self._ears.setdefault(job, set()).add(told)

        async def hear() -> AsyncIterator[News | None]:
            while True:
                try:
                    yield await asyncio.wait_for(told.get(), 1.0)
                except TimeoutError:
                    yield None

        try:
            yield hear()
        finally:
            self._ears[job].discard(told)
            if not self._ears[job]:
                del self._ears[job]

    async def work(self, post: Post, perform: Perform) -> None:
        """Run jobs until the post drains and no job runs here."""
        await self._begin_listening()
        await PullLoop(self, post, perform).run()

    async def tell(self, news: list[News]) -> None:
        """Send news to all listeners; news too long for a notification only say: look."""
        payloads = [json.dumps(each) for each in news]
        kept = [
            p if len(p) < LONGEST_NEWS else _shorten(n) for p, n in zip(payloads, news, strict=True)
        ]
        with suppress(StoreError):
            await self._list(
                "SELECT pg_notify(%(channel)s, one) FROM unnest(%(news)s::text[]) AS one",
                channel=NEWS,
                news=kept,
            )

    async def aclose(self) -> None:
        """Close all connections."""
        left = {task for task in (self._listening, self._opening) if task is not None}
        while left:  # a listening task may lose a cancellation that comes with news
            for task in left:
                task.cancel()
            _, left = await asyncio.wait(left, timeout=WAIT_S / 10)
        await self._connector.close_async()

    # --- single steps ---------------------------------------------------------------------------

    async def enlist(self, post: Post) -> int:
        """Register a worker; return its number."""
        await self._run(OLD, {"kept": KEPT_S}, None)  # with a large queue this may take long
        row = await self._ask(
            "SELECT enlist_worker(%(name)s, %(owner)s, %(slots)s, %(lease)s) AS worker",
            name=post.name,
            owner=json.dumps(post.owner.to_dict()),
            slots=post.slots,
            lease=post.lease_s,
        )
        return int(row["worker"])

    async def resign(self, worker: int) -> None:
        """Remove a worker."""
        await self._forget([worker], deaths=0)

    async def beat(self, worker: int, *, draining: bool) -> bool:
        """Send a heartbeat."""
        sql: LiteralString = "SELECT beat_worker(%(worker)s, %(draining)s) AS known"
        return bool((await self._ask(sql, worker=worker, draining=draining))["known"])

    async def take(self, worker: int) -> Taken | None:
        """Take the next job of the tenant whose turn it is.

        The function sees jobs submitted since the statement began, but the joined table does not:
        such a job has no deaths yet.
        """
        rows = await self._list(
            "SELECT j.id, j.attempts, j.args::text AS body, s.deaths "
            "FROM take_turn(%(worker)s, %(most)s) AS j LEFT JOIN starts AS s ON s.job = j.id",
            worker=worker,
            most=STANDARD_LIMITS.running,
        )
        if not rows:
            return None
        row = rows[0]
        return Taken(row["id"], row["attempts"], row["deaths"] or 0, read_job(row["body"]))

    async def settle(
        self, worker: int, number: int, attempt: int, outcome: JobOutcome | None
    ) -> bool:
        """Record how a job ended, or give it back."""
        row = await self._ask(
            "SELECT settle_turn(%(id)s, %(worker)s, %(attempt)s, %(status)s, %(outcome)s, "
            "%(said)s) AS mine",
            id=number,
            worker=worker,
            attempt=attempt,
            status=None if outcome is None else STATUSES[outcome.state],
            outcome=None if outcome is None else outcome.to_text(),
            said=dict(CANCELLED),
        )
        return bool(row["mine"])

    async def list_lent(self, worker: int) -> list[Loan]:
        """Return the jobs that the queue assigns to the worker."""
        rows = await self._list(
            "SELECT id, attempts, abort_requested FROM procrastinate_jobs "
            "WHERE status = 'doing' AND worker_id = %(worker)s",
            worker=worker,
        )
        return [Loan(row["id"], row["attempts"], row["abort_requested"]) for row in rows]

    async def reap(self) -> int:
        """Give back the jobs of dead or silent workers."""
        rows = await self._list("SELECT worker, owner FROM posts")
        gone = [row["worker"] for row in rows if dead(Owner(**json.loads(row["owner"])))]
        return await self._forget(gone, deaths=1)

    async def wait(self, seconds: float) -> None:
        """Wait for news, at most this long."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._news.wait(), seconds)
        self._news.clear()

    # --- inside ---------------------------------------------------------------------------------

    async def _forget(self, workers: list[int], *, deaths: int) -> int:
        row = await self._ask(
            "SELECT forget_workers(%(workers)s::bigint[], %(deaths)s, %(said)s) AS given",
            workers=workers,
            deaths=deaths,
            said=dict(CANCELLED),
        )
        return int(row["given"])

    async def _ask(self, sql: LiteralString, **values: Any) -> dict[str, Any]:
        return (await self._list(sql, **values))[0]

    async def _list(self, sql: LiteralString, **values: Any) -> list[dict[str, Any]]:
        return await self._run(sql, values, ANSWER_S)

    async def _run(
        self, sql: LiteralString, values: dict[str, Any], within_s: float | None
    ) -> list[dict[str, Any]]:
        """Return the rows of a query; raises StoreAway if they do not arrive in time."""
        await self._open()
        try:
            async with asyncio.timeout(within_s):
                rows: list[dict[str, Any]] = await self._connector.execute_query_all_async(
                    sql, **values
                )
            return rows
        except ConnectorException as error:
            raise self._explain(error) from error
        except TimeoutError:
            said = f"it gave no answer in {within_s:g} s"
            raise StoreAway(f"the queue in {self.url} cannot be used: {said}") from None

    def _explain(self, error: Exception) -> StoreAway:
        said = str(error.__cause__ or error).strip().partition("\n")[0]
        return StoreAway(f"the queue in {self.url} cannot be used: {said}")

    async def _open(self) -> None:
        """Connect, and create the schema if it is missing; once for all waiting callers."""
        if self._opening is None or (self._opening.done() and self._opening.exception()):
            self._opening = asyncio.create_task(self._connect())
        await asyncio.shield(self._opening)

    async def _connect(self) -> None:
        try:
            await self._connector.open_async()
            await self._connector.execute_query_async(_make_install())
            rows = await self._connector.execute_query_all_async(
                "SELECT obj_description(to_regnamespace(%(schema)s)) AS version", schema=SCHEMA
            )
        except ConnectorException as error:
            raise self._explain(error) from error
        if rows[0]["version"] != VERSION:
            raise StoreError(
                f"the schema {SCHEMA} in {self.url} is {rows[0]['version']!r}, and this ullage "
                f"knows {VERSION!r}: upgrade ullage, or give another database"
            )

    async def _begin_listening(self) -> None:
        await self._open()
        if self._listening is None:
            self._listening = asyncio.create_task(self._hear())

    async def _hear(self) -> None:
        """Listen while the engine is open; reopen a connection that breaks.

        An outage is logged once: a try that fails soon belongs to the same outage.
        """
        clock, told = asyncio.get_running_loop().time, False
        while True:
            begun = clock()
            try:
                await self._connector.listen_notify(self._take_news, CHANNELS)
            except ConnectorException as error:
                told = told and clock() - begun < HEARD_S
                log.log(
                    logging.DEBUG if told else logging.WARNING,
                    "no news for a moment: %s",
                    self._explain(error),
                )
                told = True
            self._wake(None)
            await asyncio.sleep(WAIT_S / 10)

    async def _take_news(self, *, channel: str, payload: str) -> None:
        found: dict[str, Any] = json.loads(payload)
        if channel != NEWS or found.get("type") in ("ended", "cancelled", "waits"):
            self._news.set()  # other news mean no work for anybody
        if channel == NEWS and "job" in found:
            for ear in self._ears.get(str(found["job"]), ()):
                _put(ear, found)

    def _wake(self, news: None) -> None:
        """Make all listeners look again, because news may have been missed."""
        self._news.set()
        for ears in self._ears.values():
            for ear in ears:
                _put(ear, news)


async def _set_autocommit(connection: Any) -> None:
    """Make each step its own transaction: a suspended process then holds none open."""
    await connection.set_autocommit(True)


def _put(ear: asyncio.Queue[News | None], news: News | None) -> None:
    with suppress(asyncio.QueueFull):  # a slow reader reads the log
        ear.put_nowait(news)


def _shorten(news: News) -> str:
    return json.dumps({"job": news.get("job"), "type": "look"})


def _make_install() -> LiteralString:
    """Return the statements that create a missing schema, in one transaction."""
    own = (resources.files("ullage.workers.engines") / "procrastinate.sql").read_text("utf-8")
    whole = f"{SchemaManager.get_schema()}\n{own}"
    mark = "$ullage_install$"
    return f"""
        DO {mark} BEGIN
            PERFORM pg_advisory_xact_lock(hashtext('{SCHEMA}'));
            IF to_regnamespace('{SCHEMA}') IS NULL THEN
                CREATE SCHEMA {SCHEMA};
                COMMENT ON SCHEMA {SCHEMA} IS '{VERSION}';
                EXECUTE $ullage_body${whole}$ullage_body$;
            END IF;
        END {mark}
        """.replace("%", "%%")


def _read_row(row: dict[str, Any]) -> JobRow:
    outcome = row["outcome"]
    return JobRow(
        job=read_job(row["body"]),
        state=STATES[row["status"]],
        attempts=row["deaths"],
        worker=row["worker"],
        submitted=row["submitted"],
        ended=row["ended"],
        outcome=None if outcome is None else read_outcome(outcome),
    )


def _read_tenant(row: dict[str, Any]) -> TenantRow:
    limits = {
        "most_running": STANDARD_LIMITS.running
        if row["most_running"] is None
        else row["most_running"],
        "most_waiting": STANDARD_LIMITS.waiting
        if row["most_waiting"] is None
        else row["most_waiting"],
    }
    return TenantRow(**{**row, **limits})
