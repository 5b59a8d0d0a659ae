"""A worker: takes jobs of a queue and runs their turns with its agents, until it drains.

It sends live events of a turn through the queue's engine, every `PIECE_S` seconds. It knows no
engine by name and decides nothing about a turn.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

from ullage.core.errors import ConfigurationError
from ullage.core.session.log.event import Event
from ullage.core.values.pickling import Unpicklable
from ullage.storage.log import Owner
from ullage.storage.opening import open_log
from ullage.workers.engine import News, Post, QueueEngine, Running
from ullage.workers.job import TurnJob
from ullage.workers.opening import open_engine
from ullage.workers.performing import Performance

if TYPE_CHECKING:
    from ullage.agent.agent import Agent
    from ullage.agent.session import Told
    from ullage.workers.counters import JobMetrics

PIECE_S: Final = 0.1
"""Seconds between two messages with pieces of an answer."""

SLOTS: Final = 4
LEASE_S: Final = 30.0
DRAIN_S: Final = 30.0

TEXTS: Final = frozenset({"text_delta", "reasoning_delta"})


class TurnWorker(Unpicklable):
    """Runs the jobs in the queue of the log in `store`.

    ::

        worker = ullage.TurnWorker("postgresql://...", agent, slots=8)
        asyncio.run(worker.arun())                  # until worker.drain()

    `agents` is one agent, or several by the names that jobs give. `slots` is the number of turns at
    once. A worker without a heartbeat for `lease_s` seconds counts as dead: all workers of a queue
    must use the same value. A draining worker takes no more jobs; running ones get `drain_s`
    seconds, then they stay open for another worker. `name` is for people, and need not be unique.
    Raises ConfigurationError for invalid values.
    """

    instead = "make one in the other process from the same arguments"

    def __init__(
        self,
        store: str,
        agents: Agent | Mapping[str, Agent],
        *,
        engine: str | None = None,
        metrics: JobMetrics | None = None,
        **terms: Any,
    ) -> None:
        self._store, self._engine_name = store, engine
        self._agents = agents if isinstance(agents, Mapping) else {"default": agents}
        self._metrics = metrics
        self._terms = _read_terms(terms)
        self._post: Post | None = None
        self._teller: Teller | None = None
        self._under_way: WeakSet[Performance] = WeakSet()

    async def arun(self) -> None:
        """Work until `drain` is called and no job runs here.

        Raises StoreError if the log or the queue cannot be opened.
        """
        post = self._post = Post(**self._terms, owner=Owner.here(self._terms["name"]))
        log = await asyncio.to_thread(open_log, self._store, lease_s=post.lease_s)
        try:
            engine = open_engine(self._store, self._engine_name)
            self._teller = Teller(engine)
            try:
                begin = partial(self._begin, log=log)
                await engine.work(post, begin)
            finally:
                await self._teller.flush()
                await engine.aclose()
        finally:
            await asyncio.to_thread(log.close)

    def drain(self) -> None:
        """Take no more jobs, and end after the running ones; call it on the worker's loop."""
        if self._post is not None:
            self._post.draining.set()

    def leave(self) -> None:
        """Leave running jobs to other workers, now; after `drain`."""
        for performance in tuple(self._under_way):
            performance.let_go()

    def _begin(self, job: TurnJob, deaths: int, *, log: Any) -> Running:
        teller = self._teller
        assert teller is not None  # noqa: S101 - jobs only come while `arun` runs
        made = Performance(
            job, deaths, log=log, agents=self._agents, hear=teller.hear, flush=teller.flush
        )
        self._under_way.add(made)
        return made if self._metrics is None else self._metrics.watch(made)


def _read_terms(terms: Mapping[str, Any]) -> dict[str, Any]:
    standard = {
        "name": socket.gethostname(),
        "slots": SLOTS,
        "lease_s": LEASE_S,
        "drain_s": DRAIN_S,
    }
    unknown = terms.keys() - standard.keys()
    if unknown:
        raise TypeError(f"a worker has no {min(unknown)!r}: it has {', '.join(standard)}")
    made = {**standard, **{name: value for name, value in terms.items() if value is not None}}
    for name, least in (("slots", 1), ("lease_s", 0.5), ("drain_s", 0)):
        if not made[name] >= least:
            raise ConfigurationError(f"{name} of a worker is {least} or more, not {made[name]!r}")
    return made


class Teller:
    """Sends the events of jobs; joins pieces of a text."""

    def __init__(self, engine: QueueEngine) -> None:
        self._engine = engine
        self._held: list[dict[str, Any]] = []
        self._telling: asyncio.Task[None] | None = None

    def hear(self, job: TurnJob, told: Told) -> None:
        """Take an event of a job's session."""
        if isinstance(told, Event):
            self._hold({"job": job.id, "type": "recorded", "seq": told.seq})
        else:
            kept = {"job": job.id, "session": told.session_id}
            self._hold({**kept, "type": told.type, "data": dict(told.data)})
        if self._telling is None:
            self._telling = asyncio.ensure_future(self._tell())

    def _hold(self, news: dict[str, Any]) -> None:
        last = self._held[-1] if self._held else {}
        same = last.get("job") == news["job"] and last.get("type") == news["type"]
        if same and news["type"] in TEXTS:
            last["data"] = {"text": last["data"]["text"] + news["data"]["text"]}
        elif same and news["type"] == "recorded":
            last["seq"] = news["seq"]
        else:
            self._held.append(news)

    async def _tell(self) -> None:
        await asyncio.sleep(PIECE_S)
        await self.flush()

    async def flush(self) -> None:
        """Send the held events."""
        held: list[News] = [*self._held]
        telling = self._telling
        self._held, self._telling = [], None
        if telling is not None and telling is not asyncio.current_task():
            telling.cancel()  # it waits for more, but nothing is left to send
        if held:
            await self._engine.tell(held)
