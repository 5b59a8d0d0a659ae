"""All sources in one place: their rows, and details on request.

Threads read the sources, only while somebody looks, and less often while nothing changes.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from ullage.core.errors import UllageError
from ullage.live.feed import RowFeed
from ullage.live.source import LiveSource, UnknownConversation, Viewer
from ullage.live.values import GONE, CompactionReview, LiveMessage, SessionDetail
from ullage.threads import Threads

log = logging.getLogger("ullage.live")

SOONEST_S: Final = 0.5
LATEST_S: Final = 5.0
"""Seconds between two looks at a source: after a change, and after a long time without one."""

IDLE: Final = 50.0
"""Pause after a look, as a multiple of its duration: two per cent of a core."""

READING: Final = frozenset({"recall"})
"""Actions that answer with text of a conversation."""

BUSY: Final = 1.0
"""The same pause while a source has more to tell: half a core, until all was read once."""

LONGEST_S: Final = 30.0
"""The longest pause between two looks at a source, in seconds."""

STAYS_S: Final = 10.0
"""Seconds that sources are still read after the last viewer asked."""


class LiveDesk:
    """Reads sources while there are viewers; the rows are in `feed`.

    Create it in any thread, use it in one event loop, and close it in the end.
    """

    def __init__(self, sources: Sequence[LiveSource] = (), feed: RowFeed | None = None) -> None:
        self.feed = RowFeed() if feed is None else feed
        self.sources: dict[str, LiveSource] = {source.name: source for source in sources}
        self.is_closing = False
        self._threads = Threads("ullage-live", 2)
        self._asked = float("-inf")
        self._locks: dict[str, asyncio.Lock] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._looks: dict[str, asyncio.Task[tuple[int, float]]] = {}

    def wake(self) -> None:
        """Start reading the sources for a while; every viewer calls this again and again."""
        self._asked = time.monotonic()
        for name, source in self.sources.items():
            running = self._tasks.get(name)
            if running is None or running.done():
                self._tasks[name] = asyncio.create_task(self._watch(source))

    async def look(self) -> None:
        """Read every source once, now."""
        await asyncio.gather(*(self._look(source) for source in self.sources.values()))

    async def _watch(self, source: LiveSource) -> None:
        pause = SOONEST_S
        while not self.is_closing and time.monotonic() - self._asked < STAYS_S:
            changed, took = await self._look(source)
            pause = SOONEST_S if changed or source.is_behind else min(pause * 2, LATEST_S)
            rest = (BUSY if source.is_behind else IDLE) * took
            await asyncio.sleep(max(pause, min(rest, LONGEST_S)))

    async def _look(self, source: LiveSource) -> tuple[int, float]:
        """Take in a source's changes; return their number and the seconds that it took.

        A look runs to its end even if nobody waits for it any more, since a source reports each
        change only once.
        """
        running = self._looks.get(source.name)
        if running is None or running.done():
            running = self._looks[source.name] = asyncio.create_task(self._take_changes(source))
        return await asyncio.shield(running)

    async def _take_changes(self, source: LiveSource) -> tuple[int, float]:
        began = time.perf_counter()
        try:
            rows = await self._run(source, source.list_rows)
        except (UllageError, OSError) as error:
            log.warning("%s cannot be looked at: %s", source.name, error)
            return 0, 1.0
        for row in rows:
            if row.state == GONE:
                self.feed.drop(row.key)
            else:
                self.feed.put(row)
        return len(rows), time.perf_counter() - began

    async def _run(self, source: LiveSource, call: Any, *arguments: Any, **named: Any) -> Any:
        async with self._locks.setdefault(source.name, asyncio.Lock()):
            return await self._threads.run(lambda: call(*arguments, **named))

    def _find(self, key: str, viewer: Viewer) -> tuple[LiveSource, str]:
        """Return the source of a conversation and its name there; raises UnknownConversation.

        A conversation that a viewer may not see is unknown to them.
        """
        kind, _, name = key.partition("/")
        source, row = self.sources.get(kind), self.feed.get(key)
        if source is None or row is None or not viewer.sees(row):
            raise UnknownConversation(
                f"no conversation is called {key:.80}: / lists those there are"
            )
        return source, name

    async def read_detail(self, key: str, viewer: Viewer) -> SessionDetail:
        """Return all data about a conversation that this viewer may see."""
        source, name = self._find(key, viewer)
        found: SessionDetail = await self._run(source, source.read_detail, name, reads=viewer.reads)
        if not viewer.is_operator:
            found = replace(found, can=frozenset())
        return replace(found, session=viewer.trim(found.session))

    async def review(self, key: str, number: int, viewer: Viewer) -> CompactionReview:
        """Return a compaction as a change, with as much text as this viewer may read."""
        source, name = self._find(key, viewer)
        found: CompactionReview = await self._run(
            source, source.review, name, number, reads=viewer.reads
        )
        return found

    async def list_messages(self, key: str, viewer: Viewer) -> Sequence[LiveMessage]:
        """Return the messages of a conversation; raises PermissionError if text is forbidden."""
        source, name = self._find(key, viewer)
        if not viewer.reads:
            raise PermissionError("text of conversations is not shown here")
        found: Sequence[LiveMessage] = await self._run(source, source.list_messages, name)
        return found

    async def act(
        self, key: str, action: str, options: dict[str, Any], viewer: Viewer
    ) -> dict[str, Any]:
        """Do an operator's action; raises PermissionError for anybody else."""
        source, name = self._find(key, viewer)
        if not viewer.is_operator:
            raise PermissionError("only an operator may change a conversation")
        if action in READING and not viewer.reads:
            raise PermissionError("text of conversations is not shown here")
        done: dict[str, Any] = await self._run(source, source.act, name, action, options)
        await self._look(source)
        return done

    async def aclose(self) -> None:
        """Stop all looks and close the sources."""
        self.is_closing = True
        running = [*self._tasks.values(), *self._looks.values()]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        for source in self.sources.values():
            source.close()
