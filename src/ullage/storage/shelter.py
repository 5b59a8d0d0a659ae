"""A store that may be away: asked with a deadline, replaced by memory, updated when it is back.

A store is a cache of data that can be made again, so its absence never prevents a compaction. While
the store is away, memory answers at once; changes are written when it is back. It knows no engine
and no requests.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from ullage.core.errors import StoreError, UllageError
from ullage.core.search.ranking import EVERYWHERE, HITS, Hit, SearchArea
from ullage.core.values.pickling import Unpicklable
from ullage.storage.bodies import DamagedRecord
from ullage.storage.memory import MemoryStore
from ullage.storage.patience import ANSWER_S, wait_for_answer, wait_for_thread
from ullage.storage.protocol import STANDARD, StoreLimits
from ullage.storage.threaded import (
    AT_ONCE,
    ThreadedCheckpoints,
    ThreadedConversations,
    ThreadedOriginals,
    checkpoints_of,
    conversations_of,
    desk_of,
    originals_of,
    run_at_once,
    save_together,
)

if TYPE_CHECKING:
    import asyncio

    from ullage.core.compaction.checkpoint import Checkpoint
    from ullage.core.guard.conversation import Conversation
    from ullage.storage.protocol import (
        AsyncCheckpoints,
        AsyncConversations,
        AsyncOriginals,
        SearchesOriginals,
        Store,
    )

log = logging.getLogger("ullage.storage")

Result = TypeVar("Result")

FIRST_S: Final = 1.0
"""Seconds after a failure until the next try; doubled each time."""

LONGEST_S: Final = 30.0

NEAR: Final = 1_000
"""Most records of each kind in memory."""

MOST: Final = 10_000
"""Most changes that wait for the store; beyond that, the oldest are dropped."""

CHARACTERS: Final = 64 * 1024 * 1024
"""Most characters of originals in these changes."""


@dataclass(frozen=True, slots=True)
class _Doors:
    """The three parts of a store; `blocking` says whether its calls block the caller."""

    checkpoints: AsyncCheckpoints
    conversations: AsyncConversations
    originals: AsyncOriginals
    blocking: bool

    def wait_for(self, asked: Awaitable[Result]) -> Awaitable[Result]:
        """Return the answer; raises TimeoutError after `ANSWER_S` unless calls block the caller."""
        if self.blocking:
            return asked
        return wait_for_thread(asked) if self._is_threaded else wait_for_answer(asked)

    @property
    def _is_threaded(self) -> bool:
        return (
            type(self.checkpoints) is ThreadedCheckpoints
            and type(self.conversations) is ThreadedConversations
            and type(self.originals) is ThreadedOriginals
        )


@dataclass(frozen=True, slots=True)
class _Change:
    """A waiting change: the call that makes it, and the characters that it holds."""

    make: Callable[[_Doors], Awaitable[Any]]
    characters: int = 0


_READ: Final = _Change(lambda doors: doors.checkpoints.aload("", ("",)))
"""No change: a read that a working store can answer."""

Asked = tuple[Callable[[_Doors], Awaitable[Result]], Callable[[], Result]]
"""The call to the store, and the call to memory that replaces it while the store is away."""


class Outage:
    """State of a store: away or not, and when to try it again. Safe to share between threads."""

    def __init__(self, name: str, now: Callable[[], float] = time.monotonic) -> None:
        self._name, self._now = name, now
        self._lock = threading.Lock()
        self._since: float | None = None
        self._again = 0.0
        self._pause_s = FIRST_S

    @property
    def lasts_s(self) -> float | None:
        """Seconds since the store went away, or None if it is there."""
        since = self._since
        return None if since is None else self._now() - since

    @property
    def pause_s(self) -> float:
        """Seconds until the store should be tried again."""
        return max(self._again - self._now(), 0.0)

    def begin(self, error: Exception) -> None:
        """Note that the store failed; log one line per outage."""
        with self._lock:
            first = self._since is None
            if first:
                self._since, self._pause_s = self._now(), FIRST_S
            elif self._now() >= self._again:
                self._pause_s = min(self._pause_s * 2, LONGEST_S)
            else:
                return
            self._again = self._now() + self._pause_s
        if first:
            if isinstance(error, TimeoutError):
                error = StoreError(f"{self._name} gave no answer within {ANSWER_S:g} s")
            strange = None if isinstance(error, StoreError) else error
            log.warning("the store is away, memory is used instead: %s", error, exc_info=strange)

    def end(self) -> None:
        """Note that the store is back."""
        lasted = self.lasts_s
        if lasted is not None:
            self._since = None
            log.warning("the store is back after %.1f s: %s", lasted, self._name)


class Shelter(Unpicklable):
    """A `Store` based on one that may be away. Safe to share between threads and event loops.

    The `a...` methods wait up to `ANSWER_S` seconds for the store, once. After that memory answers
    until the store is back. Up to `MOST` changes of that time are kept and then written.

    A conversation with at most `opening` prefixes has just begun: it is looked up only in memory.
    """

    instead = "take one that outlives it, ullage.open_store('sqlite:FILE'), and open it there too"
    is_sheltered = True

    def __init__(
        self,
        store: Store,
        limits: StoreLimits = STANDARD,
        *,
        opening: int = 0,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.beneath, self.opening = store, opening
        self.outage = Outage(store.url, now)
        self.desk = desk_of(store)
        self.near = MemoryStore(replace(limits, most=min(limits.most, NEAR), characters=CHARACTERS))
        self.checkpoints = ShelteredCheckpoints(self)
        self.conversations = ShelteredConversations(self)
        searched = hasattr(store.originals, "search")
        self.originals = SearchedOriginals(self) if searched else ShelteredOriginals(self)
        self._awaited = _Doors(
            checkpoints_of(store), conversations_of(store), originals_of(store), blocking=False
        )
        self._blocking = _Doors(
            ThreadedCheckpoints(store.checkpoints, AT_ONCE),
            ThreadedConversations(store.conversations, AT_ONCE),
            ThreadedOriginals(store.originals, AT_ONCE),
            blocking=True,
        )
        self._changes: OrderedDict[tuple[Any, ...], _Change] = OrderedDict()
        self._characters = 0
        self._lock = threading.Lock()
        self._catching_up: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """The URL that opens the store."""
        return self.beneath.url

    @property
    def backlog(self) -> int:
        """The number of changes that wait for the store."""
        return len(self._changes)

    def purge(self, now: float) -> int:
        """Forget expired records; return how many."""
        return self.near.purge(now) + self.beneath.purge(now)

    def close(self) -> None:
        """Write the waiting changes if the store is back, and close it."""
        if self._changes and not self.outage.pause_s:
            run_at_once(self._write_changes(self._blocking))
        if self._changes:
            log.warning("%d changes were not written: the store is away", len(self._changes))
        self.near.close()
        self.beneath.close()

    async def settle(self) -> None:
        """Write the waiting changes if the store is there."""
        if self._changes:
            await self._write_changes(self._awaited)

    def is_opening(self, prefixes: Sequence[str]) -> bool:
        """Tell from the number of its prefixes whether a conversation has just begun."""
        return len(prefixes) <= self.opening

    # --- for its three parts --------------------------------------------------------------------

    def ask(self, asked: Asked[Result]) -> Result:
        """Return the store's answer, blocking; while the store is away, memory's answer."""
        return run_at_once(self._ask(self._blocking, *asked))

    async def aask(self, asked: Asked[Result]) -> Result:
        """Do as `ask`, without blocking the event loop, for a limited time."""
        return await self._ask(self._awaited, *asked)

    def defer(self, key: tuple[Any, ...], change: _Change) -> None:
        """Keep a change until the store is back; it replaces an earlier one with the same key."""
        with self._lock:
            self._forget(key)
            self._changes[key] = change
            self._characters += change.characters
            while len(self._changes) > MOST or self._characters > CHARACTERS:
                self._forget(next(iter(self._changes)))

    def recall(self, key: tuple[Any, ...]) -> bool:
        """Drop a waiting change; tell whether there was one."""
        with self._lock:
            return self._forget(key)

    def _give_up_changes(self) -> None:
        with self._lock:
            self._changes.clear()
            self._characters = 0

    def _forget(self, key: tuple[Any, ...]) -> bool:
        gone = self._changes.pop(key, None)
        self._characters -= gone.characters if gone is not None else 0
        return gone is not None

    async def _ask(
        self,
        doors: _Doors,
        work: Callable[[_Doors], Awaitable[Result]],
        near: Callable[[], Result],
    ) -> Result:
        if self.outage.lasts_s is not None and not await self._is_back(doors):
            return near()
        try:
            return await doors.wait_for(work(doors))
        except DamagedRecord as error:
            log.warning("%s", error)
            found = near()
            if self.outage.lasts_s is None:
                self._give_up_changes()  # a damaged record takes no change
            return found
        except Exception as error:
            if not _is_outage(error):
                raise
            self._begin_outage(error, doors)
            return near()

    def _begin_outage(self, error: Exception, doors: _Doors) -> None:
        self.outage.begin(error)
        if not doors.blocking:
            self._catch_up_later()

    async def _is_back(self, doors: _Doors) -> bool:
        """Tell whether the store is back: threads try it, an event loop starts a task."""
        if not doors.blocking:
            self._catch_up_later()
            return False
        return not self.outage.pause_s and await self._write_changes(doors)

    def _catch_up_later(self) -> None:
        import asyncio

        task, loop = self._catching_up, asyncio.get_running_loop()
        if task is None or task.done() or task.get_loop() is not loop:
            self._catching_up = loop.create_task(self._catch_up())

    async def _catch_up(self) -> None:
        import asyncio

        while self.outage.lasts_s is not None:
            await asyncio.sleep(self.outage.pause_s)
            await self._write_changes(self._awaited)

    async def _write_changes(self, doors: _Doors) -> bool:
        """Write the waiting changes, oldest first; tell whether the store took them all.

        A read goes first, so that the store is tested even if nothing waits.
        """
        try:
            await self._write_change(doors, _READ)
            while self._changes:
                key, change = next(iter(self._changes.items()))
                await self._write_change(doors, change)
                with self._lock:
                    if self._changes.get(key) is change:  # else it changed again meanwhile
                        self._forget(key)
        except Exception as error:
            if not _is_outage(error):
                raise
            self.outage.begin(error)
            return False
        self.outage.end()
        return True

    async def _write_change(self, doors: _Doors, change: _Change) -> None:
        try:
            await doors.wait_for(change.make(doors))
        except DamagedRecord as error:
            log.warning("%s", error)


def shelter(store: Store, limits: StoreLimits = STANDARD, opening: int = 0) -> Store:
    """Return a store that memory replaces while it is away; a memory store unchanged."""
    if getattr(store, "is_sheltered", False) or store.url == MemoryStore.url:
        return store
    return Shelter(store, limits, opening=opening)


class ShelteredCheckpoints:
    """Records of compactions: the store's answer or, while it is away, the last known one."""

    def __init__(self, shelter: Shelter) -> None:
        self._shelter = shelter
        self._near = shelter.near.checkpoints

    def load(self, scope: str, prefixes: Sequence[str]) -> Checkpoint | None:
        """Return the checkpoint that holds under the first of `prefixes` that has one, or None."""
        if self._shelter.is_opening(prefixes):
            return self._near.load(scope, prefixes)
        return self._shelter.ask(self._load(scope, prefixes))

    async def aload(self, scope: str, prefixes: Sequence[str]) -> Checkpoint | None:
        """Do as `load`."""
        if self._shelter.is_opening(prefixes):
            return self._near.load(scope, prefixes)
        return await self._shelter.aask(self._load(scope, prefixes))

    def save(self, checkpoint: Checkpoint) -> Checkpoint:
        """Store a checkpoint unless its or a later generation is there; return the stored one."""
        return self._shelter.ask(self._save(checkpoint))

    async def asave(self, checkpoint: Checkpoint) -> Checkpoint:
        """Do as `save`."""
        return await self._shelter.aask(self._save(checkpoint))

    def save_measured(self, checkpoint: Checkpoint) -> None:
        """Replace a stored checkpoint by the same one with its measured size."""
        self._shelter.ask(self._save_measured(checkpoint))

    async def asave_measured(self, checkpoint: Checkpoint) -> None:
        """Do as `save_measured`."""
        await self._shelter.aask(self._save_measured(checkpoint))

    def undo(self, checkpoint: Checkpoint) -> bool:
        """Remove a checkpoint; the one stored before it under its prefix holds again."""
        return self._shelter.ask(self._undo(checkpoint))

    async def aundo(self, checkpoint: Checkpoint) -> bool:
        """Do as `undo`."""
        return await self._shelter.aask(self._undo(checkpoint))

    def all(self) -> list[Checkpoint]:
        """Return the current checkpoint of each policy and prefix, least recently used first."""
        return self._shelter.ask((lambda doors: doors.checkpoints.aall(), self._near.all))

    async def aall(self) -> list[Checkpoint]:
        """Do as `all`."""
        asked: Asked[list[Checkpoint]] = (lambda doors: doors.checkpoints.aall(), self._near.all)
        return await self._shelter.aask(asked)

    def _load(self, scope: str, prefixes: Sequence[str]) -> Asked[Checkpoint | None]:
        async def work(doors: _Doors) -> Checkpoint | None:
            found = await doors.checkpoints.aload(scope, prefixes)
            return None if found is None else self._learn(found)

        return work, lambda: self._near.load(scope, prefixes)

    def _save(self, checkpoint: Checkpoint) -> Asked[Checkpoint]:
        async def work(doors: _Doors) -> Checkpoint:
            return self._learn(await doors.checkpoints.asave(checkpoint))

        def near() -> Checkpoint:
            held = self._near.save(checkpoint)
            change = _Change(lambda doors: doors.checkpoints.asave(held))
            self._shelter.defer(("save", *_name(held)), change)
            return held

        return work, near

    def _save_measured(self, checkpoint: Checkpoint) -> Asked[None]:
        def near() -> None:
            self._near.save_measured(checkpoint)
            name = _name(checkpoint)
            if self._shelter.recall(("save", *name)):
                change = _Change(lambda doors: doors.checkpoints.asave(checkpoint))
                self._shelter.defer(("save", *name), change)
            else:
                change = _Change(lambda doors: doors.checkpoints.asave_measured(checkpoint))
                self._shelter.defer(("measured", *name), change)

        async def work(doors: _Doors) -> None:
            await doors.checkpoints.asave_measured(checkpoint)
            self._near.save_measured(checkpoint)

        return work, near

    def _undo(self, checkpoint: Checkpoint) -> Asked[bool]:
        async def work(doors: _Doors) -> bool:
            undone = await doors.checkpoints.aundo(checkpoint)
            self._near.undo(checkpoint)
            return undone

        def near() -> bool:
            name = _name(checkpoint)
            if not self._shelter.recall(("save", *name)):
                change = _Change(lambda doors: doors.checkpoints.aundo(checkpoint))
                self._shelter.defer(("undo", *name), change)
            return self._near.undo(checkpoint)

        return work, near

    def _learn(self, found: Checkpoint) -> Checkpoint:
        """Update memory with the store's answer, and return it."""
        held = self._near.save(found)
        if held.script != found.script:  # another one, saved while the store was away
            self._near.undo(held)
            self._near.save(found)
        return found


class ShelteredConversations:
    """State of conversations from call to call: in the store, or in memory while it is away."""

    def __init__(self, shelter: Shelter) -> None:
        self._shelter = shelter
        self._near = shelter.near.conversations

    def load(self, scope: str, prefixes: Sequence[str]) -> Conversation | None:
        """Return the state under the first of `prefixes` that has one, or None."""
        if self._shelter.is_opening(prefixes):
            return self._near.load(scope, prefixes)
        return self._shelter.ask(self._load(scope, prefixes))

    async def aload(self, scope: str, prefixes: Sequence[str]) -> Conversation | None:
        """Do as `load`."""
        if self._shelter.is_opening(prefixes):
            return self._near.load(scope, prefixes)
        return await self._shelter.aask(self._load(scope, prefixes))

    def save(self, conversation: Conversation) -> None:
        """Keep the state of a conversation; replace the old one under its prefix."""
        self._shelter.ask(self._save(conversation))

    async def asave(self, conversation: Conversation) -> None:
        """Do as `save`."""
        await self._shelter.aask(self._save(conversation))

    async def asave_all(self, conversations: Sequence[Conversation]) -> None:
        """Save several, together if the store can."""
        await self._shelter.aask(self._save(*conversations))

    def _load(self, scope: str, prefixes: Sequence[str]) -> Asked[Conversation | None]:
        return (
            lambda doors: doors.conversations.aload(scope, prefixes),
            lambda: self._near.load(scope, prefixes),
        )

    def _save(self, *conversations: Conversation) -> Asked[None]:
        async def work(doors: _Doors) -> None:
            for conversation in conversations:
                self._near.save(conversation)
            await save_together(doors.conversations, conversations)

        def near() -> None:
            for conversation in conversations:
                self._near.save(conversation)
                name = ("conversation", conversation.scope, conversation.prefix)
                self._shelter.defer(name, _Change(partial(_save_later, conversation)))

        return work, near


def _save_later(conversation: Conversation, doors: _Doors) -> Awaitable[None]:
    return doors.conversations.asave(conversation)


class ShelteredOriginals:
    """The texts that placeholders replace: in the store, or in memory while it is away."""

    def __init__(self, shelter: Shelter) -> None:
        self._shelter = shelter
        self._near = shelter.near.originals

    def keep(self, items: Mapping[str, str]) -> None:
        """Keep texts by their references. A known reference keeps its text."""
        self._shelter.ask(self._keep(items))

    async def akeep(self, items: Mapping[str, str]) -> None:
        """Do as `keep`."""
        await self._shelter.aask(self._keep(items))

    def read(self, reference: str) -> str | None:
        """Return the text of a reference, or None if it is unknown or gone."""
        return self._shelter.ask(self._read(reference))

    async def aread(self, reference: str) -> str | None:
        """Do as `read`."""
        return await self._shelter.aask(self._read(reference))

    def _keep(self, items: Mapping[str, str]) -> Asked[None]:
        def near() -> None:
            self._near.keep(items)
            change = _Change(
                lambda doors: doors.originals.akeep(items), sum(map(len, items.values()))
            )
            self._shelter.defer(("keep", *items), change)

        return lambda doors: doors.originals.akeep(items), near

    def _read(self, reference: str) -> Asked[str | None]:
        return lambda doors: doors.originals.aread(reference), lambda: self._near.read(reference)


class SearchedOriginals(ShelteredOriginals):
    """Originals of a store that can be searched."""

    def search(self, query: str, hits: int = HITS, area: SearchArea = EVERYWHERE) -> list[Hit]:
        """Return the passages that fit a query best; raises what `find_hits` raises."""
        beneath = cast("SearchesOriginals", self._shelter.beneath.originals)

        async def work(_: _Doors) -> list[Hit]:
            return beneath.search(query, hits, area)

        return self._shelter.ask((work, lambda: self._near.search(query, hits, area)))


def _is_outage(error: Exception) -> bool:
    """Tell whether an error means that the store is away."""
    return isinstance(error, StoreError) or not isinstance(error, UllageError)


def _name(checkpoint: Checkpoint) -> tuple[Any, ...]:
    return (checkpoint.scope, checkpoint.prefix, checkpoint.policy, checkpoint.generation)
