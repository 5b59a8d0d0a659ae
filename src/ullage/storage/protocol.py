"""What a store is: checkpoints, conversations and originals, each behind one to five methods.

Every store keeps them alike; the tests run the same operations on all. The `Async...` protocols are
for a store that can be waited for: a part that has them beside the blocking methods is awaited,
any other is driven in threads (see `threaded`). It knows no store.
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


class ReadOnlyStore(StoreError):  # noqa: N818 - named for what was found
    """Report a store whose file may be read and not written."""


DAY_S: Final = 24 * 3600.0
WEEK_S: Final = 7 * DAY_S


@dataclass(frozen=True, slots=True)
class StoreLimits:
    """How much a store keeps, and for how long.

    `most` is the number of records of each kind, `characters` the size of all
    originals together; beyond either what was used longest ago goes first, the newest never.
    What nobody used for `ttl_s` seconds is out of time.
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
        """Return what holds under the first of `prefixes` that has something, or None.

        Of two policies' under one prefix the higher generation holds, of equals the one saved
        last.
        """
        ...

    def save(self, checkpoint: Checkpoint) -> Checkpoint:
        """Store a checkpoint unless its policy has one of its generation there, or of a higher.

        Returns what is stored: the loser of a race takes the winner's.
        """
        ...

    def save_measured(self, checkpoint: Checkpoint) -> None:
        """Replace a stored checkpoint by one that carries its measured size.

        A late report on a checkpoint that another has taken the place of changes nothing.
        """
        ...

    def undo(self, checkpoint: Checkpoint) -> bool:
        """Take a checkpoint away: what was stored under its prefix before it holds again.

        Returns whether it was there. One that another script has taken the place of stays.
        """
        ...

    def all(self) -> list[Checkpoint]:
        """Return the checkpoint that holds of each policy and prefix, used longest ago first."""
        ...


class Conversations(Protocol):
    """What is remembered of conversations from call to call."""

    def load(self, scope: str, prefixes: Sequence[str]) -> Conversation | None:
        """Return what is kept under the first of `prefixes` that has something, or None."""
        ...

    def save(self, conversation: Conversation) -> None:
        """Keep the state of a conversation in place of what was kept under its prefix."""
        ...


class Originals(Protocol):
    """The texts that placeholders stand for."""

    def keep(self, items: Mapping[str, str]) -> None:
        """Keep texts by their references. A reference that is known keeps its text."""
        ...

    def read(self, reference: str) -> str | None:
        """Return the text of a reference, or None where there is none (any more)."""
        ...


@runtime_checkable
class SearchesOriginals(Protocol):
    """Originals that can be searched; those of the stores that come with the package can."""

    def search(self, query: str, hits: int = HITS, area: SearchArea = EVERYWHERE) -> list[Hit]:
        """Return the passages that fit a query best."""
        ...


@runtime_checkable
class ForgetsTenants(Protocol):
    """A store that can forget one of those who share it; those that come with the package can."""

    def forget_tenant(self, mark: str) -> int:
        """Forget the checkpoints and conversations whose scope has `mark`; return how many.

        Originals that only they name go, too.
        """
        ...

    def scrub(self) -> str:
        """Overwrite what was deleted, as far as the store can; return what may still hold it."""
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
    """What is remembered from call to call, for an event loop."""

    async def aload(self, scope: str, prefixes: Sequence[str]) -> Conversation | None:
        """Do as `load`."""
        ...

    async def asave(self, conversation: Conversation) -> None:
        """Do as `save`."""
        ...


class AsyncOriginals(Protocol):
    """The texts that placeholders stand for, for an event loop."""

    async def akeep(self, items: Mapping[str, str]) -> None:
        """Do as `keep`."""
        ...

    async def aread(self, reference: str) -> str | None:
        """Do as `read`."""
        ...


class Store(Protocol):
    """Durable state of guards. Safe to share between threads; `url` names it to people."""

    @property
    def url(self) -> str:
        """What opens it."""
        ...

    @property
    def checkpoints(self) -> Checkpoints:
        """The records of compactions."""
        ...

    @property
    def conversations(self) -> Conversations:
        """What is remembered from call to call."""
        ...

    @property
    def originals(self) -> Originals:
        """The texts that placeholders stand for."""
        ...

    def purge(self, now: float) -> int:
        """Forget what is out of time at `now` (seconds since the epoch); return how much."""
        ...

    def close(self) -> None:
        """Let go of files; what is kept in memory is forgotten."""
        ...
