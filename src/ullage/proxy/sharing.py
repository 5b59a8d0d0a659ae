"""Small records that replicas of a proxy share through their store, written in the background.

Each replica writes its lessons soon after it learns them. It reads the records of others by name if
it does not know something itself, and looks for new ones every `LOOK_S` seconds. No request waits
for a write. If the store is away or shares nothing, each replica uses only its own data and answers
all the same. The module does not know topics.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ullage.core.errors import StoreError
from ullage.storage.notes import Notes, SharedNote, notes_of
from ullage.storage.patience import wait_for_answer
from ullage.storage.threaded import SHARED, Desk, desk_of

if TYPE_CHECKING:
    from ullage.storage import Store
    from ullage.threads import Threads

log = logging.getLogger("ullage.proxy")

LOOK_S: Final = 0.5
"""Seconds between two looks at the topics that are listened to."""

MOST: Final = 10_000
"""Records that wait to be written; beyond that, the oldest are dropped."""

AT_ONCE: Final = 500
"""Records that are written in one transaction."""

AWAY_S: Final = 5.0
"""Seconds after a failure in which nothing is looked up in the store."""

Hear = Callable[[str, str, Mapping[str, Any]], None]
"""Takes in a record of another replica: scope, name, value."""

Key = tuple[str, str, str]
Result = TypeVar("Result")


class Sharing:
    """The shared records of one proxy. `tell` from any thread, all else in its event loop."""

    def __init__(self) -> None:
        self._notes: Notes | None = None
        self._desk: Desk = SHARED
        self._waiting: OrderedDict[Key, SharedNote] = OrderedDict()
        self._heard: dict[str, int] = {}
        self._listeners: dict[str, Hear] = {}
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._woken = asyncio.Event()
        self._away_until = 0.0

    @property
    def is_on(self) -> bool:
        """True if it was begun with a store that shares records."""
        return self._notes is not None

    @property
    def backlog(self) -> int:
        """Number of records that wait to be written."""
        return len(self._waiting)

    def listen(self, topic: str, hear: Hear) -> None:
        """Pass the records that others write for a topic to `hear`."""
        self._listeners[topic] = hear

    def tell(self, topic: str, scope: str, name: str, value: Mapping[str, Any]) -> None:
        """Write a record soon, replacing a waiting one of the same name."""
        if self._notes is None:
            return
        note = SharedNote(topic, scope, name, value)
        with self._lock:
            self._waiting.pop((topic, scope, name), None)
            self._waiting[topic, scope, name] = note
            if len(self._waiting) > MOST:
                self._waiting.popitem(last=False)
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed: the process ends
                self._loop.call_soon_threadsafe(self._woken.set)

    async def find(self, topic: str, scope: str, name: str) -> Mapping[str, Any] | None:
        """Return the newest value of a record, or None if it cannot be found.

        It waits at most one second for the store.
        """
        notes = self._notes
        if notes is None:
            return None
        with self._lock:
            mine = self._waiting.get((topic, scope, name))
        if mine is not None:
            return mine.value
        return await self._ask(self._desk.reads, partial(notes.read, topic, scope, name))

    async def begin(self, store: Store) -> None:
        """Take in the records of others so far, and go on writing and looking until `aclose`."""
        self._notes, self._desk = notes_of(store), desk_of(store)
        if self._notes is None or self._task is not None:
            return
        self._loop, self._woken, self._away_until = asyncio.get_running_loop(), asyncio.Event(), 0.0
        await self._look()
        self._begin_task()

    async def aclose(self) -> None:
        """Stop looking, and write the pending records as far as the store accepts them."""
        task, self._task, self._loop = self._task, None, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})
        while self._waiting and await self._write():
            continue
        self._notes = None

    async def _go_on(self) -> None:
        loop, looked = asyncio.get_running_loop(), 0.0
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._woken.wait()
            self._woken.clear()
            while self._waiting and await self._write():
                continue
            if loop.time() - looked >= LOOK_S:
                looked = loop.time()
                await self._look()

    def _go_on_later(self, task: asyncio.Task[None]) -> None:
        """Begin anew after a fault of a listener or of the store."""
        if task is self._task and self._loop is not None and not task.cancelled():
            log.error("could not send to or receive from the replicas", exc_info=task.exception())
            self._loop.call_later(LOOK_S, self._begin_task)

    def _begin_task(self) -> None:
        if self._loop is not None:
            self._task = self._loop.create_task(self._go_on())
            self._task.add_done_callback(self._go_on_later)

    async def _write(self) -> bool:
        """Write some pending records; tell whether the store accepted them."""
        notes = self._notes
        assert notes is not None  # noqa: S101 - without them nothing waits
        with self._lock:
            some = list(self._waiting.items())[:AT_ONCE]
        done = await self._ask(self._desk.writes, partial(_write, notes, [n for _, n in some]))
        if not done:
            return False
        with self._lock:
            for key, note in some:
                if self._waiting.get(key) is note:  # else it changed meanwhile
                    del self._waiting[key]
        return True

    async def _look(self) -> None:
        """Take in the records that were written since the last look."""
        notes = self._notes
        assert notes is not None  # noqa: S101 - nobody looks without them
        for topic, hear in self._listeners.items():
            turn = self._heard.get(topic, 0)
            found = await self._ask(self._desk.reads, partial(notes.list_since, topic, turn))
            if found is None:
                return
            self._heard[topic] = found[0]
            for note in found[1]:
                self._take(hear, note)

    def _take(self, hear: Hear, note: SharedNote) -> None:
        with self._lock:
            if (note.topic, note.scope, note.name) in self._waiting:
                return  # this replica has a newer record, which the others hear next
        try:
            hear(note.scope, note.name, note.value)
        except (KeyError, TypeError, ValueError) as error:
            log.warning("a shared record of %s cannot be read: %s", note.topic, error)

    async def _ask(self, threads: Threads, work: Callable[[], Result]) -> Result | None:
        """Return the store's answer, or None if it fails or is late."""
        loop = asyncio.get_running_loop()
        if loop.time() < self._away_until:
            return None
        try:
            answer = await wait_for_answer(threads.run(work))
        except (StoreError, TimeoutError) as error:
            log.info("shared records cannot be reached: %s", str(error) or "no answer in time")
            self._away_until = loop.time() + AWAY_S
            return None
        self._away_until = 0.0
        return answer


def _write(notes: Notes, some: list[SharedNote]) -> bool:
    notes.write(some)
    return True
