"""Checkpoints and conversations in memory, found by the first known prefix, oldest forgotten.

It keeps them without understanding them. Safe to share between threads.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ullage.core.checkpoint import Checkpoint
    from ullage.core.conversation import Conversation

MOST: Final = 10_000
"""Checkpoints, and conversations, that are kept; the one used longest ago goes first."""


Record = TypeVar("Record")


class _Recent(Generic[Record]):
    """Records by scope and prefix; beyond `most` the one used longest ago goes."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._kept: OrderedDict[tuple[str, str], Record] = OrderedDict()
        self._lock = threading.Lock()

    def load(self, scope: str, prefixes: Sequence[str]) -> Record | None:
        """Return what is kept under the first of `prefixes` that has something, or None."""
        with self._lock:
            if not self._kept:
                return None
            for prefix in prefixes:
                found = self._kept.get((scope, prefix))
                if found is not None:
                    self._kept.move_to_end((scope, prefix))
                    return found
        return None

    def _put(self, key: tuple[str, str], record: Record) -> None:
        """Keep a record as the newest one; the caller holds the lock."""
        self._kept[key] = record
        self._kept.move_to_end(key)
        while len(self._kept) > self._most:
            self._kept.popitem(last=False)


class MemoryCheckpoints(_Recent["Checkpoint"]):
    """The embedded store of checkpoints; they end with the process."""

    def save(self, checkpoint: Checkpoint) -> Checkpoint:
        """Store a checkpoint unless one of its generation is there; return what is stored."""
        key = (checkpoint.scope, checkpoint.prefix)
        with self._lock:
            held = self._kept.get(key)
            kept = held if held and held.generation >= checkpoint.generation else checkpoint
            self._put(key, kept)
            return kept

    def measured(self, checkpoint: Checkpoint) -> None:
        """Replace a stored checkpoint by one that carries its measured size.

        A late report on a checkpoint that another has taken the place of changes nothing.
        """
        key = (checkpoint.scope, checkpoint.prefix)
        with self._lock:
            held = self._kept.get(key)
            if held is not None and held.script == checkpoint.script:
                self._kept[key] = checkpoint

    def all(self) -> list[Checkpoint]:
        """Return every checkpoint, the one used longest ago first."""
        with self._lock:
            return list(self._kept.values())


class MemoryConversations(_Recent["Conversation"]):
    """What is remembered of conversations from call to call; it ends with the process."""

    def save(self, conversation: Conversation) -> None:
        """Keep the state of a conversation in place of what was kept under its prefix."""
        with self._lock:
            self._put((conversation.scope, conversation.prefix), conversation)
