"""A store in memory: finds records by the first known prefix, and drops the least recently used.

It keeps checkpoints, conversations and texts without understanding them, and ends with the process.
Safe to share between threads.
"""

from __future__ import annotations

import json
import threading
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from ullage.core.compaction.edits import find_references
from ullage.core.search.index import MemoryIndex, SearchSource
from ullage.core.search.ranking import EVERYWHERE, HITS, Hit, SearchArea, find_hits
from ullage.core.values.pickling import Unpicklable
from ullage.storage.protocol import STANDARD, StoreLimits

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from ullage.core.compaction.checkpoint import Checkpoint
    from ullage.core.guard.conversation import Conversation

MOST: Final = STANDARD.most
"""Most checkpoints, and most conversations; the least recently used is dropped first."""

Key = TypeVar("Key")
Record = TypeVar("Record")
CheckpointKey = tuple[str, str, str, int]


class _Recent(Generic[Key, Record]):
    """Records by key, least recently used first, each with the time of its last use."""

    def __init__(
        self,
        most: int = MOST,
        *,
        ttl_s: float = STANDARD.ttl_s,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.most, self._ttl_s, self._now = most, ttl_s, now
        self._kept: OrderedDict[Key, Record] = OrderedDict()
        self._used: dict[Key, float] = {}
        self._lock = threading.Lock()

    def purge(self, now: float) -> int:
        """Forget records that nobody used for their lifetime; return how many."""
        with self._lock:
            return self._purge(now)

    def take_out(self, chosen: Callable[[Record], bool]) -> list[Record]:
        """Forget the chosen records; return them."""
        with self._lock:
            found = [key for key, record in self._kept.items() if chosen(record)]
            return [self._forget(key) for key in found]

    def take_out_names(self, names: Collection[Key]) -> None:
        """Forget the records under these names, if any."""
        with self._lock:
            for key in names:
                if key in self._kept:
                    self._forget(key)

    def list_records(self) -> list[Record]:
        """Return all records."""
        with self._lock:
            return list(self._kept.values())

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            for key in tuple(self._kept):
                self._forget(key)

    def _purge(self, now: float) -> int:
        gone = [key for key, used in self._used.items() if used <= now - self._ttl_s]
        for key in gone:
            self._forget(key)
        return len(gone)

    def _touch(self, key: Key) -> None:
        self._kept.move_to_end(key)
        self._used.pop(key, None)
        self._used[key] = self._now()

    def _put(self, key: Key, record: Record) -> None:
        """Keep a record as the newest one; the caller holds the lock."""
        self._kept[key] = record
        self._touch(key)

    def _drop_excess(self) -> None:
        """Forget records that are expired or over the limits, but never the newest."""
        expired = self._now() - self._ttl_s
        while len(self._kept) > 1:
            oldest = next(iter(self._kept))
            if self._used[oldest] > expired and not self._over():
                break
            self._forget(oldest)

    def _over(self) -> bool:
        return len(self._kept) > self.most

    def _forget(self, key: Key) -> Record:
        del self._used[key]
        return self._kept.pop(key)


class MemoryCheckpoints(_Recent[CheckpointKey, "Checkpoint"]):
    """The embedded store of checkpoints; they end with the process."""

    def __init__(
        self,
        most: int = MOST,
        *,
        ttl_s: float = STANDARD.ttl_s,
        now: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(most, ttl_s=ttl_s, now=now)
        self._under: dict[str, dict[str, list[CheckpointKey]]] = {}

    def load(self, scope: str, prefixes: Sequence[str]) -> Checkpoint | None:
        """Return the record that holds under the first of `prefixes` that has one, or None."""
        with self._lock:
            if not self._kept:
                return None
            under = self._under.get(scope, {})
            prefix = next(filter(under.__contains__, prefixes), None)
            if prefix is None:
                return None
            key = max(reversed(under[prefix]), key=_generation)
            self._touch(key)
            return self._kept[key]

    def save(self, checkpoint: Checkpoint) -> Checkpoint:
        """Store a checkpoint unless its or a later generation is there; return the stored one."""
        key = _key(checkpoint)
        with self._lock:
            under = self._under.setdefault(key[0], {}).setdefault(key[1], [])
            held = max((k for k in under if k[2] == key[2]), key=_generation, default=None)
            if held is not None and _generation(held) >= checkpoint.generation:
                self._touch(held)
                return self._kept[held]
            under.append(key)
            self._put(key, checkpoint)
            self._drop_excess()
            return checkpoint

    def save_measured(self, checkpoint: Checkpoint) -> None:
        """Replace a stored checkpoint by the same one with its measured size.

        A late report on a checkpoint that has been replaced changes nothing.
        """
        key = _key(checkpoint)
        with self._lock:
            held = self._kept.get(key)
            if held is not None and held.script == checkpoint.script:
                self._kept[key] = checkpoint

    def undo(self, checkpoint: Checkpoint) -> bool:
        """Remove a checkpoint; the one stored before it under its prefix holds again."""
        key = _key(checkpoint)
        with self._lock:
            held = self._kept.get(key)
            if held is None or held.script != checkpoint.script:
                return False
            self._forget(key)
            return True

    def all(self) -> list[Checkpoint]:
        """Return the current checkpoint of each policy and prefix, least recently used first."""
        with self._lock:
            highest: dict[tuple[str, str, str], int] = {}
            for *place, generation in self._kept:
                scope, prefix, policy = place
                known = highest.get((scope, prefix, policy), generation)
                highest[scope, prefix, policy] = max(known, generation)
            return [c for key, c in self._kept.items() if highest[key[:3]] == key[3]]

    async def aload(self, scope: str, prefixes: Sequence[str]) -> Checkpoint | None:
        """Do as `load`."""
        return self.load(scope, prefixes)

    async def asave(self, checkpoint: Checkpoint) -> Checkpoint:
        """Do as `save`."""
        return self.save(checkpoint)

    async def asave_measured(self, checkpoint: Checkpoint) -> None:
        """Do as `save_measured`."""
        self.save_measured(checkpoint)

    async def aundo(self, checkpoint: Checkpoint) -> bool:
        """Do as `undo`."""
        return self.undo(checkpoint)

    async def aall(self) -> list[Checkpoint]:
        """Do as `all`."""
        return self.all()

    def _forget(self, key: CheckpointKey) -> Checkpoint:
        scope, prefix, *_ = key
        under = self._under[scope]
        under[prefix].remove(key)
        if not under[prefix]:
            del under[prefix]
        if not under:
            del self._under[scope]
        return super()._forget(key)


class MemoryConversations(_Recent[tuple[str, str], "Conversation"]):
    """State of conversations from call to call; it ends with the process."""

    def load(self, scope: str, prefixes: Sequence[str]) -> Conversation | None:
        """Return the state under the first of `prefixes` that has one, or None."""
        with self._lock:
            if not self._kept:
                return None
            for prefix in prefixes:
                found = self._kept.get((scope, prefix))
                if found is not None:
                    self._touch((scope, prefix))
                    return found
        return None

    def save(self, conversation: Conversation) -> None:
        """Keep the state of a conversation; replace the old one under its prefix."""
        with self._lock:
            self._put((conversation.scope, conversation.prefix), conversation)
            self._drop_excess()

    async def aload(self, scope: str, prefixes: Sequence[str]) -> Conversation | None:
        """Do as `load`."""
        return self.load(scope, prefixes)

    async def asave(self, conversation: Conversation) -> None:
        """Do as `save`."""
        self.save(conversation)


class MemoryOriginals(_Recent[str, str]):
    """The texts that placeholders replace; they end with the process."""

    def __init__(
        self, limits: StoreLimits = STANDARD, *, now: Callable[[], float] = time.time
    ) -> None:
        super().__init__(limits.most, ttl_s=limits.ttl_s, now=now)
        self._room, self._held = limits.characters, 0
        self.passages, self._new = MemoryIndex(), dict[str, None]()  # not indexed yet

    def keep(self, items: Mapping[str, str]) -> None:
        """Keep texts by their references. A known reference keeps its text."""
        if not items:
            return
        with self._lock:
            for reference, text in items.items():
                known = self._kept.get(reference)
                if known is None:
                    self._held += len(text)
                    self._new[reference] = None
                self._put(reference, text if known is None else known)
            self._drop_excess()

    def read(self, reference: str) -> str | None:
        """Return the text of a reference, or None if it is unknown or gone."""
        with self._lock:
            found = self._kept.get(reference)
            if found is not None:
                self._touch(reference)
            return found

    def search(self, query: str, hits: int = HITS, area: SearchArea = EVERYWHERE) -> list[Hit]:
        """Return the passages that fit a query best; raises what `find_hits` raises."""
        with self._lock:
            new = (SearchSource(name, self._kept[name], 0) for name in self._new)
            self.passages.take("", new, 0)
            self._new.clear()
            return find_hits(self.passages, query, hits, area)

    async def akeep(self, items: Mapping[str, str]) -> None:
        """Do as `keep`, but in a thread if a search by meaning may hold the lock for a second."""
        if self.passages.similar is None:
            self.keep(items)
        else:
            from asyncio import to_thread  # nobody else here needs an event loop

            await to_thread(self.keep, items)

    async def aread(self, reference: str) -> str | None:
        """Do as `read`, in a thread in the same case as `akeep`."""
        if self.passages.similar is None:
            return self.read(reference)
        from asyncio import to_thread

        return await to_thread(self.read, reference)

    def _over(self) -> bool:
        return self._held > self._room or super()._over()

    def _forget(self, key: str) -> str:
        text = super()._forget(key)
        self._held -= len(text)
        self.passages.forget(key)
        self._new.pop(key, None)
        return text


class MemoryStore(Unpicklable):
    """The three parts in memory; `now` returns seconds since the epoch."""

    instead = "take one that outlives it, ullage.open_store('sqlite:FILE'), and open it there too"

    url: Final = "memory:"

    def __init__(
        self, limits: StoreLimits = STANDARD, *, now: Callable[[], float] = time.time
    ) -> None:
        self.checkpoints = MemoryCheckpoints(limits.most, ttl_s=limits.ttl_s, now=now)
        self.conversations = MemoryConversations(limits.most, ttl_s=limits.ttl_s, now=now)
        self.originals = MemoryOriginals(limits, now=now)

    def purge(self, now: float) -> int:
        """Forget records expired at `now` (seconds since the epoch); return how many."""
        parts = (self.checkpoints, self.conversations, self.originals)
        return sum(part.purge(now) for part in parts)

    def forget_tenant(self, mark: str) -> int:
        """Forget the checkpoints and conversations whose scope contains `mark`; return how many."""
        gone: list[Checkpoint | Conversation] = []
        for part in (self.checkpoints, self.conversations):
            gone += part.take_out(lambda record: mark in record.scope)
        held: list[Checkpoint | Conversation] = [*self.checkpoints.list_records()]
        held += self.conversations.list_records()
        lost = set[str]().union(*map(_list_names, gone)).difference(*map(_list_names, held))
        self.originals.take_out_names(lost)
        return len(gone)

    def scrub(self) -> str:
        """Do nothing: data removed from memory is gone."""
        return ""

    def close(self) -> None:
        """Forget everything."""
        for part in (self.checkpoints, self.conversations, self.originals):
            part.clear()


def _key(checkpoint: Checkpoint) -> CheckpointKey:
    return (checkpoint.scope, checkpoint.prefix, checkpoint.policy, checkpoint.generation)


def _list_names(record: Checkpoint | Conversation) -> frozenset[str]:
    """Return the originals that a record names."""
    return find_references(json.dumps(record.to_dict()))


def _generation(key: CheckpointKey) -> int:
    return key[3]
