"""The side of a store that an event loop can wait for.

A store may have `a...` methods of its own beside the blocking ones. One that has none is driven in
threads: SQLite by one that writes and one that reads, a database of a server by as many as it has
connections, a store that somebody brings by a few that all such stores share. It knows no loop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from ullage.threads import AtOnce, Threads

if TYPE_CHECKING:
    from ullage.core.compaction.checkpoint import Checkpoint
    from ullage.core.guard.conversation import Conversation
    from ullage.storage.protocol import (
        AsyncCheckpoints,
        AsyncConversations,
        AsyncOriginals,
        Checkpoints,
        Conversations,
        Originals,
        Store,
    )

MOST: Final = 8
"""Threads for the stores that bring none: so many calls may hang before the next one waits."""


@dataclass(frozen=True, slots=True)
class Desk:
    """Who does the blocking work of a store: threads that read, and threads that write."""

    reads: Threads
    writes: Threads


_SHARED: Final = Threads("ullage-store", MOST)
SHARED: Final = Desk(_SHARED, _SHARED)

_AT_ONCE: Final = AtOnce()
AT_ONCE: Final = Desk(_AT_ONCE, _AT_ONCE)
"""For what is in memory."""


def desk_of(door: object) -> Desk:
    """Return the threads of a store or a log: its own, or those for all that bring none."""
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


class ThreadedCheckpoints:
    """Records of compactions, asked for in threads."""

    def __init__(self, blocking: Checkpoints, desk: Desk) -> None:
        self._blocking, self._desk = blocking, desk

    async def aload(self, scope: str, prefixes: Sequence[str]) -> Checkpoint | None:
        """Do as `load`."""
        return await self._desk.reads.run(self._blocking.load, scope, prefixes)

    async def asave(self, checkpoint: Checkpoint) -> Checkpoint:
        """Do as `save`."""
        return await self._desk.writes.run(self._blocking.save, checkpoint)

    async def asave_measured(self, checkpoint: Checkpoint) -> None:
        """Do as `measured`."""
        await self._desk.writes.run(self._blocking.save_measured, checkpoint)

    async def aundo(self, checkpoint: Checkpoint) -> bool:
        """Do as `undo`."""
        return await self._desk.writes.run(self._blocking.undo, checkpoint)

    async def aall(self) -> list[Checkpoint]:
        """Do as `all`."""
        return await self._desk.writes.run(self._blocking.all)  # it may write the order of use


class ThreadedConversations:
    """What is remembered from call to call, asked for in threads."""

    def __init__(self, blocking: Conversations, desk: Desk) -> None:
        self._blocking, self._desk = blocking, desk

    async def aload(self, scope: str, prefixes: Sequence[str]) -> Conversation | None:
        """Do as `load`."""
        return await self._desk.reads.run(self._blocking.load, scope, prefixes)

    async def asave(self, conversation: Conversation) -> None:
        """Do as `save`."""
        await self._desk.writes.run(self._blocking.save, conversation)


class ThreadedOriginals:
    """The texts that placeholders stand for, asked for in threads."""

    def __init__(self, blocking: Originals, desk: Desk) -> None:
        self._blocking, self._desk = blocking, desk

    async def akeep(self, items: Mapping[str, str]) -> None:
        """Do as `keep`."""
        await self._desk.writes.run(self._blocking.keep, items)

    async def aread(self, reference: str) -> str | None:
        """Do as `read`."""
        return await self._desk.reads.run(self._blocking.read, reference)
