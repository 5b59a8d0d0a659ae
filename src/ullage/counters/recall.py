"""Wrappers of counters: one loads its counter late, one caches counts.

They know nothing of vocabularies or text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ullage.core.tokens.counting import Counter


_OVERHEAD: Final = 100
"""Additional characters per cache entry: the cost of a string and a slot in bytes."""


SHORT: Final = 64
"""A shorter text is counted faster than it is looked up."""


class Deferred:
    """Replaces the counter of `key`, and builds it once with `load` on its first count."""

    def __init__(self, key: str, load: Callable[[], Counter]) -> None:
        self.key = key
        self._load = load
        self._lock = Lock()
        self._counter: Counter | None = None

    def count(self, text: str) -> int:
        """Return the number of tokens; never raises for any string."""
        counter = self._counter
        return counter.count(text) if counter is not None else self._load_once().count(text)

    def count_many(self, texts: Sequence[str]) -> list[int]:
        """Return the number of tokens of each text."""
        return self._load_once().count_many(texts)

    def _load_once(self) -> Counter:
        counter = self._counter
        if counter is None:
            with self._lock:
                counter = self._counter
                if counter is None:
                    counter = self._counter = self._load()
        return counter


class Recall:
    """Caches the counts of texts that are counted one at a time.

    Those are system prompts and tool schemas, which return with every call. `count_many` has no
    cache: it is for messages, and they keep their own sizes (`Message.memo`). For 20,000 messages,
    a cache of their texts cost half of the count again and saved nothing.

    Texts are kept in two generations with `limit` characters together. When the young one reaches
    half of that, it becomes the old one; texts that are used again move to the new one. Reads take
    no lock.
    """

    def __init__(self, counter: Counter, limit: int) -> None:
        self.key = counter.key
        self._counter = counter
        self._room = limit // 2
        self._lock = Lock()
        self._young: dict[str, int] = {}
        self._old: dict[str, int] = {}
        self._held = 0

    def count(self, text: str) -> int:
        """Return the number of tokens; never raises for any string."""
        if len(text) < SHORT:
            return self._counter.count(text)
        size = self._young.get(text)
        if size is None:
            size = self._old.get(text)
            size = self._counter.count(text) if size is None else size
            self._keep(text, size)
        return size

    def count_many(self, texts: Sequence[str]) -> list[int]:
        """Return the number of tokens of each text."""
        return self._counter.count_many(texts)

    def _keep(self, text: str, size: int) -> None:
        cost = len(text) + _OVERHEAD
        if cost > self._room:
            return
        with self._lock:
            if text in self._young:
                return
            if self._held + cost > self._room:
                self._old, self._young, self._held = self._young, {}, 0
            self._young[text] = size
            self._held += cost
