"""A session: one conversation in a log, its state, and the right to write to it.

Events are stamped and on disk before any listener gets them. The module does not know models or
tools.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, cast

from ullage.agent.originals import SessionOriginals
from ullage.agent.writing import LogEnd, WriterClaim, append, ask_lease, outlast
from ullage.core.errors import ConfigurationError, CorruptLog, Fenced, StoreError
from ullage.core.messages.redaction import Redactor
from ullage.core.session.caching import find_root
from ullage.core.session.log.erasing import is_purged
from ullage.core.session.log.event import EPHEMERAL, Draft, Event
from ullage.core.session.log.fold import Fold, fold
from ullage.core.values.pickling import Unpicklable
from ullage.storage import check_log
from ullage.storage.blobs import Blobs
from ullage.storage.pieces import Pieces
from ullage.storage.threaded import SHARED, desk_of, is_awaited, make_immediate, run_at_once
from ullage.threads import acquire_lock, finish

if TYPE_CHECKING:
    from ullage.agent.files import Undone
    from ullage.core.compaction.checkpoint import Checkpoint
    from ullage.core.session.permissions import Grant
    from ullage.storage.log import AsyncEventLog, EventLog, Lease


log = logging.getLogger("ullage.agent")


@dataclass(frozen=True, slots=True)
class Live:
    """An event that is only shown while it happens, and not recorded.

    `type` is text_delta, reasoning_delta, status, plan or context_pressure; `data` has string keys.
    """

    session_id: str
    type: str
    data: Mapping[str, Any]

    def __post_init__(self) -> None:
        if self.type not in EPHEMERAL:
            raise StoreError(f"{self.type} events are recorded: only {sorted(EPHEMERAL)} are shown")


GRACE_S: Final = 10.0
"""Seconds that a cancelled turn waits for the log to confirm a write."""

SPOKEN: Final = frozenset(
    {"user_message", "assistant_message", "reasoning", "tool_call", "tool_result", "branch_summary"}
)
"""Types of events that are part of messages."""

BESIDE: Final = "undo"
"""The folder of kept file contents."""

Result = TypeVar("Result")

Told = Event | Live
Hear = Callable[[Told], object]

Step = Callable[["AsyncEventLog"], Coroutine[Any, Any, Result]]
"""Work of a session on its log: the same for blocking and for awaiting callers."""


class Session(Unpicklable):
    """One session of a log. For one writer at a time; close it, or use it in a `with` block.

    ::

        with Session.create(ullage.open_log("sqlite:work.db")) as session:
            agent.run(session, "What is in the cellar?")

    `name` is its name in the log. The first write takes the lease; another writer then gets
    BusyWriter. Listeners added with `hear` get each event after it is on disk, and live ones.
    `grants` are the rights that a person gave without further questions, as long as this object
    lives.
    """

    instead = (
        "pickle session.name and session.log.url, and open it there: "
        "ullage.Session(ullage.open_log(url), name)"
    )

    def __init__(self, log: EventLog, name: str, *, now: Callable[[], float] = time.time) -> None:
        check_log(log).head(name)  # raises for a missing session
        self.log = log
        self.name = name
        self.redactor = Redactor()
        self.busy = False
        self.grants: list[Grant] = []
        self.onward: Session | None = None  # the open continuation
        self.now = now
        self._fold = Fold()
        self._head = 0
        self._unfolded: deque[tuple[Event, bool]] = deque()
        self._unheard: deque[Told] = deque()
        self._writing, self._folding = threading.Lock(), threading.Lock()
        self._awaiting: int | None = None  # thread whose event loop runs a step
        self._lease: Lease | None = None
        self._let_go = False
        self._claim: WriterClaim | None = None
        self._heard: list[Hear] = []
        self.originals = SessionOriginals(name, log, lambda: self.fold)
        self.checkpoint_cache: dict[int, Checkpoint] = {}  # by their number among compactions
        self._blobs: Blobs | None = None

    @classmethod
    def create(
        cls,
        log: EventLog,
        name: str | None = None,
        *,
        tenant: str | None = None,
        now: Callable[[], float] = time.time,
    ) -> Self:
        """Begin a session, with a random name by default; raises StoreError if the name is taken.

        `tenant` names its owner, for the rules of retention.
        """
        chosen = uuid.uuid4().hex[:12] if name is None else name
        log.create(chosen, now())
        made = cls(log, chosen, now=now)
        made.record([Draft("session_created", {} if tenant is None else {"tenant": tenant})])
        return made

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Session({self.name!r} in {self.log.url})"

    # --- reading --------------------------------------------------------------------------------

    @property
    def fold(self) -> Fold:
        """The current state of the log; new events are folded in."""
        self._block(self._read_on)
        return self.known

    @property
    def known(self) -> Fold:
        """The state from the events read and written here, without asking the log."""
        with self._folding:
            if self._unfolded:
                found = [self._unfolded.popleft() for _ in range(len(self._unfolded))]
                self._fold.extend([event for event, _ in found])
                self._unheard.extend(event for event, is_new in found if is_new)
        return self._fold

    def refresh(self) -> None:
        """Read the events that the log has gained."""
        self._block(self._read_on)

    def events(self, after: int = 0, upto: int | None = None) -> list[Event]:
        """Return recorded events."""
        return self.log.read(self.name, after, upto)

    @property
    def blobs(self) -> Blobs:
        """The file contents from before tools changed them, kept next to the log."""
        if self._blobs is None:
            self._blobs = Blobs(find_folder(self.log.url))
            self._blobs.purge()
        return self._blobs

    def undo_files(
        self, turn: int | None = None, *, force: bool = False, dry_run: bool = False
    ) -> Undone | None:
        """Restore the files that a turn changed, the last one by default; see `agent.files`.

        A repeated call undoes one more turn. Files that a person changed since are left and
        reported, unless `force` is given. Returns None if no turn changed a file.
        """
        from ullage.agent.files import undo_files

        return undo_files(self, turn, force=force, dry_run=dry_run)

    def pin(self, seq: int, *, pinned: bool = True) -> None:
        """Protect the message of event `seq` from compactions, or stop protecting it.

        Raises ConfigurationError for an event without a message for the model (the text of a failed
        turn is not sent), and BusyWriter while another process writes to the session. A repeated
        call records nothing.
        """
        self.refresh()
        if seq in self.known.pins if pinned else seq not in self.known.pins:
            return
        found = self.events(seq - 1, seq) if 0 < seq <= self.known.head else []
        if not found:
            raise ConfigurationError(
                f"there is no event {seq} in session {self.name}: `ullage show {self.name}` "
                "numbers those there are"
            )
        if found[0].type not in SPOKEN or not self.known.is_sent(seq):
            raise ConfigurationError(
                f"event {seq} of session {self.name} is a {found[0].type}, not part of a message "
                f"that a model is sent: `ullage show {self.name}` numbers them"
            )
        self.record([Draft("message_pinned", {"seq": seq, "pinned": pinned})])

    # --- writing --------------------------------------------------------------------------------

    def acquire(self, *, take_over: bool = False) -> Lease:
        """Become the writer; raises BusyWriter while there is another. A second call does nothing.

        With `take_over`, the other writer loses the session at once: its further writes are
        refused, and its turn ends.
        """
        lease = self._block(partial(self._take_lease, take_over=take_over))
        self._tell_news()
        return lease

    def renew(self) -> Lease:
        """Become the writer before a turn; a lost lease is requested anew.

        Between turns there are no heartbeats, so another process may have written meanwhile.
        """
        lease = self._block(self._renew)
        self._tell_news()
        return lease

    def record(self, drafts: Sequence[Draft]) -> list[Event]:
        """Append events in one piece, take them into the fold, then publish them.

        Raises Fenced if another process became the writer: then nothing was written.
        """
        events = self._block(partial(self._append, drafts))
        self._tell_news()
        return events

    def heartbeat(self) -> None:
        """Send a heartbeat; raises Fenced if another process became the writer."""
        self._block(self._beat)
        self._tell_news()

    def let_go(self) -> None:
        """Stop writing: a turn that is cancelled from here on stays open in the log.

        Another writer continues it after this session is closed. Further writes raise Fenced.
        """
        self._let_go = True

    def close(self) -> None:
        """Give the lease back; the log stays open."""
        run_at_once(self._release(make_immediate(self.log)))

    async def aacquire(self) -> Lease:
        """Do the same as `acquire` without blocking the event loop; new events are folded in."""
        return await self._beside(self._acquire)

    async def arenew(self) -> Lease:
        """Do the same as `renew` without blocking the event loop; new events are folded in."""
        return await self._beside(self._renew)

    async def arecord(self, drafts: Sequence[Draft]) -> list[Event]:
        """Do the same as `record` without blocking the event loop.

        A cancellation waits until the outcome of the write is known, or `GRACE_S`.
        """
        return await self._beside(partial(self._append, drafts))

    async def aheartbeat(self) -> None:
        """Do the same as `heartbeat` without blocking the event loop."""
        await self._beside(self._beat)

    async def aclose(self) -> None:
        """Do the same as `close` without blocking the event loop."""
        if is_awaited(self.log):
            await self._beside(self._release)
        else:
            await self._settle(desk_of(self.log).writes.run(self.close))

    async def afold(self) -> Fold:
        """Return the current state of the log without blocking the event loop."""
        await self._beside(self._read_on)
        return self.known

    async def _beside(self, step: Step[Result]) -> Result:
        """Take a step without blocking the event loop, and publish its result here."""
        return await self._settle(self._take_step(step))

    async def _settle(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Wait for work, up to `GRACE_S` longer after a cancellation, and publish its result."""
        running = asyncio.ensure_future(work)
        try:
            return await finish(running, GRACE_S)
        except asyncio.CancelledError:
            if not running.done() or running.cancelled():
                raise
            result = running.result()  # its error replaces the cancellation
            _cancel_later()
            return result
        finally:
            self._tell_news()

    def _block(self, step: Step[Result]) -> Result:
        """Take a step in this thread."""
        if self._awaiting == threading.get_ident():
            raise StoreError(
                f"a task of this event loop is writing session {self.name}: await the method with "
                "`a` before its name (arecord, afold, ...)"
            )
        with self._writing:
            return run_at_once(step(make_immediate(self.log)))

    async def _take_step(self, step: Step[Result]) -> Result:
        """Await a log that can be awaited; run the step on any other in one of its threads.

        The whole step runs in one thread there, so that a caller that blocks the loop meanwhile,
        such as `fold`, gets its turn.
        """
        if not is_awaited(self.log):
            return await desk_of(self.log).writes.run(self._block, step)
        await acquire_lock(self._writing, SHARED.writes)
        self._awaiting = threading.get_ident()
        try:
            return await step(cast("AsyncEventLog", self.log))
        finally:
            self._awaiting = None
            self._writing.release()

    # --- steps: they publish nothing; the caller holds `_writing` -------------------------------

    async def _renew(self, log: AsyncEventLog) -> Lease:
        if self._lease is not None:
            with suppress(Fenced):  # it is released then
                await self._beat(log)
        return await self._acquire(log)

    async def _acquire(self, log: AsyncEventLog) -> Lease:
        lease = await self._take_lease(log)
        await self._read_on(log)
        return lease

    async def _take_lease(self, log: AsyncEventLog, *, take_over: bool = False) -> Lease:
        if self._lease is None:
            await self._refuse_purged(log)
            self._claim = self._claim or WriterClaim(self.log.url, self.name)
            lease = await ask_lease(log, self._claim, self.now(), take_over=take_over)
            self._lease = lease
            if lease.taken:
                text = f"taken over: {lease.taken}"
                self._unheard.append(Live(self.name, "status", {"text": text}))
            return lease
        return self._lease

    async def _refuse_purged(self, log: AsyncEventLog) -> None:
        """Raise StoreError for a session whose text was erased."""
        head = await log.ahead(self.name)
        last: Sequence[Event] = ()
        with suppress(CorruptLog):  # a full read finds the damage
            last = await log.aread(self.name, max(head.seq - 1, 0))
        if is_purged(last):
            raise StoreError(
                f"the text of session {self.name} was erased, so that nothing goes on from it: "
                "begin a new session"
            )

    async def _hold_lease(self, log: AsyncEventLog) -> Lease:
        """Return the lease; a lease lost within a turn is not taken again."""
        if self._let_go:
            raise Fenced(f"session {self.name} was released here; nothing was written")
        if self._lease is None and self.busy:
            raise Fenced(f"session {self.name} was taken over by another; nothing was written")
        return await self._take_lease(log)

    async def _beat(self, log: AsyncEventLog) -> None:
        lease = await self._hold_lease(log)
        try:
            await log.aheartbeat(self.name, lease.epoch, self.now())
        except Fenced:
            self._lease = None
            raise

    async def _append(self, drafts: Sequence[Draft], log: AsyncEventLog) -> list[Event]:
        lease = await self._hold_lease(log)
        clean = [Draft(d.type, self.redactor.data(d.data), d.v) for d in drafts]
        await outlast(partial(self._read_on, log), self._pause)
        if not self._head and clean and clean[0].type != "session_created":
            clean.insert(0, Draft("session_created", {}))
        try:
            to = LogEnd(self.name, lease.epoch, self._head)
            events = list(await append(log, to, clean, self.now(), self._pause))
        except Fenced:
            self._lease = None
            raise
        self._head += len(events)
        self._unfolded.extend((event, True) for event in events)
        return events

    async def _pause(self, seconds: float) -> None:
        """Wait on the event loop if a step runs on one, else in this thread."""
        if self._awaiting == threading.get_ident():
            await asyncio.sleep(seconds)
        else:
            time.sleep(seconds)  # noqa: ASYNC251 - no loop runs in this thread

    async def _read_on(self, log: AsyncEventLog) -> None:
        """Read new events of the log, in pieces, so that no text is held twice."""
        pieces = Pieces(self._head, (await log.ahead(self.name)).seq)
        while pieces.end != self._head:
            upto = None if pieces.is_last else pieces.upto
            found = await log.aread(self.name, self._head, upto)
            pieces.take(found)
            self._unfolded.extend((event, False) for event in found)
            self._head += len(found)
            if upto is None:
                return
            _ = self.known

    async def _release(self, log: AsyncEventLog) -> None:
        """Give the lease back."""
        lease, self._lease = self._lease, None
        if lease is not None:
            await log.arelease(self.name, lease.epoch, self.now())

    def _tell_news(self) -> None:
        """Fold the events that were read and written, and publish the written ones."""
        _ = self.known
        while self._unheard:
            self.publish(self._unheard.popleft())

    def fork(self, at: int | None = None, name: str | None = None) -> Session:
        """Begin a session that shares the events up to `at`, all by default; it records the fork.

        Raises ConfigurationError for an `at` that is no event of this session.
        """
        head = self.log.head(self.name).seq
        upto = head if at is None else at
        if type(upto) is not int or not 1 <= upto <= head:
            raise ConfigurationError(
                f"session {self.name} has events 1 to {head}, so it cannot be forked at {upto}"
            )
        chosen = uuid.uuid4().hex[:12] if name is None else name
        events = self.events(upto=upto)  # later events are not read: they may be damaged
        shared = [Draft(e.type, e.data, e.v) for e in events]
        root = find_root(fold(events), self.name)
        shared.append(Draft("session_fork", {"parent": self.name, "seq": upto, "root": root}))
        self.log.create(chosen, self.now())
        made = Session(self.log, chosen, now=self.now)
        made.redactor = self.redactor
        made.record(shared)
        return made

    # --- listening ------------------------------------------------------------------------------

    def hear(self, listener: Hear) -> Callable[[], None]:
        """Call `listener` with each event; return a function that stops that."""
        self._heard.append(listener)
        return lambda: self._heard.remove(listener)

    def hand_on(self, other: Session) -> None:
        """Give the listeners and grants of this session to another one."""
        other._heard = list(self._heard)
        other.grants = self.grants

    def publish(self, event: Told) -> None:
        """Call all listeners; an error of a listener is logged, and ends nothing."""
        if isinstance(event, Live):
            event = replace(event, data=self.redactor.data(event.data))
        for listener in tuple(self._heard):
            try:
                listener(event)
            except Exception as error:  # noqa: BLE001 - whatever it raises, the turn is not at fault
                said = self.redactor.text(f"{type(error).__name__}: {error}")
                where = self.name, event.type  # a trace might quote a secret
                log.error("a listener of session %s failed on %s: %s", *where, said)  # noqa: TRY400


def _cancel_later() -> None:
    """Cancel the current task at its next wait, since this one has ended."""
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - this is called by a coroutine, and some task runs it
    task.uncancel()
    task.cancel()


def find_folder(url: str) -> Path | None:
    """Return the folder of file contents: next to a log in a file, else in the user's own.

    Returns None for a log in memory, which ends with the process.
    """
    scheme, _, path = url.partition(":")
    if scheme == "memory":
        return None
    if scheme == "sqlite":
        return Path(path.removeprefix("//")).parent / BESIDE
    import platformdirs

    return Path(platformdirs.user_state_dir("ullage", appauthor=False)) / BESIDE


def find_state_folder(url: str, workspace: Path) -> Path | None:
    """Return the folder of a log's file, which no tool may reach.

    Raises ConfigurationError if that is the workspace, or a folder above it.
    """
    scheme, _, path = url.partition("://")
    if scheme != "sqlite":
        kept = find_folder(url)
        if kept is None or workspace.resolve() not in kept.resolve().parents:
            return None
        kept.mkdir(mode=0o700, parents=True, exist_ok=True)
        return kept
    folder, work = Path(path).parent.resolve(), workspace.resolve()
    if folder == work or folder in work.parents:
        raise ConfigurationError(
            f"the log {path} is in the workspace {workspace} itself or above it, where tools would "
            f"reach it: keep it in a folder of its own, such as sqlite:{workspace}/.ullage/log.db"
        )
    return folder
