"""The events of a session for commands: checked first, then read in pieces each time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ullage.agent import Session
from ullage.agent.overview import Overview
from ullage.cli import lines
from ullage.core.errors import ConfigurationError
from ullage.core.session.log.event import Event
from ullage.storage import ndjson
from ullage.storage.pieces import BYTES, read_pieces


class SessionEvents:
    """The events of a session up to `at`, all by default; each iteration reads the log.

    All are read once in advance, so that nothing is written of a damaged session: `overview` is the
    result. Raises ConfigurationError if there is no event `at`, and the errors of reading.
    """

    def __init__(self, session: Session, at: int | None = None) -> None:
        self.session = session
        self.overview = Overview()
        self._only: list[Event] | None = None
        for number, piece in enumerate(read_pieces(session.log, session.name, upto=at)):
            self._only = piece if number == 0 else None
            self.overview.take(piece)
        if at is not None and (at < 1 or len(self) < at):
            head = session.log.head(session.name).seq
            has = f"events 1 to {head}" if head else "no event"
            raise ConfigurationError(f"--at {at}: session {session.name} has {has}")

    def __len__(self) -> int:
        return self.overview.seq

    def __iter__(self) -> Iterator[Event]:
        if self._only is not None:
            yield from self._only
        elif len(self):
            for piece in read_pieces(self.session.log, self.session.name, upto=len(self)):
                yield from piece


def print_lines(events: Iterable[Event]) -> None:
    """Print events as lines of JSON, some megabytes at once."""
    held, size = list[bytes](), 0
    for line in ndjson.lines(events):
        held.append(line)
        size += len(line)
        if size >= BYTES:
            lines.raw(b"".join(held))
            held, size = [], 0
    lines.raw(b"".join(held))
