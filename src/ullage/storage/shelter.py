"""A store that may be away: asked with a deadline, stood in for by memory, caught up with later.

What is in a store is a cache of what could be made again: that it is away is never a reason not to
compact. While it is, memory answers at once; what changed is written when it is back. It knows no
engine and no requests.
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
"""Seconds after a failure until the store is tried again; twice as long each time."""

LONGEST_S: Final = 30.0

NEAR: Final = 1_000
"""Records of each kind that memory holds."""

MOST: Final = 10_000
"""Changes that wait for the store to be back; of more, the oldest are given up."""

CHARACTERS: Final = 64 * 1024 * 1024
"""Characters of originals among them."""


@dataclass(frozen=True, slots=True)
class _Doors:
    """The three parts of a store, whether its calls block the caller, or threads of ours."""

    checkpoints: AsyncCheckpoints
    conversations: AsyncConversations
    originals: AsyncOriginals
    blocking: bool

    def wait_for(self, asked: Awaitable[Result]) -> Awaitable[Result]:
        """Return the answer; raises TimeoutError beyond `ANSWER_S` where nobody is blocked."""
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
    """A change that waits: what makes it, and the characters that it holds."""

    make: Callable[[_Doors], Awaitable[Any]]
    characters: int = 0


_READ: Final = _Change(lambda doors: doors.checkpoints.aload("", ("",)))
"""No change: what a store that is back can answer."""

Asked = tuple[Callable[[_Doors], Awaitable[Result]], Callable[[], Result]]
"""What a store is asked, and what memory says where it is away."""


class Outage:
    """Whether a store is away, and when it is tried again. Safe to share between threads."""

    def __init__(self, name: str, now: Callable[[], float] = time.monotonic) -> None:
        self._name, self._now = name, now
        self._lock = threading.Lock()
        self._since: float | None = None
        self._again = 0.0
        self._pause_s = FIRST_S

    @property
    def lasts_s(self) -> float | None:
        """Seconds since the store went away, None where it is there."""
        since = self._since
        return None if since is None else self._now() - since

    @property
    def pause_s(self) -> float:
        """Seconds until the store is to be tried again."""
        return max(self._again - self._now(), 0.0)

    def begin(self, error: Exception) -> None:
        """Note that the store failed; of each outage one line is logged."""
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
        """Note that the store is there again."""
        lasted = self.lasts_s
        if lasted is not None:
            self._since = None
            log.warning("the store is back after %.1f s: %s", lasted, self._name)


class Shelter(Unpicklable):
    """A `Store` over one that may be away. Safe to share between threads and event loops.

    The `a...` methods wait `ANSWER_S` seconds for the store, once; then memory answers until the
    store is back. Of what changed meanwhile `MOST` changes are kept and written then.

    Under `opening` prefixes or fewer a conversation begins: memory alone is asked of it.
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
        """What opens the store."""
        return self.beneath.url

    @property
    def backlog(self) -> int:
        """How many changes wait for the store to be back."""
        return len(self._changes)

    def purge(self, now: float) -> int:
        """Forget what is out of time; return how much."""
        return self.near.purge(now) + self.beneath.purge(now)

    def close(self) -> None:
        """Write what waits, where the store is back, and close it."""
        if self._changes and not self.outage.pause_s:
            run_at_once(self._write_changes(self._blocking))
        if self._changes:
            log.warning("%d changes were not written: the store is away", len(self._changes))
        self.near.close()
        self.beneath.close()

    async def settle(self) -> None:
        """Write what waits for the store, if it is there."""
        if self._changes:
            await self._write_changes(self._awaited)

    def is_opening(self, prefixes: Sequence[str]) -> bool:
        """Tell whether a conversation is at its beginning by the prefixes of its history."""
        return len(prefixes) <= self.opening

    # --- for its three parts --------------------------------------------------------------------

    def ask(self, asked: Asked[Result]) -> Result:
        """Return what the store answers, blocking; while it is away, what memory does."""
        return run_at_once(self._ask(self._blocking, *asked))

    async def aask(self, asked: Asked[Result]) -> Result:
        """Do as `ask`, without blocking the event loop, for a bounded time."""
        return await self._ask(self._awaited, *asked)

    def defer(self, key: tuple[Any, ...], change: _Change) -> None:
        """Keep a change until the store is back, in the place of an earlier one of its key."""
        with self._lock:
            self._forget(key)
            self._changes[key] = change
            self._characters += change.characters
            while len(self._changes) > MOST or self._characters > CHARACTERS:
                self._forget(next(iter(self._changes)))

    def recall(self, key: tuple[Any, ...]) -> bool:
        """Give a change up that waits; tell whether there was one."""
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
                self._give_up_changes()  # what is damaged takes no change
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
        """Tell whether the store is there again: a thread tries it, an event loop has a task."""
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
        """Write what waits, oldest first; tell whether the store took all of it.

        Where nothing waits, something is read in its place.
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
    """Return a store that memory stands in for while it is away; one in memory as it is."""
    if getattr(store, "is_sheltered", False) or store.url == MemoryStore.url:
        return store
    return Shelter(store, limits, opening=opening)


class ShelteredCheckpoints:
    """Records of compactions: what the store says; while it is away, what it said last."""

    def __init__(self, shelter: Shelter) -> None:
        self._shelter = shelter
        self._near = shelter.near.checkpoints

    def load(self, scope: str, prefixes: Sequence[str]) -> Checkpoint | None:
        """Return what holds under the first of `prefixes` that has something, or None."""
        if self._shelter.is_opening(prefixes):
            return self._near.load(scope, prefixes)
        return self._shelter.ask(self._load(scope, prefixes))

    async def aload(self, scope: str, prefixes: Sequence[str]) -> Checkpoint | None:
        """Do as `load`."""
        if self._shelter.is_opening(prefixes):
            return self._near.load(scope, prefixes)
        return await self._shelter.aask(self._load(scope, prefixes))

    def save(self, checkpoint: Checkpoint) -> Checkpoint:
        """Store a checkpoint unless one of its generation is there; return what is stored."""
        return self._shelter.ask(self._save(checkpoint))

    async def asave(self, checkpoint: Checkpoint) -> Checkpoint:
        """Do as `save`."""
        return await self._shelter.aask(self._save(checkpoint))

    def save_measured(self, checkpoint: Checkpoint) -> None:
        """Replace a stored checkpoint by one that carries its measured size."""
        self._shelter.ask(self._save_measured(checkpoint))

    async def asave_measured(self, checkpoint: Checkpoint) -> None:
        """Do as `save_measured`."""
        await self._shelter.aask(self._save_measured(checkpoint))

    def undo(self, checkpoint: Checkpoint) -> bool:
        """Take a checkpoint away: what was stored under its prefix before it holds again."""
        return self._shelter.ask(self._undo(checkpoint))

    async def aundo(self, checkpoint: Checkpoint) -> bool:
        """Do as `undo`."""
        return await self._shelter.aask(self._undo(checkpoint))

    def all(self) -> list[Checkpoint]:
        """Return the checkpoint that holds of each policy and prefix, used longest ago first."""
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
        """Have memory say what the store says; return that."""
        held = self._near.save(found)
        if held.script != found.script:  # another's, from while the store was away
            self._near.undo(held)
            self._near.save(found)
        return found


class ShelteredConversations:
    """What is remembered from call to call: in the store; while it is away, in memory."""

    def __init__(self, shelter: Shelter) -> None:
        self._shelter = shelter
        self._near = shelter.near.conversations

    def load(self, scope: str, prefixes: Sequence[str]) -> Conversation | None:
        """Return what is kept under the first of `prefixes` that has something, or None."""
        if self._shelter.is_opening(prefixes):
            return self._near.load(scope, prefixes)
        return self._shelter.ask(self._load(scope, prefixes))

    async def aload(self, scope: str, prefixes: Sequence[str]) -> Conversation | None:
        """Do as `load`."""
        if self._shelter.is_opening(prefixes):
            return self._near.load(scope, prefixes)
        return await self._shelter.aask(self._load(scope, prefixes))

    def save(self, conversation: Conversation) -> None:
        """Keep the state of a conversation in place of what was kept under its prefix."""
        self._shelter.ask(self._save(conversation))

    async def asave(self, conversation: Conversation) -> None:
        """Do as `save`."""
        await self._shelter.aask(self._save(conversation))

    async def asave_all(self, conversations: Sequence[Conversation]) -> None:
        """Save several, at once where the store can."""
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
    """The texts that placeholders stand for: in the store; while it is away, in memory."""

    def __init__(self, shelter: Shelter) -> None:
        self._shelter = shelter
        self._near = shelter.near.originals

    def keep(self, items: Mapping[str, str]) -> None:
        """Keep texts by their references. A reference that is known keeps its text."""
        self._shelter.ask(self._keep(items))

    async def akeep(self, items: Mapping[str, str]) -> None:
        """Do as `keep`."""
        await self._shelter.aask(self._keep(items))

    def read(self, reference: str) -> str | None:
        """Return the text of a reference, or None where there is none (any more)."""
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
    """Those of a store that can be searched."""

    def search(self, query: str, hits: int = HITS, area: SearchArea = EVERYWHERE) -> list[Hit]:
        """Return the passages that fit a query best; raises what `find_hits` raises."""
        beneath = cast("SearchesOriginals", self._shelter.beneath.originals)

        async def work(_: _Doors) -> list[Hit]:
            return beneath.search(query, hits, area)

        return self._shelter.ask((work, lambda: self._near.search(query, hits, area)))


def _is_outage(error: Exception) -> bool:
    """Tell whether an error says that the store is away, and nothing else."""
    return isinstance(error, StoreError) or not isinstance(error, UllageError)


def _name(checkpoint: Checkpoint) -> tuple[Any, ...]:
    return (checkpoint.scope, checkpoint.prefix, checkpoint.policy, checkpoint.generation)
