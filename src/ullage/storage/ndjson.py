"""Logs as lines of JSON, for transfer: one line per event, with its data byte for byte.

A last line that was cut off is skipped, reported, and kept in a separate file. Any other line that
is not an event raises an error that names the line. It knows no store.
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
    """A last line that was cut off while it was written: its number and its bytes.

    `kept` is the file that holds these bytes, once the session was imported.
    """

    line: int
    rest: bytes
    kept: Path | None = None


@dataclass(frozen=True, slots=True)
class Loaded:
    """The contents of lines: their events, and the cut-off last line."""

    events: tuple[Event, ...]
    torn: Torn | None = None


def lines(events: Iterable[Event]) -> Iterator[bytes]:
    """Yield a line for each event, with its line end."""
    for event in events:
        yield event.line().encode() + b"\n"


def parse(data: bytes, where: str = "the log", report: Progress = ignore) -> Loaded:
    """Read lines; raises CorruptLog that names the line that is not an event.

    Only the last line can be cut off, and only if it has no line end.
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
    """Return the faults of events that should be a whole session."""
    return list(faults_of((0, event) for event in events))


def export(
    events: Iterable[Event],
    session: str,
    path: Path,
    report: Progress = ignore,
    total: int | None = None,
) -> None:
    """Write a session's events to a new private file; `total` is their number, if known.

    Raises StoreError if the file exists or cannot be written.
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
    """Restore the session of a file; raises CorruptLog for invalid contents.

    Returns the session's head, and the loaded contents: see `torn`. The rest of a cut-off last line
    is kept in FILE.torn in the same folder, before anything is imported.
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
    """Save a line that was cut off; raises StoreError if that fails."""
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
    # Without O_EXCL a symbolic link at this path could redirect the session.
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.writelines(pieces)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:  # the partial file is not a session
        path.unlink(missing_ok=True)
        raise
    path.chmod(0o600)
