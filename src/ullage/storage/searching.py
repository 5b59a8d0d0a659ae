"""Searches the sessions of a log, after it has indexed the events since the last search.

A log that keeps an index has it as `passages`. For any other log, and for a read-only one, each
search reads the events again.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Final

from ullage.core.errors import StoreError
from ullage.core.search.index import GrowingIndex, MemoryIndex
from ullage.core.search.ranking import EVERYWHERE, HITS, Hit, SearchArea, find_hits
from ullage.core.session.originals import list_sources
from ullage.storage.protocol import ReadOnlyStore

if TYPE_CHECKING:
    from ullage.storage.log import EventLog

BATCH: Final = 500
"""Events indexed at once, so that other writers wait only briefly."""

_GROWING: Final = threading.Lock()
"""Held while an index in memory grows or is searched."""


def search_log(
    log: EventLog, query: str, hits: int = HITS, area: SearchArea = EVERYWHERE
) -> list[Hit]:
    """Return the passages of sessions that fit a query best, with `session` and reference.

    Raises what `find_hits` raises, and StoreError if the log cannot be read.
    """
    index: GrowingIndex = getattr(log, "passages", None) or MemoryIndex()
    with _GROWING if isinstance(index, MemoryIndex) else nullcontext():
        try:
            _take_events(log, index, area.sessions)
        except ReadOnlyStore:  # its index cannot grow, but one in memory can
            similar, index = index.similar, MemoryIndex()
            index.similar = similar
            _take_events(log, index, area.sessions)
        return find_hits(index, query, hits, area)


def _take_events(log: EventLog, index: GrowingIndex, wanted: Mapping[str, int] | None) -> None:
    reached = index.list_reached()
    for session, head in _list_heads(log, wanted):
        upto = reached.get(session, 0)
        while upto < head:
            end = min(upto + BATCH, head)
            try:
                events = log.read(session, upto, end)
            except StoreError:
                break  # an unreadable session does not hide the others
            index.take(session, list_sources(events), end)
            upto = end


def _list_heads(log: EventLog, wanted: Mapping[str, int] | None) -> Iterator[tuple[str, int]]:
    """Yield the sessions to search, and the last event of each."""
    if wanted is None:
        yield from ((head.session, head.seq) for head in log.sessions())
        return
    for session, upto in wanted.items():
        yield session, min(upto, log.head(session).seq)
