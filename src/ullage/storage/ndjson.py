"""Logs as lines of JSON, to be carried elsewhere: one line an event, its data byte for byte.

A last line that was cut off is left out, and told; anything else that is no event is an error
that names its line. It knows no store.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ullage.core.errors import CorruptLog, StoreError
from ullage.core.log.event import Event, read
from ullage.storage.log import EventLog, Head, faults_of


@dataclass(frozen=True, slots=True)
class Torn:
    """A last line that was cut off while it was written: where it stood and what there is of it."""

    line: int
    rest: bytes


@dataclass(frozen=True, slots=True)
class Loaded:
    """What lines held: their events, and what was left out at their end."""

    events: tuple[Event, ...]
    torn: Torn | None = None


def lines(events: Iterable[Event]) -> Iterator[bytes]:
    """Yield a line an event, with its end."""
    for event in events:
        yield event.line().encode() + b"\n"


def parse(data: bytes, where: str = "the log") -> Loaded:
    """Read lines; raises CorruptLog naming the line that is no event.

    Only the last line can have been cut off, and only if it does not end.
    """
    found = data.split(b"\n")
    last = len(found) - 1
    events: list[Event] = []
    for number, raw in enumerate(found):
        if number == last and not raw:
            break
        place = f"line {number + 1} of {where}"
        try:
            events.append(read(raw.decode(), place))
        except (StoreError, UnicodeDecodeError) as error:
            if number == last:
                return Loaded(tuple(events), Torn(number + 1, raw))
            told = f"{place} is not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
            raise CorruptLog(f"{told}; nothing was read: mend or restore that line") from error
    return Loaded(tuple(events))


def verify(events: Iterable[Event]) -> list[str]:
    """Return what is wrong with events that are to be a whole session."""
    return list(faults_of((0, event) for event in events))


def export(log: EventLog, session: str, path: Path) -> int:
    """Write a session to a new file that only its owner may read; return how many events.

    Raises StoreError where the file is there or cannot be written.
    """
    events = log.read(session)
    try:
        # Without O_EXCL a link that lies there would lead the session elsewhere.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.writelines(lines(events))
            file.flush()
            os.fsync(file.fileno())
        path.chmod(0o600)
    except OSError as error:
        raise StoreError(
            f"session {session} cannot be exported to {path}: {error}: give a path that is free"
        ) from error
    return len(events)


def bring_in(log: EventLog, path: Path, now: float) -> tuple[Head, Loaded]:
    """Restore the session of a file; raises CorruptLog for what was not written so.

    Returns where the session stands now, and what was read: see `torn`.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error}") from error
    loaded = parse(data, str(path))
    return log.restore(loaded.events, now), loaded
