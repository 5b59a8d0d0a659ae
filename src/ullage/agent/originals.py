"""What was left out of a request, read back from the log of its session.

It knows neither guards nor how placeholders are written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from ullage.core.compaction.edits import reference
from ullage.core.session.log.fold import Branch, Round, User
from ullage.storage.threaded import SHARED

if TYPE_CHECKING:
    from ullage.core.session.log.fold import Fold, Item


class SessionOriginals:
    """What was left out, found in the log by its reference; the log lost nothing."""

    def __init__(self, fold: Callable[[], Fold]) -> None:
        self._fold = fold
        self._others: dict[str, str] = {}
        self._known: dict[str, str] = {}
        self._items = 0

    def keep(self, items: Mapping[str, str]) -> None:
        """Keep texts that the log may not have as they are."""
        self._others.update(items)

    async def aread(self, name: str) -> str | None:
        """Do as `read`, without blocking the event loop: it may read the log."""
        return await SHARED.reads.run(self.read, name)

    async def akeep(self, items: Mapping[str, str]) -> None:
        """Do as `keep`."""
        self.keep(items)

    def read(self, name: str) -> str | None:
        """Return the text of a reference, or None for an unknown one."""
        items = self._fold().items
        for item in items[max(self._items - 1, 0) :]:  # the last round may have grown
            self._known.update((reference(text), text) for text in _texts(item))
        self._items = len(items)
        found = self._known.get(name)
        return self._others.get(name) if found is None else found


def _texts(item: Item) -> Iterator[str]:
    if isinstance(item, User | Branch):
        yield item.text
    elif isinstance(item, Round):
        yield from item.texts
        for call in item.calls:
            yield call.arguments
            if call.result is not None:
                yield call.result.text
