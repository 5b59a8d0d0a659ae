"""`ullage originals`: move large texts to object storage, bring them back, and find orphans."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING

from ullage.agent.moving import (
    GRACE_S,
    LEAST,
    Movement,
    fetch_texts,
    find_orphans,
    move_originals,
    move_texts,
)
from ullage.cli import desk, lines
from ullage.core.errors import ConfigurationError
from ullage.storage import open_store
from ullage.storage.objects import ObjectPlace
from ullage.storage.opening import has_log
from ullage.storage.protocol import DAY_S

if TYPE_CHECKING:
    from ullage.storage.log import EventLog
    from ullage.storage.protocol import Store

SUMMARY = "move large texts of old sessions to object storage, or back"

EPILOG = """A place is file:///FOLDER, s3://BUCKET/PREFIX, gs:// or az://, for one log and its
store alone; credentials come from the usual variables of the cloud. Moved texts read as before
for every program that may read the place. docs/retention.md says when it pays."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.epilog = EPILOG
    parser.add_argument(
        "action",
        choices=("move", "fetch", "sweep"),
        help="move texts there, fetch all of them back, or list the objects that nothing names",
    )
    parser.add_argument("--place", metavar="URL", help="where texts go, or the place to sweep")
    parser.add_argument(
        "--older-than",
        type=float,
        default=7.0,
        metavar="DAYS",
        help="only texts of sessions without an event since then, and unused originals (7)",
    )
    parser.add_argument(
        "--least",
        type=int,
        default=LEAST,
        metavar="BYTES",
        help=f"how large a text is that moves ({LEAST})",
    )
    parser.add_argument("--delete", action="store_true", help="sweep: delete the listed objects")
    parser.add_argument("--dry-run", action="store_true", help="move: say what would move")
    parser.add_argument("--yes", action="store_true", help="ask nothing")
    desk.add_log(parser)


def run(given: argparse.Namespace) -> int:
    """Move, fetch or sweep; exit code 1 if an object is lost."""
    if given.action != "fetch" and given.place is None:
        raise ConfigurationError(f"say where: ullage originals {given.action} --place URL")
    if not given.older_than >= 0 or given.least < 1:
        raise ConfigurationError(
            f"--older-than is 0 days or more and --least 1 byte or more, not {given.older_than:g} "
            f"and {given.least}"
        )
    with desk.lend_log(given) as log, _lend_store(log) as store:
        if given.action == "fetch":
            return _fetch(log, store)
        if given.action == "sweep":
            return _sweep(given, log, store)
        return _move(given, log, store)


@contextmanager
def _lend_store(log: EventLog) -> Iterator[Store | None]:
    """Open the store in the same database as a log."""
    with ExitStack() as held:
        store = None
        if has_log(log.url):
            store = held.enter_context(closing(open_store(log.url, create=False)))
        yield store


def _move(given: argparse.Namespace, log: EventLog, store: Store | None) -> int:
    place = None if given.dry_run else ObjectPlace(given.place, create=True)
    before = time.time() - given.older_than * DAY_S
    done = move_texts(log, place, before, given.least)
    if store is not None:
        done += move_originals(store, place, before, given.least)
    verb = "would move" if given.dry_run else "moved"
    lines.out(f"{_count(done)} {verb} to {given.place}")
    return 0


def _fetch(log: EventLog, store: Store | None) -> int:
    done = fetch_texts(log, store)
    lines.out(f"{_count(done)} fetched")
    for name in done.lost:
        lines.out(f"lost  {name}")
    return 1 if done.lost else 0


def _sweep(given: argparse.Namespace, log: EventLog, store: Store | None) -> int:
    place = ObjectPlace(given.place)
    found = find_orphans(place, log, store, time.time())
    for name in found.names:
        lines.out(f"{place.url}/{name}")
    what = f"{len(found.names):,} objects of {found.size:,} bytes that {log.url} does not name"
    if not given.delete or not found.names:
        desk.say(f"{what}, older than {GRACE_S / DAY_S:g} day")
        return 0
    desk.confirm_loss(given, what)
    place.delete(found.names)
    desk.say(f"{what} are deleted")
    return 0


def _count(done: Movement) -> str:
    return f"{done.texts:,} texts of {done.size:,} bytes, from {done.sessions:,} sessions,"
