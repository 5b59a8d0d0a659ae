"""What was left out of a request, read back from the log of its session, or found there.

It knows neither guards nor how placeholders are written.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ullage.core.compaction.edits import reference
from ullage.core.errors import StoreError
from ullage.core.search.ranking import EVERYWHERE, HITS, Hit, SearchArea
from ullage.core.session.log.fold import Branch, FailedUser, Round, User
from ullage.core.session.originals import read_originals
from ullage.storage.searching import search_log
from ullage.storage.threaded import SHARED

if TYPE_CHECKING:
    from ullage.core.compaction.checkpoint import Checkpoint
    from ullage.core.session.log.fold import Fold, Item
    from ullage.storage.log import EventLog


class SessionOriginals:
    """What was left out, found in the log by its reference; the log lost nothing.

    `find_other` gives those of another session of the log: of one that this one goes on from.
    """

    def __init__(
        self,
        session: str,
        log: EventLog,
        fold: Callable[[], Fold],
        find_other: Callable[[str], SessionOriginals | None],
    ) -> None:
        self._session, self._log = session, log
        self._fold = fold
        self._find_other = find_other
        self._unrecorded: dict[str, str] = {}
        self._known: dict[str, str] = {}
        self._items = self._compactions = 0

    def keep(self, items: Mapping[str, str]) -> None:
        """Keep texts until they are recorded with the compaction that names them."""
        self._unrecorded.update(items)

    async def aread(self, name: str) -> str | None:
        """Do as `read`, without blocking the event loop: it may read the log."""
        return await SHARED.reads.run(self.read, name)

    async def akeep(self, items: Mapping[str, str]) -> None:
        """Do as `keep`."""
        self.keep(items)

    def take_unrecorded(self, fold: Fold, checkpoint: Checkpoint) -> dict[str, str]:
        """Return the texts that a checkpoint names and the log has nowhere: they go along with it.

        `fold` is what the log holds.
        """
        self._learn(fold)
        named = json.dumps(checkpoint.script.to_list())
        kept = {name: text for name, text in self._unrecorded.items() if name in named}
        for name in kept:
            del self._unrecorded[name]
        lacking = {name: text for name, text in kept.items() if name not in self._known}
        self._known.update(lacking)
        return lacking

    def _learn(self, fold: Fold) -> None:
        """Take in what the log has beyond what was seen."""
        for item in fold.items[max(self._items - 1, 0) :]:  # the last round may have grown
            self._known.update((reference(text), text) for text in _texts(item))
            if isinstance(item, Branch):
                self._known.update(read_originals(item.link))
        for data in fold.compactions[self._compactions :]:
            self._known.update(read_originals(data))
        self._items, self._compactions = len(fold.items), len(fold.compactions)

    def read(self, name: str) -> str | None:
        """Return the text of a reference, or None for an unknown one.

        It may stand in the session that this one goes on from, or in one further back.
        """
        found = (other.find(name) for _, other in self._list_all())
        return next((text for text in found if text is not None), None)

    def _list_all(self) -> Iterator[tuple[str, SessionOriginals]]:
        """Yield this session's, as "", then those of the sessions that it goes on from, by name."""
        yield "", self
        seen, left = set[str](), self.list_parents()
        while left:
            parent = left.pop()
            other = None if parent in seen else self._find_other(parent)
            seen.add(parent)
            if other is not None:
                yield parent, other
                left += other.list_parents()

    def list_left_out(self) -> dict[str, int]:
        """Return the sessions that something was left out of, and the last event of it in each.

        What a session goes on from was left out whole; its own name is "".
        """
        found = {name: other.head for name, other in self._list_all() if name}
        fold = self._fold()
        spans = [d["events"] for d in fold.compactions if "events" in d and not d.get("undone")]
        if fold.checkpoints and spans:
            found[""] = spans[-1][1]
        return found

    def search(self, query: str, hits: int = HITS, area: SearchArea = EVERYWHERE) -> list[Hit]:
        """Return the passages that fit a query best; raises what `find_hits` raises."""
        left_out = self.list_left_out()
        sessions = {name or self._session: upto for name, upto in left_out.items()}
        return search_log(self._log, query, hits, replace(area, sessions=sessions))

    @property
    def head(self) -> int:
        """The last event of this session."""
        return self._fold().head

    def find(self, name: str) -> str | None:
        """Return the text of a reference that this session itself has, or None."""
        self._learn(self._fold())
        return self._known.get(name, self._unrecorded.get(name))

    def list_parents(self) -> list[str]:
        """Return the sessions that this one goes on from."""
        found = (item.link.get("parent") for item in self._fold().items if isinstance(item, Branch))
        return [parent for parent in found if isinstance(parent, str)]


class SessionPast:
    """What was left out of a session, for its tools."""

    def __init__(self, session: str, originals: SessionOriginals) -> None:
        self._session, self._originals = session, originals

    def read(self, reference: str) -> str:
        """Return the text of a reference; raises StoreError for an unknown one."""
        text = self._originals.read(reference)
        if text is None:
            raise StoreError(f"session {self._session} holds no text for {reference!r:.80}")
        return text

    def search(self, query: str, hits: int) -> list[Hit]:
        """Return the passages that fit a query best, of those that were left out."""
        return self._originals.search(query, hits)


def _texts(item: Item) -> Iterator[str]:
    if isinstance(item, User | FailedUser | Branch):
        yield item.text
    elif isinstance(item, Round):
        yield from item.texts
        for call in item.calls:
            yield call.arguments
            if call.result is not None:
                yield call.result.text
