"""`ullage queue`: show a queue, set limits of tenants, cancel jobs."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ullage.cli import desk, lines
from ullage.cli.worker import add_engine
from ullage.core.errors import ConfigurationError
from ullage.storage.postgres_url import hide_password

if TYPE_CHECKING:
    from ullage.workers.job import JobRow, QueueReport
    from ullage.workers.queue import JobQueue

SUMMARY = "what waits and runs in a queue; limits of tenants, and jobs cancelled"

ABOUT = 40
MOST = 20


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    desk.add_log(parser)
    add_engine(parser)
    parser.add_argument("--cancel", metavar="JOB", help="cancel a job that waits or runs")
    parser.add_argument("--tenant", metavar="NAME", help="the tenant whose limits to set")
    parser.add_argument("--most-running", type=int, metavar="N", help="its turns at once (8)")
    parser.add_argument("--most-waiting", type=int, metavar="N", help="its jobs that wait (1000)")
    parser.add_argument(
        "--limit", type=int, default=MOST, metavar="N", help=f"how many jobs to list ({MOST})"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(given: argparse.Namespace) -> int:
    """Do the requested action, or print the queue."""
    from ullage.workers.opening import has_queue
    from ullage.workers.queue import JobQueue

    limited = given.most_running is not None or given.most_waiting is not None
    if limited and given.tenant is None:
        raise ConfigurationError("--most-running and --most-waiting are a tenant's: name --tenant")
    store = desk.store_url(given)
    if not limited and not has_queue(store):
        raise ConfigurationError(
            f"{hide_password(store)} has no queue yet: ullage submit begins one, or name "
            "another --store"
        )
    with JobQueue(store, given.engine) as queue:
        if given.cancel is not None:
            return _cancel(queue, given.cancel)
        if limited:
            _set_limits(queue, given)
        report = queue.report(given.limit)
    if given.json:
        import msgspec

        lines.out(json.dumps(msgspec.to_builtins(report), indent=2))
        return 0
    for line in draw_report(report, time.time()):
        lines.out(line)
    return 0


def _cancel(queue: JobQueue, job: str) -> int:
    if queue.cancel(job):
        desk.say(f"job {job} is cancelled")
        return 0
    row = queue.find(job)
    if row is None:
        raise ConfigurationError(f"there is no job {job!r:.60} in {queue.store}: check its id")
    desk.say(f"job {job} had ended: {row.state}")
    return 0


def _set_limits(queue: JobQueue, given: argparse.Namespace) -> None:
    from ullage.workers.job import STANDARD_LIMITS, TenantLimits

    held = {row.name: row for row in queue.report(0).tenants}.get(given.tenant)
    running = STANDARD_LIMITS.running if held is None else held.most_running
    waiting = STANDARD_LIMITS.waiting if held is None else held.most_waiting
    limits = TenantLimits(
        running if given.most_running is None else given.most_running,
        waiting if given.most_waiting is None else given.most_waiting,
    )
    queue.set_limits(given.tenant, limits)


def draw_report(report: QueueReport, now: float) -> Iterator[str]:
    """Yield the content of a queue as three small tables."""
    yield from _draw(
        ("tenant", "waiting", "running"),
        [
            (
                row.name,
                f"{row.waiting:,} of {row.most_waiting:,}",
                f"{row.running} of {row.most_running}",
            )
            for row in report.tenants
        ],
        "no tenant yet: ullage submit TEXT",
    )
    yield ""
    yield from _draw(
        ("worker", "jobs", "last sign"),
        [
            (
                row.name + (" (drains)" if row.draining else ""),
                f"{row.running} of {row.slots}",
                f"{row.silent_s:.1f} s ago",
            )
            for row in report.workers
        ],
        "no worker: ullage worker",
    )
    yield ""
    yield from _draw(
        ("job", "state", "tenant", "session", "age", "worker", "text"),
        [_draw_job(row, now) for row in report.jobs],
        "no job",
    )


def _draw_job(row: JobRow, now: float) -> tuple[str, ...]:
    again = f" ({row.attempts} workers lost)" if row.attempts else ""
    age = f"{now - row.submitted:,.0f} s"
    about = lines.brief(row.job.text, ABOUT)
    return row.job.id, row.state + again, row.job.tenant, row.job.session, age, row.worker, about


def _draw(head: Sequence[str], rows: Sequence[Sequence[str]], none: str) -> Iterator[str]:
    if not rows:
        yield none
        return
    cells = [head, *[[lines.expose(cell) for cell in row] for row in rows]]
    widths = [max(len(row[place]) for row in cells) for place in range(len(head))]
    for row in cells:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
