"""The store of a proxy, with memory in front for the data that every request changes.

A checkpoint is stored before it is used. The proxy looks it up with every request of a conversation
that has one, or may have got one at another replica. The state of a conversation is read from the
store if the conversation did not continue from the last state in this process. It is written after
the answers. For a conversation that begins, only memory is asked, since no other process knows
more. If the store is away, memory replaces it (`storage.shelter`). The module does not know
requests.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ullage.core.guard.request import OPENING
from ullage.storage import MemoryStore, StoreLimits
from ullage.storage.shelter import Shelter, ShelteredCheckpoints, shelter
from ullage.storage.threaded import conversations_of, desk_of, save_together

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ullage.core.compaction.checkpoint import Checkpoint
    from ullage.core.guard.conversation import Conversation
    from ullage.storage import Store
    from ullage.storage.protocol import Checkpoints, Originals

NEXT: Final = 2
"""Messages that a conversation usually grows by between two requests: an answer and the person's
reply. If it grew by more, another replica may have served it meanwhile."""

MOST: Final = 1_000
"""Conversations that wait to be written; beyond that, the ones that changed longest ago are
dropped."""


AT_ONCE: Final = 100
"""Conversations that are written in one transaction."""

REST_S: Final = 0.25
"""Seconds from one transaction to the next: under load, changes in between share one. A model takes
longer for an answer, so the conversation's next request finds it written."""


class Keeping:
    """A `Store` for the guards of a proxy, on top of the configured one."""

    is_sheltered = True

    def __init__(self, store: Store, limits: StoreLimits, near: int = MOST) -> None:
        self._store = shelter(store, limits, OPENING)
        self.conversations = WrittenBehind(self._store, replace(limits, most=near))
        self._checkpoints: Checkpoints = self._store.checkpoints
        if isinstance(self._store, Shelter):
            self._checkpoints = OwnCheckpoints(self._store, near)
        self.desk = desk_of(store)

    @property
    def url(self) -> str:
        """The URL of the store."""
        return self._store.url

    @property
    def checkpoints(self) -> Checkpoints:
        """The records of compactions, the same for all replicas."""
        return self._checkpoints

    @property
    def originals(self) -> Originals:
        """The original texts of placeholders, if they are kept at all."""
        return self._store.originals

    @property
    def away_s(self) -> float | None:
        """Seconds since the store went away, or None if it is there."""
        return self._store.outage.lasts_s if isinstance(self._store, Shelter) else None

    @property
    def backlog(self) -> int:
        """Number of changes that wait for the store to come back."""
        return self._store.backlog if isinstance(self._store, Shelter) else 0

    async def settle(self) -> None:
        """Wait until all changes are written or have failed."""
        await self.conversations.settle()
        if isinstance(self._store, Shelter):
            await self._store.settle()

    def purge(self, now: float) -> int:
        """Delete expired records; return their number."""
        return self._store.purge(now)

    def close(self) -> None:
        """Release the memory; whoever opened the store closes it."""
        self.conversations.close()


GUESSES: Final = 8
"""Number of requests of a conversation in a row without asking the store."""


class OwnCheckpoints(ShelteredCheckpoints):
    """Checkpoints of the store, skipping it for conversations without a checkpoint here.

    This is right while all requests of a conversation come to this process, and newer checkpoints
    are in memory. After `GUESSES` requests the store is asked again, since another replica may have
    answered one of them. For any thread.
    """

    def __init__(self, shelter: Shelter, most: int) -> None:
        super().__init__(shelter)
        self._most = most
        self._without: dict[tuple[str, str], tuple[int, int]] = {}
        self._made = 0
        self._lock = threading.Lock()

    def load(self, scope: str, prefixes: Sequence[str]) -> Checkpoint | None:
        """Return the valid checkpoint of the first of `prefixes` that has one, or None."""
        if self._is_without(scope, prefixes):
            return None
        return self._note(scope, prefixes, super().load(scope, prefixes))

    async def aload(self, scope: str, prefixes: Sequence[str]) -> Checkpoint | None:
        """Do as `load`."""
        if self._is_without(scope, prefixes):
            return None
        return self._note(scope, prefixes, await super().aload(scope, prefixes))

    def _is_without(self, scope: str, prefixes: Sequence[str]) -> bool:
        """Tell whether the conversation continues a request that had no checkpoint here."""
        if self._near.load(scope, prefixes) is not None:
            return False
        least = self._made - self._near.most  # newer checkpoints are still in memory
        known = (self._without.get((scope, prefix)) for prefix in prefixes[: NEXT + 1])
        guesses = [n for made, n in filter(None, known) if made > least]
        if not guesses or guesses[0] >= GUESSES:
            return False
        self._note(scope, prefixes, None, guesses[0] + 1)
        return True

    def _note(
        self, scope: str, prefixes: Sequence[str], found: Checkpoint | None, guesses: int = 0
    ) -> Checkpoint | None:
        is_away = self._shelter.outage.lasts_s is not None
        if found is None and not (is_away or self._shelter.is_opening(prefixes)):
            with self._lock:
                self._without[scope, prefixes[0]] = (self._made, guesses)
                if len(self._without) > self._most:
                    del self._without[next(iter(self._without))]
        return found

    def _learn(self, found: Checkpoint) -> Checkpoint:
        with self._lock:
            self._made += 1
        return super()._learn(found)


class WrittenBehind:
    """States of conversations: in memory at once, in the store soon after.

    There is one writer at a time, which rests between two transactions; a state that changes again
    meanwhile is written once.
    """

    def __init__(self, store: Store, limits: StoreLimits) -> None:
        self._store = store
        self._near, self._most = MemoryStore(limits), limits.most
        self._before: OrderedDict[str, Conversation] = OrderedDict()
        self._waiting: OrderedDict[str, Conversation] = OrderedDict()
        self._writing: asyncio.Task[None] | None = None
        self._rests_until, self._rest_s = 0.0, REST_S

    def load(self, scope: str, prefixes: Sequence[str]) -> Conversation | None:
        """Return the state under the first of `prefixes` that has one, or None."""
        found = self._near.conversations.load(scope, prefixes)
        unknown = _list_unknown(prefixes, found)
        if unknown:
            found = self._store.conversations.load(scope, unknown) or found
        return self._note(prefixes, found)

    async def aload(self, scope: str, prefixes: Sequence[str]) -> Conversation | None:
        """Do the same as `load` without blocking the event loop."""
        found = self._near.conversations.load(scope, prefixes)
        unknown = _list_unknown(prefixes, found)
        if unknown:
            found = await conversations_of(self._store).aload(scope, unknown) or found
        return self._note(prefixes, found)

    def save(self, conversation: Conversation) -> None:
        """Keep the state of a conversation; it is written soon."""
        self._near.conversations.save(conversation)
        before = self._before.pop(conversation.prefix, None)
        if not conversation.is_as_before(before):
            self._waiting.pop(conversation.prefix, None)
            self._waiting[conversation.prefix] = conversation
        self._remember(conversation.prefix, conversation)
        if len(self._waiting) > MOST:
            self._waiting.popitem(last=False)

    async def asave(self, conversation: Conversation) -> None:
        """Do the same as `save`, and start a writer unless one runs."""
        self.save(conversation)
        if self._waiting and (self._writing is None or self._writing.done()):
            self._writing = asyncio.get_running_loop().create_task(self._write_all())

    async def settle(self) -> None:
        """Wait until all changes are written or have failed."""
        self._rest_s = 0.0  # nothing more comes to share a transaction
        while self._waiting or not (self._writing is None or self._writing.done()):
            if self._writing is None or self._writing.done():
                self._writing = asyncio.get_running_loop().create_task(self._write_all())
            await self._writing

    def close(self) -> None:
        """Release the memory."""
        self._near.close()

    def _note(self, prefixes: Sequence[str], found: Conversation | None) -> Conversation | None:
        if found is not None and prefixes:
            self._remember(prefixes[0], found)
        return found

    def _remember(self, prefix: str, conversation: Conversation) -> None:
        self._before[prefix] = conversation
        if len(self._before) > self._most:
            self._before.popitem(last=False)

    async def _write_all(self) -> None:
        conversations, now = conversations_of(self._store), asyncio.get_running_loop().time
        while self._waiting:
            await asyncio.sleep(max(self._rests_until - now(), 0))
            many = min(len(self._waiting), AT_ONCE)
            await save_together(
                conversations, [self._waiting.popitem(last=False)[1] for _ in range(many)]
            )
            self._rests_until = now() + self._rest_s


def _list_unknown(prefixes: Sequence[str], found: Conversation | None) -> Sequence[str]:
    """Return the prefixes under which another replica may have written a newer state."""
    if found is None:
        return prefixes
    grown = prefixes.index(found.prefix)
    return prefixes[:grown] if grown > NEXT else ()
