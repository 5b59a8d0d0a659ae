"""Protocols of logs and stores that can move large texts elsewhere, and remove whole sessions.

The logs of this package support all of them. It knows no rules and no store.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol, runtime_checkable

from ullage.core.session.log.event import Event
from ullage.core.session.originals import KEEPING, TEXTS
from ullage.storage.objects import MARK, LostText, ObjectReader

MOVABLE: Final = tuple(sorted({*TEXTS, *KEEPING}))
"""Types of events whose data may be stored elsewhere."""

BATCH: Final = 5_000
"""Events that one transaction removes, so that other writers wait only briefly."""


@dataclass(frozen=True, slots=True)
class SessionExtent:
    """Age and size of a session: `last` is the time of its last event, in Unix seconds.

    A session without events has the time of its creation. `size` is in bytes of data, or 0 if it
    was not requested.
    """

    session: str
    created: float
    last: float
    events: int
    size: int = 0


class StoredText(NamedTuple):
    """A text of a session as stored in its row: the number and the id of its event."""

    seq: int
    id: str
    text: str


def load_events(
    objects: ObjectReader, rows: Sequence[tuple[Any, ...]], *, lost: bool = False
) -> list[Event]:
    """Return rows as events, with the texts that are stored elsewhere.

    Raises LostText, which names the event, if such a text is gone or changed; with `lost` its
    reference stays instead.
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
    """A log that can store large texts elsewhere, and reads them back from there."""

    def list_texts(self, session: str, least: int, most: int) -> list[StoredText]:
        """Return up to `most` texts of `least` bytes or more that are in the log itself.

        Only texts of messages, calls and omitted originals: other code reads the rows of other
        types.
        """
        ...

    def list_moved(self, session: str | None = None) -> list[StoredText]:
        """Return the references to moved texts, of all sessions if `session` is None."""
        ...

    def swap_text(self, session: str, held: StoredText, text: str) -> bool:
        """Replace a text if it is still there; return whether it was."""
        ...


@runtime_checkable
class MovesOriginals(Protocol):
    """A store that can store originals elsewhere, and reads them back from there."""

    def list_originals(self, least: int, before: float, most: int) -> list[tuple[int, str]]:
        """Return up to `most` originals of `least` characters or more that are in the store.

        Each comes with its number. Originals used since `before` (Unix seconds) are left out.
        """
        ...

    def list_moved_originals(self) -> list[tuple[int, str]]:
        """Return the references to moved originals, each with its number."""
        ...

    def swap_original(self, number: int, held: str, text: str) -> bool:
        """Replace a text if it is still there; return whether it was."""
        ...


@runtime_checkable
class DropsSessions(Protocol):
    """A log that can drop many sessions at once, if its events are in partitions."""

    def drop(self, due: Mapping[str, float]) -> list[str]:
        """Drop those of the sessions that share their partition only with each other.

        `due` maps each session to the time of its last event when it was chosen. Returns the
        dropped sessions. A session that somebody writes, or has written since, stays with its whole
        partition.
        """
        ...


@runtime_checkable
class RemovesSessions(Protocol):
    """A log that can remove whole sessions, including their names."""

    def survey(self, *, sized: bool) -> list[SessionExtent]:
        """Return all sessions, oldest first; with `sized` it measures all data."""
        ...

    def remove(self, session: str, epoch: int, most: int = BATCH) -> bool:
        """Remove up to `most` of the last events of a session; return whether it is gone.

        Call it until it returns True; until then, a whole but shorter session is left. The last
        call also removes its name, its leases, and its index. Raises Fenced if `epoch` does not
        hold the lease.
        """
        ...
