"""`ullage import`: import a session from lines of JSON, under its own name, as it was recorded."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from ullage.cli import desk, progress
from ullage.core.errors import StoreError
from ullage.importers.files import find_input
from ullage.storage import ndjson
from ullage.storage.log import EventLog
from ullage.storage.ndjson import Torn

SUMMARY = "bring in a session that was exported, under its own name"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("file", help="what `ullage export` wrote, or - for stdin")
    desk.add_log(parser)


def run(given: argparse.Namespace) -> int:
    """Print the name of the session; a last line that was cut off is left out and reported."""
    with progress.watch(f"reading {Path(given.file).name}", "events") as bar:
        loaded = ndjson.parse(content(given.file), given.file, bar)
    with (
        desk.lend_log(given, create=True) as log,
        progress.watch("recording", "events") as bar,
    ):
        if loaded.events:
            _free(log, loaded.events[0].session_id)
        if given.file == "-":
            head = log.restore(loaded.events, time.time())
        else:
            head, loaded = ndjson.bring_in(log, Path(given.file), time.time(), bar)
    if loaded.torn is not None:
        kept = f"; kept in {loaded.torn.kept}" if loaded.torn.kept is not None else ""
        desk.say(f"left out: {describe_torn(loaded.torn, given.file)}{kept}")
    desk.say(f"brought in {head.seq:,} events")
    print(head.session)
    return 0


def content(name: str) -> bytes:
    """Return the bytes of a file, or of stdin for `-`; raises StoreError if they cannot be read."""
    try:
        return find_input().buffer.read() if name == "-" else Path(name).read_bytes()
    except OSError as error:
        raise StoreError(f"{name} cannot be read: {error.strerror or error}") from error


def describe_torn(found: Torn, name: str) -> str:
    """Return the message about a last line that was cut off."""
    return f"line {found.line} of {name} was cut off while it was written ({len(found.rest)} bytes)"


def _free(log: EventLog, name: str) -> None:
    """Raise StoreError if a session has this name, which the chain of its ids depends on."""
    if any(head.session == name for head in log.sessions()):
        raise StoreError(
            f"session {name} is in {log.url} already, and an import keeps its name: give another "
            "log with --store"
        )
