"""`ullage export`: a session as lines of JSON, to be kept or carried elsewhere."""

from __future__ import annotations

import argparse
from pathlib import Path

from ullage.cli import desk, lines, progress
from ullage.cli.show import add_at, upto
from ullage.core.values.progress import count
from ullage.storage import ndjson

SUMMARY = "write a session as lines of JSON, each event as it was recorded"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("session", help="its name, or how it begins")
    parser.add_argument(
        "--out", metavar="FILE", default="-", help="a file that is not there yet (else stdout, -)"
    )
    add_at(parser)
    desk.add_log(parser)


def run(given: argparse.Namespace) -> int:
    """Write the session; a file is its owner's alone."""
    with desk.lend_log(given) as log:
        session = desk.find_session(log, given.session)
        with progress.watch(f"reading {session.name}", "events") as bar:
            events = upto(session, given.at)
            bar.begin(f"writing {session.name}", "events")
            if given.out == "-":
                text = b"".join(ndjson.lines(count(events, len(events), bar)))
            else:
                text = b""
                ndjson.export(log, session.name, Path(given.out), given.at, bar)
    if given.out == "-":
        lines.raw(text)
    else:
        desk.say(f"wrote {len(events):,} events of session {session.name} to {given.out}")
    return 0
