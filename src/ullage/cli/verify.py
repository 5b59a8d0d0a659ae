"""`ullage verify`: check that a session is as it was written: no gap, every id in its chain."""

from __future__ import annotations

import argparse
from pathlib import Path

from ullage.cli import desk, lines, progress
from ullage.cli.import_ import content, describe_torn
from ullage.core.errors import ConfigurationError, StoreError
from ullage.core.values.progress import count
from ullage.importers.files import is_file
from ullage.storage import ndjson
from ullage.storage.log import EventLog, faults_of

SUMMARY = (
    "check that a session or an exported file is unchanged since it was written; exit code 1 if not"
)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "session", nargs="?", help="an exported file that is there, else a session's name"
    )
    parser.add_argument("--all", action="store_true", help="check every session of the log")
    desk.add_log(parser)


def run(given: argparse.Namespace) -> int:
    """Print each fault on a line, or the number of intact events; exit code 1 for a fault."""
    if given.all == (given.session is not None):
        raise ConfigurationError("name what to check: a SESSION, an exported FILE, or --all")
    if given.session is not None and is_file(given.session):
        return _checked_file(given.session)
    with desk.lend_log(given) as log:
        if not given.all:
            return check_session(log, desk.find_session(log, given.session).name)
        names = [head.session for head in log.sessions()]
        return max([check_session(log, name, f"{name}: ") for name in names], default=0)


def check_session(log: EventLog, name: str, label: str = "") -> int:
    """Print the faults of a session of a log, each after `label`; return the exit code."""
    try:
        with progress.watch(f"checking {name}", "events") as bar:
            head, stamped = log.head(name), log.read_stamped(name)
            if log.head(name) != head:  # newer events are not checked
                stamped = [(epoch, event) for epoch, event in stamped if event.seq <= head.seq]
            faults = list(faults_of(count(stamped, len(stamped), bar), head))
    except StoreError as error:
        return _print_faults([str(error)], 0, label)
    return _print_faults(faults, head.seq, label)


def _checked_file(name: str) -> int:
    try:
        with progress.watch(f"reading {Path(name).name}", "events") as bar:
            loaded = ndjson.parse(content(name), name, bar)
            bar.begin(f"checking {Path(name).name}", "events")
            faults = ndjson.verify(count(loaded.events, len(loaded.events), bar))
    except StoreError as error:
        return _print_faults([str(error)], 0)
    if loaded.torn is not None:
        faults.append(describe_torn(loaded.torn, name))
    if not loaded.events:
        faults.append(f"{name} holds no event")
    return _print_faults(faults, len(loaded.events))


def _print_faults(faults: list[str], count: int, label: str = "") -> int:
    for fault in faults:
        lines.out(f"{label}{lines.brief(fault, 400)}")
    if not faults:
        lines.out(f"{label}{count:,} events, chain whole")
    return 1 if faults else 0
