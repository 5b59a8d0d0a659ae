"""The async side of a store or a log, for an event loop.

A store may have `a...` methods of its own in addition to the blocking ones. Any other is driven in
threads: SQLite by one that writes and one that reads, a server's database by as many as it has
connections, a third-party store by a few threads that all such stores share. It knows no loop.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from ullage.threads import AtOnce, Threads

if TYPE_CHECKING:
    from ullage.core.compaction.checkpoint import Checkpoint
    from ullage.core.guard.conversation import Conversation
    from ullage.core.session.log.event import Draft, Event
    from ullage.storage.log import AsyncEventLog, EventLog, Head, Lease, Owner, Stamped
    from ullage.storage.protocol import (
        AsyncCheckpoints,
        AsyncConversations,
        AsyncOriginals,
        Checkpoints,
        Conversations,
        Originals,
        Store,
    )

Result = TypeVar("Result")

MOST: Final = 8
"""Threads for stores without their own; this many calls may hang before the next one waits."""


@dataclass(frozen=True, slots=True)
class Desk:
    """The threads that do a store's blocking work: for reads, and for writes."""

    reads: Threads
    writes: Threads


_SHARED: Final = Threads("ullage-store", MOST)
SHARED: Final = Desk(_SHARED, _SHARED)

_AT_ONCE: Final = AtOnce()
AT_ONCE: Final = Desk(_AT_ONCE, _AT_ONCE)
"""For stores in memory."""


def desk_of(door: object) -> Desk:
    """Return the threads of a store or a log: its own, or the shared ones."""
    found = getattr(door, "desk", None)
    return found if isinstance(found, Desk) else SHARED


def checkpoints_of(store: Store) -> AsyncCheckpoints:
    """Return the checkpoints of a store with `a...` methods."""
    found = store.checkpoints
    if hasattr(found, "aload"):
        return cast("AsyncCheckpoints", found)
    return ThreadedCheckpoints(found, desk_of(store))


def conversations_of(store: Store) -> AsyncConversations:
    """Return the conversations of a store with `a...` methods."""
    found = store.conversations
    if hasattr(found, "aload"):
        return cast("AsyncConversations", found)
    return ThreadedConversations(found, desk_of(store))


def originals_of(store: Store) -> AsyncOriginals:
    """Return the originals of a store with `a...` methods."""
    found = store.originals
    if hasattr(found, "akeep"):
        return cast("AsyncOriginals", found)
    return ThreadedOriginals(found, desk_of(store))


def is_awaited(log: EventLog) -> bool:
    """Tell whether a log has `a...` methods of its own."""
    return hasattr(log, "aappend")


def log_of(log: EventLog) -> AsyncEventLog:
    """Return a log with `a...` methods."""
    return cast("AsyncEventLog", log) if is_awaited(log) else ThreadedLog(log, desk_of(log))


def make_immediate(log: EventLog) -> AsyncEventLog:
    """Return a log whose `a...` methods block: for `run_at_once`, in a thread that may wait."""
    return ThreadedLog(log, AT_ONCE)


def run_at_once(work: Coroutine[Any, Any, Result]) -> Result:
    """Return the result of a coroutine that never waits; raises RuntimeError if it waits.

    So the same code serves blocking and async callers.
    """
    try:
        work.send(None)
    except StopIteration as done:
        return cast("Result", done.value)
    work.close()
    raise RuntimeError("this coroutine waits: it needs an event loop")


class ThreadedCheckpoints:
    """Records of compactions, read and written in threads."""

    def __init__(self, blocking: Checkpoints, desk: Desk) -> None:
        self._blocking, self._desk = blocking, desk

    async def aload(self, scope: str, prefixes: Sequence[str]) -> Checkpoint | None:
        """Do as `load`."""
        return await self._desk.reads.run(self._blocking.load, scope, prefixes)

    async def asave(self, checkpoint: Checkpoint) -> Checkpoint:
        """Do as `save`."""
        return await self._desk.writes.run(self._blocking.save, checkpoint)

    async def asave_measured(self, checkpoint: Checkpoint) -> None:
        """Do as `save_measured`."""
        await self._desk.writes.run(self._blocking.save_measured, checkpoint)

    async def aundo(self, checkpoint: Checkpoint) -> bool:
        """Do as `undo`."""
        return await self._desk.writes.run(self._blocking.undo, checkpoint)

    async def aall(self) -> list[Checkpoint]:
        """Do as `all`."""
        return await self._desk.writes.run(self._blocking.all)  # it may write the order of use


class ThreadedConversations:
    """State of conversations from call to call, read and written in threads."""

    def __init__(self, blocking: Conversations, desk: Desk) -> None:
        self._blocking, self._desk = blocking, desk

    async def aload(self, scope: str, prefixes: Sequence[str]) -> Conversation | None:
        """Do as `load`."""
        return await self._desk.reads.run(self._blocking.load, scope, prefixes)

    async def asave(self, conversation: Conversation) -> None:
        """Do as `save`."""
        await self._desk.writes.run(self._blocking.save, conversation)

    async def asave_all(self, conversations: Sequence[Conversation]) -> None:
        """Save several as one piece of work."""
        await self._desk.writes.run(_save_all, self._blocking, conversations)


def _save_all(blocking: Conversations, conversations: Sequence[Conversation]) -> None:
    """Save several: in one transaction if the store supports it."""
    if hasattr(blocking, "save_all"):
        blocking.save_all(conversations)
        return
    for conversation in conversations:
        blocking.save(conversation)


async def save_together(awaited: AsyncConversations, conversations: Sequence[Conversation]) -> None:
    """Save several conversations: together if possible, else one by one."""
    if hasattr(awaited, "asave_all"):
        await awaited.asave_all(conversations)
        return
    for conversation in conversations:
        await awaited.asave(conversation)


class ThreadedOriginals:
    """The texts that placeholders replace, read and written in threads."""

    def __init__(self, blocking: Originals, desk: Desk) -> None:
        self._blocking, self._desk = blocking, desk

    async def akeep(self, items: Mapping[str, str]) -> None:
        """Do as `keep`."""
        await self._desk.writes.run(self._blocking.keep, items)

    async def aread(self, reference: str) -> str | None:
        """Do as `read`."""
        return await self._desk.reads.run(self._blocking.read, reference)


class ThreadedLog:
    """The events of sessions, read and written in threads."""

    def __init__(self, blocking: EventLog, desk: Desk) -> None:
        self._blocking, self._desk = blocking, desk

    async def acreate(self, session: str, now: float) -> Head:
        """Do as `create`."""
        return await self._desk.writes.run(self._blocking.create, session, now)

    async def asessions(self) -> list[Head]:
        """Do as `sessions`."""
        return await self._desk.reads.run(self._blocking.sessions)

    async def ahead(self, session: str) -> Head:
        """Do as `head`."""
        return await self._desk.reads.run(self._blocking.head, session)

    async def aappend(
        self, session: str, epoch: int, expected_head: int, drafts: Sequence[Draft], now: float
    ) -> list[Event]:
        """Do as `append`."""
        append = self._blocking.append
        return await self._desk.writes.run(append, session, epoch, expected_head, drafts, now)

    async def arestore(self, events: Sequence[Event], now: float) -> Head:
        """Do as `restore`."""
        return await self._desk.writes.run(self._blocking.restore, events, now)

    async def aread(self, session: str, after: int = 0, upto: int | None = None) -> list[Event]:
        """Do as `read`."""
        return await self._desk.reads.run(self._blocking.read, session, after, upto)

    async def aread_stamped(self, session: str) -> list[Stamped]:
        """Do as `read_stamped`."""
        return await self._desk.reads.run(self._blocking.read_stamped, session)

    async def aacquire(
        self, session: str, owner: Owner, now: float, *, take_over: bool = False
    ) -> Lease:
        """Do as `acquire`."""
        acquire = self._blocking.acquire
        if take_over:
            acquire = partial(acquire, take_over=True)
        return await self._desk.writes.run(acquire, session, owner, now)

    async def aheartbeat(self, session: str, epoch: int, now: float) -> Lease:
        """Do as `heartbeat`."""
        return await self._desk.writes.run(self._blocking.heartbeat, session, epoch, now)

    async def arelease(self, session: str, epoch: int, now: float) -> None:
        """Do as `release`."""
        await self._desk.writes.run(self._blocking.release, session, epoch, now)

    async def aleases(self, session: str) -> list[Lease]:
        """Do as `leases`."""
        return await self._desk.reads.run(self._blocking.leases, session)
