"""The proxy's data about conversations, for the pages that show them, without any text.

A bounded table by id, from which the entry not heard of for the longest time is dropped first. The
module does not know requests.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Final

from ullage.core.errors import ConfigurationError

MOST: Final = 1_000


@dataclass(frozen=True, slots=True)
class Entry:
    """A conversation after its last request.

    `id` is 16 hex digits of scope and first message, or the client's own `x-ullage-session`; `at`
    is Unix seconds. `used` and `window` are tokens, None if unknown; `basis` is the source of the
    count. `compactions` and `saved` (tokens) are totals so far, `requests` is the number sent,
    `last_status` the HTTP status of the last answer, 499 if the client left before it began.
    `owner` is the name of the token that it came with, or "".
    """

    id: str
    upstream: str
    model: str
    dialect: str
    at: float
    used: int | None = None
    window: int | None = None
    tier: str = "unavailable"
    basis: str = ""
    messages: int = 0
    compactions: int = 0
    saved: int = 0
    requests: int = 1
    last_status: int = 0
    owner: str = ""


class Ledger:
    """Keeps the newest entries. Safe to share between threads."""

    def __init__(self, most: int = MOST) -> None:
        if most < 1:
            raise ConfigurationError(f"a ledger keeps at least one conversation, not {most}")
        self._most = most
        self._entries: dict[str, Entry] = {}
        self._lock = threading.Lock()

    def note(self, entry: Entry) -> None:
        """Keep an entry, replacing the last one of its id."""
        with self._lock:
            self._entries.pop(entry.id, None)
            self._entries[entry.id] = entry
            while len(self._entries) > self._most:
                del self._entries[next(iter(self._entries))]

    def get(self, name: str) -> Entry | None:
        """Return the entry of an id, or None if it is missing or dropped."""
        with self._lock:
            return self._entries.get(name)

    def all(self) -> list[Entry]:
        """Return all entries, most recently noted first."""
        with self._lock:
            return list(reversed(self._entries.values()))
