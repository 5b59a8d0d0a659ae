"""What a proxy keeps, and where: in the store, and what every request changes in memory first.

A checkpoint is written before it is used. It is looked up with every request of a conversation that
has one, or may have got one at another replica. What is remembered from call to call is read from
the store where a conversation did not go on from what this process had last, and written behind the
answers. Of a conversation that begins nobody can know more than this process does: memory alone is
asked. A store that is away is stood in for by memory (`storage.shelter`). It knows no requests.
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
"""Messages by which a conversation grows from one request to the next: an answer and what a person
says to it. One that grew by more may have been another replica's meanwhile."""

MOST: Final = 1_000
"""Conversations that wait to be written; of more, those that changed longest ago are left out."""


AT_ONCE: Final = 100
"""Of these, how many are written in one transaction."""

REST_S: Final = 0.25
"""Seconds from one transaction to the next: under load, what changes meanwhile shares one. A model
takes longer for an answer, so the conversation's next request finds it written."""


class Keeping:
    """A `Store` for the guards of a proxy, over the one that is configured."""

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
        """What opens the store."""
        return self._store.url

    @property
    def checkpoints(self) -> Checkpoints:
        """The records of compactions, the same for all replicas."""
        return self._checkpoints

    @property
    def originals(self) -> Originals:
        """The texts that placeholders stand for, where they are kept at all."""
        return self._store.originals

    @property
    def away_s(self) -> float | None:
        """Seconds since the store went away, None where it is there."""
        return self._store.outage.lasts_s if isinstance(self._store, Shelter) else None

    @property
    def backlog(self) -> int:
        """How many changes wait for the store to be back."""
        return self._store.backlog if isinstance(self._store, Shelter) else 0

    async def settle(self) -> None:
        """Wait until all that is to be written is written, or cannot be."""
        await self.conversations.settle()
        if isinstance(self._store, Shelter):
            await self._store.settle()

    def purge(self, now: float) -> int:
        """Forget what is out of time; return how much."""
        return self._store.purge(now)

    def close(self) -> None:
        """Let go of memory; the store is its opener's."""
        self.conversations.close()


GUESSES: Final = 8
"""Requests of a conversation for which the store is not asked, one behind the other."""


class OwnCheckpoints(ShelteredCheckpoints):
    """Checkpoints of the store. A conversation that had none here needs no look into the store.

    That holds as long as it goes on from request to request in this process, and what was made
    since is in memory; after `GUESSES` requests the store is asked all the same, since another
    replica may have answered one of them. For any thread.
    """

    def __init__(self, shelter: Shelter, most: int) -> None:
        super().__init__(shelter)
        self._most = most
        self._without: dict[tuple[str, str], tuple[int, int]] = {}
        self._made = 0
        self._lock = threading.Lock()

    def load(self, scope: str, prefixes: Sequence[str]) -> Checkpoint | None:
        """Return what holds under the first of `prefixes` that has something, or None."""
        if self._is_without(scope, prefixes):
            return None
        return self._note(scope, prefixes, super().load(scope, prefixes))

    async def aload(self, scope: str, prefixes: Sequence[str]) -> Checkpoint | None:
        """Do as `load`."""
        if self._is_without(scope, prefixes):
            return None
        return self._note(scope, prefixes, await super().aload(scope, prefixes))

    def _is_without(self, scope: str, prefixes: Sequence[str]) -> bool:
        """Tell whether the conversation went on from a request that had no checkpoint here."""
        if self._near.load(scope, prefixes) is not None:
            return False
        least = self._made - self._near.most  # what was made since then is still in memory
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
    """What is remembered of conversations: in memory at once, in the store soon after.

    One writer at a time, which rests between two transactions; what changed again meanwhile is
    written once.
    """

    def __init__(self, store: Store, limits: StoreLimits) -> None:
        self._store = store
        self._near, self._most = MemoryStore(limits), limits.most
        self._before: OrderedDict[str, Conversation] = OrderedDict()
        self._waiting: OrderedDict[str, Conversation] = OrderedDict()
        self._writing: asyncio.Task[None] | None = None
        self._rests_until, self._rest_s = 0.0, REST_S

    def load(self, scope: str, prefixes: Sequence[str]) -> Conversation | None:
        """Return what is kept under the first of `prefixes` that has something, or None."""
        found = self._near.conversations.load(scope, prefixes)
        unknown = _list_unknown(prefixes, found)
        if unknown:
            found = self._store.conversations.load(scope, unknown) or found
        return self._note(prefixes, found)

    async def aload(self, scope: str, prefixes: Sequence[str]) -> Conversation | None:
        """Do as `load`, without blocking the event loop."""
        found = self._near.conversations.load(scope, prefixes)
        unknown = _list_unknown(prefixes, found)
        if unknown:
            found = await conversations_of(self._store).aload(scope, unknown) or found
        return self._note(prefixes, found)

    def save(self, conversation: Conversation) -> None:
        """Keep the state of a conversation; it is written at the next chance."""
        self._near.conversations.save(conversation)
        before = self._before.pop(conversation.prefix, None)
        if not conversation.is_as_before(before):
            self._waiting.pop(conversation.prefix, None)
            self._waiting[conversation.prefix] = conversation
        self._remember(conversation.prefix, conversation)
        if len(self._waiting) > MOST:
            self._waiting.popitem(last=False)

    async def asave(self, conversation: Conversation) -> None:
        """Do as `save`, and begin to write unless somebody does."""
        self.save(conversation)
        if self._waiting and (self._writing is None or self._writing.done()):
            self._writing = asyncio.get_running_loop().create_task(self._write_all())

    async def settle(self) -> None:
        """Wait until all that is to be written is written, or cannot be."""
        self._rest_s = 0.0  # nothing comes that could share a transaction
        while self._waiting or not (self._writing is None or self._writing.done()):
            if self._writing is None or self._writing.done():
                self._writing = asyncio.get_running_loop().create_task(self._write_all())
            await self._writing

    def close(self) -> None:
        """Let go of memory."""
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
    """Return the prefixes under which another replica may have written something newer."""
    if found is None:
        return prefixes
    grown = prefixes.index(found.prefix)
    return prefixes[:grown] if grown > NEXT else ()
