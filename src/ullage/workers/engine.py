"""What a queue's engine is: jobs go in, workers take them, and what became of them is kept.

Two kinds. Every engine can be asked (`QueueEngine`) and worked for (`work`); one that is pulled
(`PulledEngine`) offers single steps and leaves the loop to `pulling`. It knows no engine by name.
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
"""Seconds that jobs stay in the queue after their end; a worker that starts forgets older ones."""

MOST_DEATHS: Final = 5
"""Workers that may end while they run one job: a job that ends its worker is not run for ever."""

News = Mapping[str, Any]
"""Something that happened to a job, such as a piece of an answer: `job`, `type`, `data`."""


@asynccontextmanager
async def lend_looks(every_s: float) -> AsyncIterator[AsyncIterator[News | None]]:
    """Lend the times at which to look again, where an engine tells nobody of news."""

    async def look() -> AsyncIterator[News | None]:
        while True:
            await asyncio.sleep(every_s)
            yield None

    yield look()


@dataclass(slots=True)
class Post:
    """Where a worker works: `name` is for people, two processes may have the same.

    `slots` are jobs at once, `lease_s` the seconds of silence after which it may be taken for
    dead, `drain_s` those that jobs get to end in once `draining` is set.
    """

    name: str
    slots: int
    lease_s: float = LEASE_S
    drain_s: float = 30.0
    owner: Owner = field(default_factory=Owner.here)
    draining: asyncio.Event = field(default_factory=asyncio.Event)


class Running(Protocol):
    """A job under way in a worker; it may be ended from any thread."""

    async def run(self) -> JobOutcome | None:
        """Run it; None gives it back to the queue, for any worker to go on with."""
        ...

    def cancel(self) -> None:
        """End the turn for good; it is recorded as interrupted."""
        ...

    def let_go(self) -> None:
        """End it here and leave the turn open in the log, for another worker."""
        ...


Perform = Callable[[TurnJob, int], Running]
"""Begin a job that `int` workers died of."""


class QueueEngine(Protocol):
    """A queue of jobs. Made for one event loop, closed by `aclose`."""

    url: str
    """What opens it, without a password."""

    async def submit(self, job: TurnJob) -> str:
        """Take a job in and return its id: that of the first one with its key.

        Raises QueueFull where as many of its tenant wait as may.
        """
        ...

    async def cancel(self, job: str) -> bool:
        """Cancel a job that waits or runs; False where it had ended, or is not there."""
        ...

    async def find(self, job: str) -> JobRow | None:
        """Return a job as it stands; None where it is not there."""
        ...

    async def report(self, most: int = 100) -> QueueReport:
        """Return what is in the queue, with up to `most` jobs, the newest first."""
        ...

    async def set_limits(self, tenant: str, limits: TenantLimits) -> None:
        """Set a tenant's limits; they hold for what is submitted and taken from now on."""
        ...

    def listen(self, job: str) -> AbstractAsyncContextManager[AsyncIterator[News | None]]:
        """Lend what is told of a job as it happens; None says only: look again."""
        ...

    async def work(self, post: Post, perform: Perform) -> None:
        """Run jobs until `post.draining` is set and none is under way here."""
        ...

    async def tell(self, news: list[News]) -> None:
        """Have news told to whoever listens, wherever; what cannot be told is dropped."""
        ...

    async def aclose(self) -> None:
        """Let go of connections."""
        ...


class Taken(NamedTuple):
    """A job that a worker took: `number` is the engine's own, `attempt` tells two takings apart.

    `deaths` are the workers that ended while they ran it.
    """

    number: int
    attempt: int
    deaths: int
    job: TurnJob


class Loan(NamedTuple):
    """A job that the queue has down as a worker's, and whether it is to be cancelled."""

    number: int
    attempt: int
    cancelled: bool


class PulledEngine(Protocol):
    """Single steps of a worker; each is durable when it returns."""

    async def enlist(self, post: Post) -> int:
        """Make a worker known; return its number, which no other had before."""
        ...

    async def resign(self, worker: int) -> None:
        """Forget a worker. What it still runs is anybody's."""
        ...

    async def beat(self, worker: int, *, draining: bool) -> bool:
        """Give a sign of life; False where the worker was taken for dead."""
        ...

    async def take(self, worker: int) -> Taken | None:
        """Take the next job: of the tenant that has the fewest running, and was served longest ago.

        None where none may run.
        """
        ...

    async def settle(
        self, worker: int, number: int, attempt: int, outcome: JobOutcome | None
    ) -> bool:
        """Record how a job ended, or give it back; False where it is this worker's no more."""
        ...

    async def list_lent(self, worker: int) -> list[Loan]:
        """Return the jobs that the queue has down as the worker's."""
        ...

    async def reap(self) -> int:
        """Give back the jobs of workers that are dead or were silent too long; return how many."""
        ...

    async def wait(self, seconds: float) -> None:
        """Wait until there may be news, at most so long."""
        ...


def make_full_error(tenant: str, waiting: int, limit: int) -> QueueFull:
    """Return what is said of a job that is not taken in."""
    return QueueFull(
        f"{waiting:,} jobs of tenant {tenant} wait, and {limit:,} may: submit again later, start "
        f"more workers, or raise the limit (ullage queue --tenant {tenant} --most-waiting N)",
        waiting=waiting,
        limit=limit,
    )
