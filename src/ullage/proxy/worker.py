"""A separate process that reads and plans large requests, and that can be killed.

It holds only the data of running requests; it asks the proxy for everything that is remembered.
Only `proxy.workers` starts it, by its `main`.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, BinaryIO, Final, cast

from ullage.counters.models import vocabulary
from ullage.guard.planning import load_dialects
from ullage.proxy import body as bodies
from ullage.proxy import routes
from ullage.proxy.answering import Answering
from ullage.proxy.call import ProxyCall, make_call
from ullage.proxy.doors import (
    JOB,
    FarHistories,
    FarLessons,
    FarListener,
    FarMeters,
    FarStore,
    FarWindows,
    Pipe,
)
from ullage.proxy.fitting import ApiReply, Fitting
from ullage.proxy.frames import Beat, Done, WorkerJob, read
from ullage.proxy.guarding import Guarding, Plan
from ullage.proxy.ledger import Ledger
from ullage.runtime import Runtime
from ullage.windows import ResolverOptions

if TYPE_CHECKING:
    from ullage.config.serving import Serve
    from ullage.core.dialects.reply import Reply
    from ullage.core.tokens.gauge import Assessment
    from ullage.proxy.head import RequestHead
    from ullage.proxy.keeping import Keeping
    from ullage.proxy.steering import Steering
    from ullage.sdk.errors import Trouble
    from ullage.telemetry.metrics import ProxyMeters

BEAT_S: Final = 1.0
"""Seconds between two signs of life while there is work."""

SMALL_FIELD: Final = 4_096
"""Largest body field, in bytes, that is sent to the proxy."""

PIPE_BYTES: Final = 1 << 20
"""Size of a pipe: the most that Linux gives to everybody (/proc/sys/fs/pipe-max-size)."""

NICER: Final = 5
"""How much less of a busy machine a worker takes than the proxy itself (nice)."""


@dataclass(frozen=True, slots=True)
class WorkerSetup:
    """The setup of a worker; `settings` are those of the proxy's runtime."""

    serve: Serve
    settings: Any
    remembered: int
    searches: bool


@dataclass(frozen=True, slots=True)
class FarBody:
    """The proxy's view of a body: its small fields and its number of messages."""

    fields: dict[str, Any]
    messages: int
    opaque: bool
    grown: int


@dataclass(frozen=True, slots=True)
class FarAnswer:
    """A call and its plan as the proxy has them; if `sent` is None, the original bytes are sent."""

    number: int
    call: ProxyCall
    body: FarBody
    plan: Plan
    sent: bytes | None


class Bench:
    """Does jobs: each public coroutine is one. It keeps calls and plans by ticket and number."""

    def __init__(self, link: Pipe, setup: WorkerSetup) -> None:
        runtime = Runtime(settings=setup.settings, remembered=setup.remembered)
        runtime.windows = _join(FarWindows(runtime.transport, runtime.now, _options(setup)), link)
        runtime.lessons = _join(FarLessons(runtime.now), link)
        runtime.metrics = FarListener(link)
        store = FarStore(link, searches=setup.searches)
        histories = _join(FarHistories(), link)
        self._serve, self._vocabularies = setup.serve, runtime.vocabularies
        self._guarding = Guarding(setup.serve, runtime, store, Ledger(), histories)
        self._answering = Answering(
            self._guarding,
            runtime,
            cast("Keeping", store),
            cast("ProxyMeters", FarMeters(link)),
            fail_open=setup.serve.fail_open,
        )
        self._fitting = Fitting(setup.serve, self._guarding, runtime, cast("Keeping", store))
        self._tickets: dict[int, dict[int, tuple[ProxyCall, Plan | None]]] = {}

    def load(self) -> None:
        """Load the vocabulary for unknown models, so that no request has to wait for it."""
        self._vocabularies.counter(vocabulary(None).name).count("warm")

    async def answer(self, head: RequestHead, raw: bytes, steering: Steering) -> ApiReply:
        """Answer a request to an endpoint of the proxy's own; raises RequestRefused."""
        self._guarding.steering = steering
        return await self._fitting.answer(head, head.path, raw)

    async def check(self, raw: bytes) -> FarBody:
        """Check a body that is forwarded as it came; raises RequestRefused."""
        return _tell_body(bodies.read(raw, "", self._bounds()))

    async def read(
        self, ticket: int, raw: bytes, head: RequestHead, path: str
    ) -> tuple[ProxyCall, FarBody]:
        """Read a request of a conversation; raises RequestRefused."""
        form = routes.find_form(path)
        assert form is not None  # noqa: S101 - the proxy looked
        body = bodies.read(raw, form.fields.messages, self._bounds())
        form = form.spell(body.fields)
        call = make_call(self._serve, head, form, body)
        self._tickets[ticket] = {0: (call, None)}
        return _strip_call(call), _tell_body(body)

    async def plan(self, ticket: int, steering: Steering) -> FarAnswer:
        """Plan the request of a ticket; raises RequestRefused."""
        self._guarding.steering = steering
        call, _ = self._tickets[ticket][0]
        return self._answer(ticket, call, await self._guarding.plan(call))

    async def again(self, ticket: int, number: int, found: Trouble) -> FarAnswer | None:
        """Return the plan after a failure, or None if nothing helps."""
        call, plan = self._find(ticket, number)
        made = await self._guarding.again(call, plan, found)
        return None if made is None else self._answer(ticket, call, made)

    async def take_back(self, ticket: int, number: int) -> None:
        """Undo the compaction that a recovery stored, since its plan failed all the same."""
        await self._guarding.take_back(self._find(ticket, number)[1])

    async def learn(self, ticket: int, number: int, report: Any) -> Assessment | None:
        """Learn from an answer, and return how full it shows the window to be."""
        plan = replace(self._find(ticket, number)[1], measured=None)  # the proxy learns that itself
        return await self._guarding.learn(plan, report)

    async def learn_refusal(self, ticket: int, number: int, status: int, body: Any) -> None:
        """Learn from a refusal that is passed on."""
        self._guarding.learn_refusal(self._find(ticket, number)[1], status, body)

    async def plan_next(
        self, ticket: int, number: int, names: frozenset[str], reply: Reply, used: int | None
    ) -> tuple[FarAnswer, int]:
        """Return what to send after a round with calls of added tools, and the number answered."""
        call, plan = self._find(ticket, number)
        call, plan, answered = await self._answering.plan_next(call, plan, names, reply, used)
        return self._answer(ticket, call, plan), answered

    async def drop(self, ticket: int) -> None:
        """Forget a request that is over."""
        self._tickets.pop(ticket, None)

    def _find(self, ticket: int, number: int) -> tuple[ProxyCall, Plan]:
        call, plan = self._tickets[ticket][number]
        assert plan is not None  # noqa: S101 - only plans have numbers beyond 0
        return call, plan

    def _answer(self, ticket: int, call: ProxyCall, plan: Plan) -> FarAnswer:
        held = self._tickets[ticket]
        number = max(held) + 1
        held[number] = (call, plan)
        sent = None if plan.body is call.body.raw else plan.body
        measured = plan.measured
        if measured is not None:
            measured = replace(measured, own=replace(measured.own, messages=()))
        bare = replace(plan, body=b"", view=None, port=None, measured=measured)
        return FarAnswer(number, _strip_call(call), _tell_body(call.body), bare, sent)

    def _bounds(self) -> bodies.Bounds:
        serve = self._serve
        return bodies.Bounds(serve.max_messages, serve.max_n, serve.max_depth)


def _join(door: Any, link: Pipe) -> Any:
    door.link = link
    return door


def _options(setup: WorkerSetup) -> ResolverOptions:
    held = setup.settings
    return ResolverOptions(
        context_windows=held.context_windows,
        base_models=held.base_models,
        offline=held.offline,
        window_places=held.window_places,
    )


def _strip_call(call: ProxyCall) -> ProxyCall:
    return replace(call, body=bodies.Body(b""))


def _tell_body(body: bodies.Body) -> FarBody:
    """Return the proxy's view of a body. A large field is named, but has no value."""
    small = {
        name: value if len(body.bytes_of(name)) <= SMALL_FIELD else ...
        for name, value in body.fields.items()
    }
    return FarBody(small, len(body.history), body.opaque, body.grown)


# --- the process ----------------------------------------------------------------------------------


class _Sender(logging.Handler):
    """Sends log records to the proxy."""

    def __init__(self, link: Pipe) -> None:
        super().__init__(logging.INFO)
        self._link = link

    def emit(self, record: logging.LogRecord) -> None:
        """Send the text of a record, followed by its traceback."""
        try:
            text = self.format(record)
            self._link.tell("log", "write", record.name, record.levelno, text)
        except (OSError, ValueError):
            return  # the proxy is gone


async def work(link: Pipe, bench: Bench, frames: asyncio.Queue[Any]) -> None:
    """Do jobs until the queue ends, then cancel those that still run."""
    under_way: set[asyncio.Task[None]] = set()
    beats: asyncio.Task[None] | None = None
    while (frame := await frames.get()) is not None:
        task = asyncio.create_task(_do(link, bench, frame))
        under_way.add(task)
        task.add_done_callback(under_way.discard)
        if beats is None or beats.done():
            beats = asyncio.create_task(_beat(link, under_way))
    for task in under_way:
        task.cancel()


async def _beat(link: Pipe, under_way: set[asyncio.Task[None]]) -> None:
    while under_way:
        await asyncio.sleep(BEAT_S)
        link.send(Beat())


async def _do(link: Pipe, bench: Bench, job: WorkerJob) -> None:
    JOB.set(job.number)
    method: Callable[..., Awaitable[Any]] = getattr(bench, job.name)
    ends = await asyncio.gather(method(*job.arguments), return_exceptions=True)
    end = ends[0]
    failed = isinstance(end, BaseException)  # the caller of the job raises it
    link.send(Done(job.number, error=end) if failed else Done(job.number, end))


def _live_with_parent() -> None:
    """End this process together with its parent, and ignore signals that are meant for the parent.

    A terminal and a service manager send theirs to all processes at once; the proxy then lets
    streams finish. The worker ends when its pipe ends, and at once on Linux.
    """
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    if sys.platform == "linux":
        import ctypes

        set_death_signal = 1  # PR_SET_PDEATHSIG
        ctypes.CDLL(None).prctl(set_death_signal, signal.SIGKILL, 0, 0, 0)
    if hasattr(os, "nice"):
        os.nice(NICER)


async def serve_jobs(source: BinaryIO, sink: BinaryIO) -> None:
    """Work for the proxy at the other end of two pipes, until the first one ends."""
    setup = read(source)
    if setup is None:
        return
    link, loop, frames = Pipe(source, sink), asyncio.get_running_loop(), asyncio.Queue[Any]()
    logging.getLogger().addHandler(_Sender(link))
    logging.getLogger("ullage").setLevel(logging.INFO)
    load_dialects()
    bench = Bench(link, setup)
    bench.load()
    gc.freeze()

    def take(frame: Any) -> None:
        loop.call_soon_threadsafe(frames.put_nowait, frame)

    def listen() -> None:
        link.listen(take)
        take(None)

    threading.Thread(target=listen, name="ullage-link", daemon=True).start()
    await work(link, bench, frames)


def _widen(pipe: BinaryIO) -> None:
    """Make a pipe hold a whole request, if it is one and the system allows it."""
    if sys.platform == "linux":
        import fcntl

        with contextlib.suppress(OSError):
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIPE_BYTES)


def main() -> None:
    """Run a worker on its standard input and output."""
    _live_with_parent()
    source, sink = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    for pipe in (source, sink):
        _widen(pipe)
    os.dup2(2, 1)  # printed text is no frame
    asyncio.run(serve_jobs(source, sink))
