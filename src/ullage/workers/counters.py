"""Prometheus counters of a worker and its queue. It runs nothing."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from ullage.telemetry import Described, Registry

if TYPE_CHECKING:
    from ullage.workers.engine import Running
    from ullage.workers.job import JobOutcome, QueueReport

SECONDS: Final = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
"""Upper bucket limits, in seconds, for the run time of a job in a worker."""

JOBS_TOTAL: Final = Described(
    "ullage_jobs_total",
    "Runs of jobs in this worker by what came of them: done, failed, cancelled, or given back.",
    ("outcome",),
)
JOB_SECONDS: Final = Described(
    "ullage_job_duration_seconds", "Time that a job ran in this worker.", ("outcome",)
)
JOBS_UNDER_WAY: Final = Described("ullage_jobs_under_way", "Jobs that run in this worker now.")
QUEUE_JOBS: Final = Described(
    "ullage_queue_jobs", "Jobs of the whole queue, by tenant and state.", ("tenant", "state")
)
QUEUE_WORKERS: Final = Described(
    "ullage_queue_workers", "Workers that the queue knows, by state.", ("state",)
)
DESCRIBED: Final = (JOBS_TOTAL, JOB_SECONDS, JOBS_UNDER_WAY, QUEUE_JOBS, QUEUE_WORKERS)


class JobMetrics:
    """Counts the jobs of one worker; `render` adds its queue's report."""

    def __init__(self, registry: Registry | None = None) -> None:
        self.registry = registry or Registry()
        self._ended = self.registry.counter(JOBS_TOTAL)
        self._seconds = self.registry.histogram(JOB_SECONDS, SECONDS)
        self._under_way = self.registry.gauge(JOBS_UNDER_WAY)
        self._jobs = self.registry.gauge(QUEUE_JOBS)
        self._workers = self.registry.gauge(QUEUE_WORKERS)
        self._count = 0
        self._under_way.set(0)

    def watch(self, running: Running) -> Running:
        """Return a job that is counted while it runs."""
        return CountedJob(running, self)

    def begin(self) -> float:
        """Count the start of a job; return its time."""
        self._count += 1
        self._under_way.set(self._count)
        return time.monotonic()

    def end(self, begun: float, outcome: str) -> None:
        """Count the end of a job."""
        self._count -= 1
        self._under_way.set(self._count)
        self._ended.add(outcome=outcome)
        self._seconds.observe(time.monotonic() - begun, outcome=outcome)

    def render(self, report: QueueReport) -> str:
        """Return all as Prometheus text."""
        for tenant in report.tenants:
            self._jobs.set(tenant.waiting, tenant=tenant.name, state="waiting")
            self._jobs.set(tenant.running, tenant=tenant.name, state="running")
        draining = sum(worker.draining for worker in report.workers)
        self._workers.set(len(report.workers) - draining, state="working")
        self._workers.set(draining, state="draining")
        return self.registry.render()


class CountedJob:
    """A running job that is counted."""

    def __init__(self, running: Running, metrics: JobMetrics) -> None:
        self._running, self._metrics = running, metrics

    async def run(self) -> JobOutcome | None:
        """Run it."""
        begun, told = self._metrics.begin(), "given_back"
        try:
            outcome = await self._running.run()
            told = "given_back" if outcome is None else outcome.state
            return outcome
        finally:
            self._metrics.end(begun, told)

    def cancel(self) -> None:
        """End the turn for good."""
        self._running.cancel()

    def let_go(self) -> None:
        """Stop it here."""
        self._running.let_go()
