"""Calls of a worker to the proxy: store, windows, lessons and meters, over one pipe.

The proxy keeps all state, a worker keeps no state. The module does not know jobs.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from ullage.core.search.ranking import EVERYWHERE, HITS, Hit, SearchArea
from ullage.lessons import Lessons
from ullage.proxy.frames import ProxyReply, Tell, WorkerAsk, pack, read
from ullage.proxy.stored import Histories
from ullage.storage.threaded import SHARED
from ullage.windows import Resolver

if TYPE_CHECKING:
    from ullage.core.compaction.checkpoint import Checkpoint
    from ullage.core.dialects.families import Law
    from ullage.core.guard.conversation import Conversation
    from ullage.core.guard.events import Event
    from ullage.core.guard.learned import Learned
    from ullage.core.tokens.calibration import ReportedSize, Taught
    from ullage.core.tokens.claim import Claim
    from ullage.core.tokens.window import Window
    from ullage.proxy.stored import Held, Key
    from ullage.windows import Question

ANSWER_S: Final = 60.0
"""Seconds that a thread waits for an answer of the proxy; if the proxy ends, so does this
process."""

MOST_LESSONS: Final = 64
"""Models with lessons that a worker keeps, the most recent ones."""

JOB: ContextVar[int] = ContextVar("JOB", default=0)
"""The number of the job that a message belongs to."""


class Pipe:
    """The worker's end of the pipes. `ask` from any thread, `aask` from an event loop."""

    def __init__(self, source: BinaryIO, sink: BinaryIO) -> None:
        self._source, self._sink = source, sink
        self._numbers = itertools.count(1)
        self._asked: dict[int, Future[Any]] = {}
        self._lock = threading.Lock()

    def send(self, frame: Any) -> None:
        """Send a frame; frames of several threads do not mix."""
        data = pack(frame)
        with self._lock:
            self._sink.write(data)
            self._sink.flush()

    def ask(self, door: str, method: str, *arguments: Any) -> Any:
        """Return the proxy's answer, blocking; raises the error that the proxy raised."""
        return self._begin(door, method, arguments).result(ANSWER_S)

    async def aask(self, door: str, method: str, *arguments: Any) -> Any:
        """Do the same as `ask` without blocking the event loop."""
        return await asyncio.wrap_future(self._begin(door, method, arguments))

    def tell(self, door: str, method: str, *arguments: Any) -> None:
        """Send a notice to the proxy, which handles it before any later question."""
        self.send(Tell(JOB.get(), door, method, arguments))

    def listen(self, take: Callable[[Any], None]) -> None:
        """Read frames to the end of the pipe: give answers to their callers, the rest to `take`."""
        while (frame := read(self._source)) is not None:
            if not isinstance(frame, ProxyReply):
                take(frame)
                continue
            future = self._asked.pop(frame.number)
            if frame.error is not None:
                future.set_exception(frame.error)
            else:
                future.set_result(frame.value)

    def _begin(self, door: str, method: str, arguments: tuple[Any, ...]) -> Future[Any]:
        number, future = next(self._numbers), Future[Any]()
        self._asked[number] = future
        self.send(WorkerAsk(number, door, method, arguments))
        return future


class FarCheckpoints:
    """The proxy's records of compactions."""

    def __init__(self, link: Pipe) -> None:
        self._link = link

    def load(self, scope: str, prefixes: Sequence[str]) -> Checkpoint | None:
        """Return the valid checkpoint of the first of `prefixes` that has one, or None."""
        found: Checkpoint | None = self._link.ask("checkpoints", "aload", scope, prefixes)
        return found

    async def aload(self, scope: str, prefixes: Sequence[str]) -> Checkpoint | None:
        """Do as `load`."""
        found: Checkpoint | None = await self._link.aask("checkpoints", "aload", scope, prefixes)
        return found

    def save(self, checkpoint: Checkpoint) -> Checkpoint:
        """Store a checkpoint unless its generation is stored already; return the stored one."""
        held: Checkpoint = self._link.ask("checkpoints", "asave", checkpoint)
        return held

    async def asave(self, checkpoint: Checkpoint) -> Checkpoint:
        """Do as `save`."""
        held: Checkpoint = await self._link.aask("checkpoints", "asave", checkpoint)
        return held

    def save_measured(self, checkpoint: Checkpoint) -> None:
        """Replace a stored checkpoint by one that carries its measured size."""
        self._link.ask("checkpoints", "asave_measured", checkpoint)

    async def asave_measured(self, checkpoint: Checkpoint) -> None:
        """Do as `save_measured`."""
        await self._link.aask("checkpoints", "asave_measured", checkpoint)

    def undo(self, checkpoint: Checkpoint) -> bool:
        """Remove a checkpoint, so that the one before it under its prefix is valid again."""
        return bool(self._link.ask("checkpoints", "aundo", checkpoint))

    async def aundo(self, checkpoint: Checkpoint) -> bool:
        """Do as `undo`."""
        return bool(await self._link.aask("checkpoints", "aundo", checkpoint))

    def all(self) -> list[Checkpoint]:
        """Return the valid checkpoint of each policy and prefix, least recently used first."""
        found: list[Checkpoint] = self._link.ask("checkpoints", "aall")
        return found

    async def aall(self) -> list[Checkpoint]:
        """Do as `all`."""
        found: list[Checkpoint] = await self._link.aask("checkpoints", "aall")
        return found


class FarConversations:
    """The proxy's states of conversations, kept from call to call."""

    def __init__(self, link: Pipe) -> None:
        self._link = link

    def load(self, scope: str, prefixes: Sequence[str]) -> Conversation | None:
        """Return the state under the first of `prefixes` that has one, or None."""
        found: Conversation | None = self._link.ask("conversations", "aload", scope, prefixes)
        return found

    async def aload(self, scope: str, prefixes: Sequence[str]) -> Conversation | None:
        """Do as `load`."""
        asked = self._link.aask("conversations", "aload", scope, prefixes)
        found: Conversation | None = await asked
        return found

    def save(self, conversation: Conversation) -> None:
        """Keep the state of a conversation, replacing the one under its prefix."""
        self._link.ask("conversations", "asave", conversation)

    async def asave(self, conversation: Conversation) -> None:
        """Do as `save`."""
        await self._link.aask("conversations", "asave", conversation)


class FarOriginals:
    """The original texts of placeholders."""

    def __init__(self, link: Pipe) -> None:
        self._link = link

    def keep(self, items: Mapping[str, str]) -> None:
        """Keep texts by their references. A known reference keeps its text."""
        self._link.ask("originals", "akeep", dict(items))

    async def akeep(self, items: Mapping[str, str]) -> None:
        """Do as `keep`."""
        await self._link.aask("originals", "akeep", dict(items))

    def read(self, reference: str) -> str | None:
        """Return the text of a reference, or None if it is missing or expired."""
        found: str | None = self._link.ask("originals", "aread", reference)
        return found

    async def aread(self, reference: str) -> str | None:
        """Do as `read`."""
        found: str | None = await self._link.aask("originals", "aread", reference)
        return found


class SearchedFarOriginals(FarOriginals):
    """The original texts of a store that supports search."""

    def search(self, query: str, hits: int = HITS, area: SearchArea = EVERYWHERE) -> list[Hit]:
        """Return the passages that fit a query best."""
        found: list[Hit] = self._link.ask("originals", "search", query, hits, area)
        return found


class FarStore:
    """The proxy's store, as the guards of a worker use it: each call is made by the proxy."""

    url = "proxy:"
    is_sheltered = True
    desk = SHARED

    def __init__(self, link: Pipe, *, searches: bool) -> None:
        self.checkpoints = FarCheckpoints(link)
        self.conversations = FarConversations(link)
        self.originals = SearchedFarOriginals(link) if searches else FarOriginals(link)

    def purge(self, now: float) -> int:
        """Forget nothing: the proxy purges."""
        del now
        return 0

    def close(self) -> None:
        """Close nothing: the proxy owns the store."""


class FarWindows(Resolver):
    """The proxy's windows: reports and lessons are looked up in the proxy."""

    link: Pipe

    async def awindow(self, question: Question) -> Window:
        """Resolve; never raises for network trouble."""
        found: Window = await self.link.aask("windows", "awindow", question)
        return found

    def server(self, question: Question) -> str | None:
        """Return the server's kind, as its last answer showed, or None if it was not recognised."""
        found: str | None = self.link.ask("windows", "server", question)
        return found

    def wants_turns(self, question: Question) -> bool:
        """Tell whether the server's chat template refuses two messages of one role in a row."""
        return bool(self.link.ask("windows", "wants_turns", question))

    def counts_at(self, question: Question) -> tuple[str, str] | None:
        """Return the server that counts requests and its root URL, or None if it is unknown."""
        found: tuple[str, str] | None = self.link.ask("windows", "counts_at", question)
        return found

    def record(self, question: Question, claim: Claim) -> None:
        """Enter a claim of an event about a window."""
        self.link.tell("windows", "record", question, claim)

    def take_in(self, question: Question, claims: Sequence[Claim]) -> None:
        """Take in events that a conversation remembers, each with its own time."""
        if claims:
            self.link.tell("windows", "take_in", question, tuple(claims))

    def start_trial(self, question: Question) -> bool:
        """Tell whether a request over a learned bound may be tried, and remember the trial."""
        return bool(self.link.ask("windows", "start_trial", question))


class FarLessons(Lessons):
    """The lessons of the proxy. A job asks once for a model, and again after it taught one."""

    link: Pipe

    def __init__(self, now: Callable[[], float]) -> None:
        super().__init__(None, now)
        self._found: dict[str, tuple[int, Learned]] = {}

    def find(self, key: str) -> Learned:
        """Return the lessons about a model: the same object as before if nothing has changed."""
        job, (told_for, before) = JOB.get(), self._found.get(key, (0, None))
        if before is not None and told_for == job != 0:
            return before
        told: Learned = self.link.ask("lessons", "find", key)
        found = before if told == before else told
        self._found.pop(key, None)
        self._found[key] = job, found
        if len(self._found) > MOST_LESSONS:
            self._found.pop(next(iter(self._found)), None)
        return found

    def learn(self, key: str, reading: ReportedSize, worked_out: Taught | None = None) -> None:
        """Send the proxy one report to calibrate by; the proxy works out the lesson."""
        del worked_out
        self.link.tell("lessons", "learn", key, reading)
        self._doubt(key)

    def note_law(self, key: str, law: Law) -> None:
        """Remember that a model refused a history by this law."""
        self.link.tell("lessons", "note_law", key, law)
        self._doubt(key)

    def take_in(self, key: str, learned: Learned) -> bool:
        """Take in the lessons that a conversation remembers; tell whether they are still valid."""
        still = bool(self.link.ask("lessons", "take_in", key, learned))
        self._doubt(key)
        return still

    def _doubt(self, key: str) -> None:
        """Mark a model to be asked for again: its lessons may have changed."""
        _, before = self._found.get(key, (0, None))
        if before is not None:
            self._found[key] = 0, before


class FarHistories(Histories):
    """The sizes of histories that servers keep; the proxy learns them from answers."""

    link: Pipe

    async def fetch(self, scope: str, key: Key | None) -> Held | None:
        """Return the size of a history, or None if it is unknown."""
        found: Held | None = await self.link.aask("histories", "fetch", scope, key)
        return found


class FarListener:
    """The proxy's listener for events."""

    def __init__(self, link: Pipe) -> None:
        self._link = link

    def record_event(self, event: Event, model: str | None) -> None:
        """Record one event of a guard of `model`."""
        self._link.tell("events", "record_event", event, model)


class FarMeters:
    """Counters of the tools that the proxy answers."""

    def __init__(self, link: Pipe) -> None:
        self._link = link

    def tool_answer(self, tool: str, outcome: str) -> None:
        """Count a call of an added tool by its outcome."""
        self._link.tell("meters", "tool_answer", tool, outcome)

    def fault(self) -> None:
        """Count a request on which the guard itself failed."""
        self._link.tell("meters", "fault")
