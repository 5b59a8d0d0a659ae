"""The stream of changes: each viewer gets the conversations that changed since the last look.

Sources put rows in, from any thread. Viewers ask with the number of the last change that they know,
so a slow viewer gets the newest state and delays nobody. The feed keeps no text except that of the
rows.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import NamedTuple

from ullage.core.errors import ConfigurationError
from ullage.live.values import LiveSession

MOST = 5_000
"""Most conversations that are kept; the one that changed longest ago is dropped first."""


class Changes(NamedTuple):
    """Changes: the number to ask with next time, new rows, and removed keys.

    `whole` says that these are all rows: the viewer must forget the earlier ones.
    """

    version: int
    rows: list[LiveSession]
    gone: list[str]
    whole: bool


class LateRow:
    """A row that is drawn only when somebody looks at it, which is seldom.

    `draw` may be called in any thread, and returns the state at that moment.
    """

    __slots__ = ("_draw", "_row")

    def __init__(self, draw: Callable[[], LiveSession]) -> None:
        self._draw = draw
        self._row: LiveSession | None = None

    def read(self) -> LiveSession:
        """Return the row."""
        row = self._row
        if row is None:
            row = self._row = self._draw()
        return row


class RowFeed:
    """Keeps the newest rows and the order of their changes. Safe to share between threads."""

    def __init__(self, most: int = MOST) -> None:
        if most < 1:
            raise ConfigurationError(f"a feed keeps at least one conversation, not {most}")
        self._most = most
        self._rows: dict[str, tuple[int, LiveSession | LateRow]] = {}
        self._gone: dict[str, int] = {}
        self._since = 0  # earlier changes are unknown
        self._version = 0
        self._lock = threading.Lock()

    @property
    def version(self) -> int:
        """The number of the last change."""
        return self._version

    def put(self, row: LiveSession) -> None:
        """Put a row in place of the last one of its key; an equal row is no change."""
        with self._lock:
            held = self._rows.get(row.key)
            if held is not None and held[1] == row:
                return
            self._take(row.key, row)

    def put_late(self, key: str, row: LateRow) -> None:
        """Note that the row of a key has changed; it is drawn when somebody looks."""
        with self._lock:
            self._take(key, row)

    def _take(self, key: str, row: LiveSession | LateRow) -> None:
        self._rows.pop(key, None)
        self._gone.pop(key, None)
        self._version += 1
        self._rows[key] = (self._version, row)
        while len(self._rows) > self._most:
            self._leave(next(iter(self._rows)))

    def drop(self, key: str) -> None:
        """Forget a conversation."""
        with self._lock:
            if key in self._rows:
                self._leave(key)

    def get(self, key: str) -> LiveSession | None:
        """Return a row by its key, or None."""
        held = self._rows.get(key)
        return None if held is None else _read(held[1])

    def list_rows(self) -> list[LiveSession]:
        """Return all rows, the most recently changed one first."""
        with self._lock:
            held = [row for _, row in reversed(self._rows.values())]
        return [_read(row) for row in held]

    def list_changes(self, since: int = 0) -> Changes:
        """Return the changes after change `since`, or all rows if that is too long ago."""
        with self._lock:
            whole = since < self._since or since == 0 or since > self._version
            held = list(self._find_newer(0 if whole else since))
            gone = [] if whole else [key for key, at in self._gone.items() if at > since]
            version = self._version
        return Changes(version, [_read(row) for row in held], gone, whole)

    def _find_newer(self, since: int) -> Iterator[LiveSession | LateRow]:
        for at, row in reversed(self._rows.values()):
            if at <= since:
                return
            yield row

    def _leave(self, key: str) -> None:
        del self._rows[key]
        self._version += 1
        self._gone[key] = self._version
        while len(self._gone) > self._most:
            self._since = self._gone.pop(next(iter(self._gone)))


def _read(row: LiveSession | LateRow) -> LiveSession:
    return row.read() if isinstance(row, LateRow) else row
