"""Reads a session of a log in pieces, so that its texts need not be in memory all at once.

The number of events in a piece depends on the size of the last piece. It knows no store.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from ullage.core.errors import StoreError

if TYPE_CHECKING:
    from ullage.core.session.log.event import Event
    from ullage.storage.log import EventLog

FIRST: Final = 256
"""Events of the first piece, when their size is not known yet."""

MOST: Final = 2_048
"""Most events of a piece."""

BYTES: Final = 4_000_000
"""Bytes of text that a piece should have."""


class Pieces:
    """Bounds of the next piece of a session: `after` < seq <= `upto`.

    `end` is the last event to read. The reader passes each piece to `take`.
    """

    def __init__(self, after: int, end: int) -> None:
        self.after, self.end = after, end
        self._count = FIRST
        self._last: Event | None = None

    @property
    def is_last(self) -> bool:
        """Tell whether the next piece reaches the end."""
        return self.after + self._count >= self.end

    @property
    def upto(self) -> int:
        """The last event of the next piece."""
        return min(self.after + self._count, self.end)

    def take(self, events: Sequence[Event]) -> None:
        """Note a piece that was read; raises StoreError if it does not follow the last one.

        A rewrite of the session in the meantime causes this, such as a purge.
        """
        if not events:
            self.end = self.after
            return
        if self._last is not None and not events[0].follows(self._last.id):
            raise StoreError(
                f"session {events[0].session_id} was rewritten while it was read: read it anew"
            )
        mean = sum(event.text_bytes for event in events) / len(events)
        self._count = max(1, min(MOST, int(BYTES / max(mean, 1.0))))
        self._last = events[-1]
        self.after = self._last.seq


def read_pieces(
    log: EventLog, session: str, after: int = 0, upto: int | None = None
) -> Iterator[list[Event]]:
    """Yield the events of `log.read`, piece by piece; raises what that raises, at the piece.

    Events recorded after the first piece was read are left out. Raises StoreError if the session
    was rewritten meanwhile.
    """
    head = log.head(session).seq
    pieces = Pieces(after, head if upto is None else min(head, upto))
    while pieces.after < pieces.end:
        events = log.read(session, pieces.after, pieces.upto)
        pieces.take(events)
        if events:
            yield events
