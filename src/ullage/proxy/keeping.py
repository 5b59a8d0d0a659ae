"""What a proxy keeps, and where: checkpoints in the store, what every request changes in memory.

A checkpoint is written once, and looked up with every request, since another replica may have made
it. What was reported last of a conversation is measured anew where it is not known, so it never
costs a write. It knows no requests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ullage.storage import MemoryStore, StoreLimits
from ullage.storage.threaded import desk_of

if TYPE_CHECKING:
    from ullage.storage import Store
    from ullage.storage.protocol import Checkpoints, Conversations, Originals


class Keeping:
    """A `Store` for the guards of a proxy, over the one that is configured."""

    def __init__(self, store: Store, limits: StoreLimits) -> None:
        self._store = store
        self._near = MemoryStore(limits)
        self.desk = desk_of(store)

    @property
    def url(self) -> str:
        """What opens the store."""
        return self._store.url

    @property
    def checkpoints(self) -> Checkpoints:
        """The records of compactions, the same for all replicas."""
        return self._store.checkpoints

    @property
    def conversations(self) -> Conversations:
        """What is remembered from call to call, in memory."""
        return self._near.conversations

    @property
    def originals(self) -> Originals:
        """The texts that placeholders stand for, where they are kept at all."""
        return self._store.originals

    def purge(self, now: float) -> int:
        """Forget what is out of time; return how much."""
        return self._store.purge(now)

    def close(self) -> None:
        """Let go of memory; the store is its opener's."""
        self._near.close()
