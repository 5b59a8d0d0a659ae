"""What a log says of its sessions before some of them go, and how one is taken out of it.

The logs that come with the package can do both. It knows no rules and no store.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol, runtime_checkable

from ullage.core.session.log.event import Event
from ullage.core.session.originals import KEEPING, TEXTS
from ullage.storage.objects import MARK, LostText, ObjectReader

MOVABLE: Final = tuple(sorted({*TEXTS, *KEEPING}))
"""Types of events whose data may be elsewhere."""

BATCH: Final = 5_000
"""Events that one transaction takes out: another writer waits for no more."""


@dataclass(frozen=True, slots=True)
class SessionExtent:
    """How old and how large a session is: `last` is the time of its last event, in Unix seconds.

    One without an event has the time of its creation. `size` is in bytes of data, 0 where it was
    not asked for.
    """

    session: str
    created: float
    last: float
    events: int
    size: int = 0


class StoredText(NamedTuple):
    """A text of a session as its row has it: the number and the id of its event."""

    seq: int
    id: str
    text: str


def load_events(
    objects: ObjectReader, rows: Sequence[tuple[Any, ...]], *, lost: bool = False
) -> list[Event]:
    """Return rows as events, with the texts that are elsewhere.

    Raises LostText, naming the event, for one that is gone or changed there; with `lost` what
    says where it is stays in its place.
    """
    if not any(row[-1].startswith(MARK) for row in rows):
        return [Event(*row) for row in rows]
    try:
        texts = objects.resolve([row[-1] for row in rows], lost=lost)
    except LostText as error:
        session, seq, *_ = rows[error.at]
        raise LostText(f"the text of event {seq} of session {session}: {error}") from error
    return [Event(*(*row[:-1], text)) for row, text in zip(rows, texts, strict=True)]


@runtime_checkable
class MovesTexts(Protocol):
    """A log whose large texts can be elsewhere, and are read back from there."""

    def list_texts(self, session: str, least: int, most: int) -> list[StoredText]:
        """Return up to `most` texts of `least` bytes or more that are in the log itself.

        Those of what was said, called and left out: any other is read by others than the log.
        """
        ...

    def list_moved(self, session: str | None = None) -> list[StoredText]:
        """Return what stands in the place of texts that are elsewhere, of all sessions for None."""
        ...

    def swap_text(self, session: str, held: StoredText, text: str) -> bool:
        """Put a text in the place of one that is still there; return whether it was."""
        ...


@runtime_checkable
class MovesOriginals(Protocol):
    """A store whose originals can be elsewhere, and are read back from there."""

    def list_originals(self, least: int, before: float, most: int) -> list[tuple[int, str]]:
        """Return up to `most` originals of `least` characters or more that are in the store itself.

        Each with its number; those that somebody used since `before` (Unix seconds) are left out.
        """
        ...

    def list_moved_originals(self) -> list[tuple[int, str]]:
        """Return what stands in the place of originals that are elsewhere, each with its number."""
        ...

    def swap_original(self, number: int, held: str, text: str) -> bool:
        """Put a text in the place of one that is still there; return whether it was."""
        ...


@runtime_checkable
class DropsSessions(Protocol):
    """A log that can be rid of many sessions at once, where its events are in partitions."""

    def drop(self, due: Mapping[str, float]) -> list[str]:
        """Take out those of these sessions that share a part of the log with no other.

        `due` is the sessions, each with the time of its last event when it was chosen. Returns
        those that are gone. What somebody writes, or wrote since, stays with its whole partition.
        """
        ...


@runtime_checkable
class RemovesSessions(Protocol):
    """A log whose sessions can be taken out whole, name and all."""

    def survey(self, *, sized: bool) -> list[SessionExtent]:
        """Return all sessions, oldest first; with `sized` all data is looked at."""
        ...

    def remove(self, session: str, epoch: int, most: int = BATCH) -> bool:
        """Take up to `most` of the last events out of a session; return whether it is gone.

        Said until then: what is left in between is a whole session that ends earlier. With the last
        events go its name, its leases, and what was indexed of it. Raises Fenced where `epoch` does
        not hold the lease.
        """
        ...
