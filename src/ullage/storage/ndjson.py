"""Logs as lines of JSON, to be carried elsewhere: one line an event, its data byte for byte.

A last line that was cut off is left out, told, and kept in a file of its own beside; anything
else that is no event is an error that names its line. It knows no store.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from ullage.core.errors import CorruptLog, StoreError
from ullage.core.session.log.event import Event, read
from ullage.core.values.progress import Progress, count, ignore
from ullage.storage.log import EventLog, Head, faults_of


@dataclass(frozen=True, slots=True)
class Torn:
    """A last line that was cut off while it was written: where it stood and what there is of it.

    `kept` is the file that records it, once the session was brought in.
    """

    line: int
    rest: bytes
    kept: Path | None = None


@dataclass(frozen=True, slots=True)
class Loaded:
    """What lines held: their events, and what was left out at their end."""

    events: tuple[Event, ...]
    torn: Torn | None = None


def lines(events: Iterable[Event]) -> Iterator[bytes]:
    """Yield a line an event, with its end."""
    for event in events:
        yield event.line().encode() + b"\n"


def parse(data: bytes, where: str = "the log", report: Progress = ignore) -> Loaded:
    """Read lines; raises CorruptLog naming the line that is no event.

    Only the last line can have been cut off, and only if it does not end.
    """
    found = data.split(b"\n")
    last = len(found) - 1
    events: list[Event] = []
    for number, raw in enumerate(count(found, len(found), report)):
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


def export(
    events: Iterable[Event],
    session: str,
    path: Path,
    report: Progress = ignore,
    total: int | None = None,
) -> None:
    """Write the events of a session to a new file of its owner; `total` is how many, if known.

    Raises StoreError where the file is there or cannot be written.
    """
    try:
        _write_new(path, lines(count(events, total, report)))
    except OSError as error:
        raise StoreError(
            f"session {session} cannot be exported to {path}: {error}: give a path that is free"
        ) from error


def bring_in(
    log: EventLog, path: Path, now: float, report: Progress = ignore
) -> tuple[Head, Loaded]:
    """Restore the session of a file; raises CorruptLog for what was not written so.

    Returns where the session stands now, and what was read: see `torn`. What there is of a last
    line that was cut off is kept in FILE.torn beside it, before anything is brought in.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror or error}") from error
    loaded = parse(data, str(path), report)
    if loaded.torn is not None:
        loaded = replace(loaded, torn=_keep_torn(loaded.torn, path))
    return log.restore(loaded.events, now), loaded


def _keep_torn(torn: Torn, path: Path) -> Torn:
    """Record a line that was cut off; raises StoreError where that cannot be done."""
    beside = path.with_name(f"{path.name}.torn")
    try:
        if not (beside.is_file() and beside.read_bytes() == torn.rest):
            _write_new(beside, [torn.rest])
    except OSError as error:
        raise StoreError(
            f"line {torn.line} of {path} was cut off, and {beside} cannot record it ({error}): "
            "nothing was imported; move the file to a folder where it can, or remove the line"
        ) from error
    return replace(torn, kept=beside)


def _write_new(path: Path, pieces: Iterable[bytes]) -> None:
    """Write a new file that only its owner may read, on disk when it returns."""
    # Without O_EXCL a link that lies there would lead the session elsewhere.
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.writelines(pieces)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:  # what is there of it is no session
        path.unlink(missing_ok=True)
        raise
    path.chmod(0o600)
