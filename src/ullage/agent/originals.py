"""Text that was left out of a request, read or searched in the log of its session.

The module does not know guards, or how placeholders are written.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ullage.core.compaction.edits import reference
from ullage.core.errors import StoreError
from ullage.core.search.ranking import EVERYWHERE, HITS, Hit, SearchArea
from ullage.core.session.log.fold import Branch, FailedUser, Round, User
from ullage.core.session.originals import find_original, find_parents, read_originals
from ullage.storage.pieces import read_pieces
from ullage.storage.searching import search_log
from ullage.storage.threaded import SHARED

if TYPE_CHECKING:
    from ullage.core.compaction.checkpoint import Checkpoint
    from ullage.core.session.log.fold import Fold, Item
    from ullage.storage.log import EventLog

BEGINNING: Final = 2
"""Events that tell what a session continues: its creation, and the summary after it."""


class SessionOriginals:
    """Left-out text, found in the log by its reference; the log has lost nothing.

    The text of a session that this one continues is read from the log, in pieces.
    """

    def __init__(self, session: str, log: EventLog, fold: Callable[[], Fold]) -> None:
        self._session, self._log = session, log
        self._fold = fold
        self._unrecorded: dict[str, str] = {}
        self._known: dict[str, str] = {}
        self._items = self._compactions = 0

    def keep(self, items: Mapping[str, str]) -> None:
        """Keep texts until they are recorded with the compaction that names them."""
        self._unrecorded.update(items)

    async def aread(self, name: str) -> str | None:
        """Do the same as `read` without blocking the event loop, since it may read the log."""
        return await SHARED.reads.run(self.read, name)

    async def akeep(self, items: Mapping[str, str]) -> None:
        """Do the same as `keep`."""
        self.keep(items)

    def take_unrecorded(self, fold: Fold, checkpoint: Checkpoint) -> dict[str, str]:
        """Return the texts that a checkpoint names but the log lacks: they are recorded with it.

        `fold` is the state of the log.
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
        """Take in the new parts of the log."""
        for item in fold.items[max(self._items - 1, 0) :]:  # the last round may have grown
            self._known.update((reference(text), text) for text in _texts(item))
            if isinstance(item, Branch):
                self._known.update(read_originals(item.link))
        for data in fold.compactions[self._compactions :]:
            self._known.update(read_originals(data))
        self._items, self._compactions = len(fold.items), len(fold.compactions)

    def read(self, name: str) -> str | None:
        """Return the text of a reference, or None for an unknown one.

        It may be in the session that this one continues, or further back.
        """
        found = self._find(name)
        if found is not None:
            return found
        parents = (self._find_in(parent, name) for parent in self._walk_parents())
        return next((text for text in parents if text is not None), None)

    def _find_in(self, parent: str, name: str) -> str | None:
        """Return the text of a reference in another session, or None."""
        try:
            pieces = (find_original(piece, name) for piece in read_pieces(self._log, parent))
            return next((text for text in pieces if text is not None), None)
        except StoreError:
            return None  # an unreadable session does not hide the others

    def _walk_parents(self) -> Iterator[str]:
        """Yield the sessions of the log that this one continues, the nearest first.

        Only the beginning of each is read.
        """
        items = self._fold().items
        links = (item.link.get("parent") for item in items if isinstance(item, Branch))
        seen, left = {self._session}, [parent for parent in links if isinstance(parent, str)]
        while left:
            parent = left.pop()
            if parent in seen:
                continue
            seen.add(parent)
            try:
                begun = self._log.read(parent, upto=BEGINNING)
            except StoreError:
                continue
            yield parent
            left += find_parents(begun)

    def list_left_out(self) -> dict[str, int]:
        """Return the sessions with left-out text, and the last left-out event of each.

        A continued session was left out whole; this session's own name is "".
        """
        found = {name: self._log.head(name).seq for name in self._walk_parents()}
        fold = self._fold()
        spans = [d["events"] for d in fold.compactions if "events" in d and not d.get("undone")]
        if fold.checkpoints and spans:
            found[""] = spans[-1][1]
        return found

    def search(self, query: str, hits: int = HITS, area: SearchArea = EVERYWHERE) -> list[Hit]:
        """Return the passages that fit a query best; raises the errors of `find_hits`."""
        left_out = self.list_left_out()
        sessions = {name or self._session: upto for name, upto in left_out.items()}
        return search_log(self._log, query, hits, replace(area, sessions=sessions))

    def _find(self, name: str) -> str | None:
        """Return the text of a reference in this session, or None."""
        self._learn(self._fold())
        return self._known.get(name, self._unrecorded.get(name))


class SessionPast:
    """The left-out text of a session, for its tools."""

    def __init__(self, session: str, originals: SessionOriginals) -> None:
        self._session, self._originals = session, originals

    def read(self, reference: str) -> str:
        """Return the text of a reference; raises StoreError for an unknown one."""
        text = self._originals.read(reference)
        if text is None:
            raise StoreError(f"session {self._session} holds no text for {reference!r:.80}")
        return text

    def search(self, query: str, hits: int) -> list[Hit]:
        """Return the left-out passages that fit a query best."""
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
