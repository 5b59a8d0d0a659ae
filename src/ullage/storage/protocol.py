"""The protocol of a store: checkpoints, conversations and originals, each with one to five methods.

All stores behave alike; the tests run the same operations on all. The `Async...` protocols are for
stores with async methods. A part that has them in addition to its blocking methods is awaited; any
other is driven in threads (see `threaded`). It knows no store.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

from ullage.core.errors import ConfigurationError, StoreError
from ullage.core.search.ranking import EVERYWHERE, HITS, Hit, SearchArea

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ullage.core.compaction.checkpoint import Checkpoint
    from ullage.core.guard.conversation import Conversation


class ReadOnlyStore(StoreError):  # noqa: N818 - named for the condition
    """Report a store whose file can be read but not written."""


DAY_S: Final = 24 * 3600.0
WEEK_S: Final = 7 * DAY_S


@dataclass(frozen=True, slots=True)
class StoreLimits:
    """How much a store keeps, and for how long.

    `most` is the number of records of each kind, `characters` the size of all originals together.
    Over either limit the least recently used records are removed first, but never the newest. A
    record that nobody used for `ttl_s` seconds has expired.
    """

    most: int = 10_000
    characters: int = 256 * 1024 * 1024
    ttl_s: float = WEEK_S

    def __post_init__(self) -> None:
        if self.most < 1 or self.characters < 1 or not self.ttl_s > 0:
            raise ConfigurationError(
                f"a store keeps at least one record, one character and some time, not "
                f"most={self.most}, characters={self.characters}, ttl_s={self.ttl_s}"
            )


STANDARD: Final = StoreLimits()


class Checkpoints(Protocol):
    """Records of compactions, by scope and prefix."""

    def load(self, scope: str, prefixes: Sequence[str]) -> Checkpoint | None:
        """Return the checkpoint that holds under the first of `prefixes` that has one, or None.

        If two policies have one under the same prefix, the higher generation holds; if the
        generations are equal, the one saved last.
        """
        ...

    def save(self, checkpoint: Checkpoint) -> Checkpoint:
        """Store a checkpoint unless its policy has one of the same or a higher generation.

        Returns the stored checkpoint: the loser of a race gets the winner's.
        """
        ...

    def save_measured(self, checkpoint: Checkpoint) -> None:
        """Replace a stored checkpoint by the same one with its measured size.

        A late report on a checkpoint that has been replaced changes nothing.
        """
        ...

    def undo(self, checkpoint: Checkpoint) -> bool:
        """Remove a checkpoint; the one stored before it under its prefix holds again.

        Returns whether it was there. A checkpoint with another script stays.
        """
        ...

    def all(self) -> list[Checkpoint]:
        """Return the current checkpoint of each policy and prefix, least recently used first."""
        ...


class Conversations(Protocol):
    """State of conversations from call to call."""

    def load(self, scope: str, prefixes: Sequence[str]) -> Conversation | None:
        """Return the state under the first of `prefixes` that has one, or None."""
        ...

    def save(self, conversation: Conversation) -> None:
        """Keep the state of a conversation; replace the old one under its prefix."""
        ...


class Originals(Protocol):
    """The texts that placeholders replace."""

    def keep(self, items: Mapping[str, str]) -> None:
        """Keep texts by their references. A known reference keeps its text."""
        ...

    def read(self, reference: str) -> str | None:
        """Return the text of a reference, or None if it is unknown or gone."""
        ...


@runtime_checkable
class SearchesOriginals(Protocol):
    """Originals that can be searched; all stores of this package support it."""

    def search(self, query: str, hits: int = HITS, area: SearchArea = EVERYWHERE) -> list[Hit]:
        """Return the passages that fit a query best."""
        ...


@runtime_checkable
class ForgetsTenants(Protocol):
    """A store that can forget one tenant; all stores of this package can."""

    def forget_tenant(self, mark: str) -> int:
        """Forget the checkpoints and conversations whose scope contains `mark`; return how many.

        This also removes originals that only they name.
        """
        ...

    def scrub(self) -> str:
        """Overwrite deleted data as far as the store can; return where some may still be."""
        ...


class AsyncCheckpoints(Protocol):
    """Records of compactions, for an event loop: each method does as the one without its `a`."""

    async def aload(self, scope: str, prefixes: Sequence[str]) -> Checkpoint | None:
        """Do as `load`."""
        ...

    async def asave(self, checkpoint: Checkpoint) -> Checkpoint:
        """Do as `save`."""
        ...

    async def asave_measured(self, checkpoint: Checkpoint) -> None:
        """Do as `save_measured`."""
        ...

    async def aundo(self, checkpoint: Checkpoint) -> bool:
        """Do as `undo`."""
        ...

    async def aall(self) -> list[Checkpoint]:
        """Do as `all`."""
        ...


class AsyncConversations(Protocol):
    """State of conversations from call to call, for an event loop."""

    async def aload(self, scope: str, prefixes: Sequence[str]) -> Conversation | None:
        """Do as `load`."""
        ...

    async def asave(self, conversation: Conversation) -> None:
        """Do as `save`."""
        ...


class AsyncOriginals(Protocol):
    """The texts that placeholders replace, for an event loop."""

    async def akeep(self, items: Mapping[str, str]) -> None:
        """Do as `keep`."""
        ...

    async def aread(self, reference: str) -> str | None:
        """Do as `read`."""
        ...


class Store(Protocol):
    """Durable state of guards. Safe to share between threads; `url` is its name for people."""

    @property
    def url(self) -> str:
        """The URL that opens it."""
        ...

    @property
    def checkpoints(self) -> Checkpoints:
        """The records of compactions."""
        ...

    @property
    def conversations(self) -> Conversations:
        """The state of conversations from call to call."""
        ...

    @property
    def originals(self) -> Originals:
        """The texts that placeholders replace."""
        ...

    def purge(self, now: float) -> int:
        """Forget records expired at `now` (seconds since the epoch); return how many."""
        ...

    def close(self) -> None:
        """Close files; a store in memory is forgotten."""
        ...
