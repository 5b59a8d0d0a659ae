"""The protocol of a queue's engine: accepts jobs, lends them to workers, and keeps the outcomes.

There are two kinds. Every engine can be queried (`QueueEngine`) and can run a worker (`work`). A
pulled one (`PulledEngine`) offers single steps and leaves the loop to `pulling`. It knows no engine
by name.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

from ullage.core.errors import QueueFull
from ullage.storage.log import LEASE_S, Owner
from ullage.workers.job import JobOutcome, JobRow, QueueReport, TenantLimits, TurnJob

KEPT_S: Final = 7 * 86_400.0
"""Seconds that ended jobs stay in the queue; a worker that starts removes older ones."""

MOST_DEATHS: Final = 5
"""Workers that may die while they run one job; so a job that kills its worker is not run for
ever."""

News = Mapping[str, Any]
"""Something that happened to a job, such as a piece of an answer: `job`, `type`, `data`."""


@asynccontextmanager
async def lend_looks(every_s: float) -> AsyncIterator[AsyncIterator[News | None]]:
    """Lend the times at which to look again, for an engine that sends no news."""

    async def look() -> AsyncIterator[News | None]:
        while True:
            await asyncio.sleep(every_s)
            yield None

    yield look()


@dataclass(slots=True)
class Post:
    """The settings of a running worker: `name` is for people, and need not be unique.

    `slots` is the number of jobs at once. `lease_s` is the seconds of silence after which the
    worker counts as dead. `drain_s` is the seconds that jobs get to end once `draining` is set.
    """

    name: str
    slots: int
    lease_s: float = LEASE_S
    drain_s: float = 30.0
    owner: Owner = field(default_factory=Owner.here)
    draining: asyncio.Event = field(default_factory=asyncio.Event)


class Running(Protocol):
    """A running job in a worker; it may be ended from any thread."""

    async def run(self) -> JobOutcome | None:
        """Run it, or return None to give it back to the queue for any worker."""
        ...

    def cancel(self) -> None:
        """End the turn for good; it is recorded as interrupted."""
        ...

    def let_go(self) -> None:
        """Stop it here and leave the turn open in the log, for another worker."""
        ...


Perform = Callable[[TurnJob, int], Running]
"""Begin a job; the `int` is the number of workers that died while they ran it."""


class QueueEngine(Protocol):
    """A queue of jobs. Made for one event loop, closed by `aclose`."""

    url: str
    """The URL that opens it, without a password."""

    async def submit(self, job: TurnJob) -> str:
        """Add a job and return its id, or the id of the first job with the same key.

        Raises QueueFull if the maximum number of its tenant's jobs are waiting.
        """
        ...

    async def cancel(self, job: str) -> bool:
        """Cancel a waiting or running job; False if it has ended or does not exist."""
        ...

    async def find(self, job: str) -> JobRow | None:
        """Return the current state of a job, or None if it does not exist."""
        ...

    async def report(self, most: int = 100) -> QueueReport:
        """Return the contents of the queue, with up to `most` jobs, newest first."""
        ...

    async def set_limits(self, tenant: str, limits: TenantLimits) -> None:
        """Set a tenant's limits for jobs that are submitted or taken from now on."""
        ...

    def listen(self, job: str) -> AbstractAsyncContextManager[AsyncIterator[News | None]]:
        """Lend the news of a job as they happen; a None says: look again."""
        ...

    async def work(self, post: Post, perform: Perform) -> None:
        """Run jobs until `post.draining` is set and no job runs here."""
        ...

    async def tell(self, news: list[News]) -> None:
        """Send news to all listeners, anywhere; news that cannot be sent are dropped."""
        ...

    async def aclose(self) -> None:
        """Close connections."""
        ...


class Taken(NamedTuple):
    """A job that a worker took: `number` is the engine's; `attempt` tells two takings apart.

    `deaths` is the number of workers that died while they ran it.
    """

    number: int
    attempt: int
    deaths: int
    job: TurnJob


class Loan(NamedTuple):
    """A job that the queue assigns to a worker, and whether it should be cancelled."""

    number: int
    attempt: int
    cancelled: bool


class PulledEngine(Protocol):
    """Single steps of a worker; each is durable when it returns."""

    async def enlist(self, post: Post) -> int:
        """Register a worker; return its unique number."""
        ...

    async def resign(self, worker: int) -> None:
        """Remove a worker. Other workers may take the jobs that it still runs."""
        ...

    async def beat(self, worker: int, *, draining: bool) -> bool:
        """Send a heartbeat; False if the worker was declared dead."""
        ...

    async def take(self, worker: int) -> Taken | None:
        """Take the next job: from the tenant with the fewest running jobs, least recently served.

        Returns None if no job may run.
        """
        ...

    async def settle(
        self, worker: int, number: int, attempt: int, outcome: JobOutcome | None
    ) -> bool:
        """Record how a job ended, or give it back; False if the worker no longer has it."""
        ...

    async def list_lent(self, worker: int) -> list[Loan]:
        """Return the jobs that the queue assigns to the worker."""
        ...

    async def reap(self) -> int:
        """Give back the jobs of dead or silent workers; return how many."""
        ...

    async def wait(self, seconds: float) -> None:
        """Wait until there may be news, at most this long."""
        ...


def make_full_error(tenant: str, waiting: int, limit: int) -> QueueFull:
    """Return the error for a job that does not fit into the queue."""
    return QueueFull(
        f"{waiting:,} jobs of tenant {tenant} wait, and {limit:,} may: submit again later, start "
        f"more workers, or raise the limit (ullage queue --tenant {tenant} --most-waiting N)",
        waiting=waiting,
        limit=limit,
    )
