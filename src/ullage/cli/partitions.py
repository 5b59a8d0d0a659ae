"""`ullage partitions`: keep the events of a PostgreSQL log in partitions by time, or end that."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from math import isinf
from typing import TYPE_CHECKING

from ullage.cli import desk, lines
from ullage.core.errors import ConfigurationError

if TYPE_CHECKING:
    from ullage.storage.partitions import Partition, Partitions

SUMMARY = "keep the events of a PostgreSQL log in partitions by time"

EPILOG = """`begin` copies no row and holds writers up for a moment; `end` copies all of them and
holds writers up until it is done. `ullage retention` drops the partitions of which nothing is to
stay, and makes those for the time to come. docs/retention.md says when they pay."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.epilog = EPILOG
    parser.add_argument(
        "action",
        nargs="?",
        default="list",
        choices=("list", "begin", "ahead", "end"),
        help="what there is (the default), begin with partitions, make those to come, or end it",
    )
    parser.add_argument(
        "--every",
        default="month",
        choices=("day", "week", "month"),
        help="how much time a partition takes (month)",
    )
    parser.add_argument(
        "--ahead", type=int, default=3, metavar="N", help="how many are made beforehand (3)"
    )
    desk.add_log(parser)


def run(given: argparse.Namespace) -> int:
    """Begin, make, end or list partitions."""
    with desk.lend_log(given) as log:
        partitions = _find_partitions(log)
        if given.action == "list":
            _show(partitions.list_all())
            desk.say(f"partitions of {log.url}: {partitions.find_every() or 'none'}")
        elif given.action == "begin":
            _show(partitions.begin(given.every, given.ahead))
        elif given.action == "ahead":
            _show(partitions.make_ahead(given.ahead))
        else:
            partitions.end()
    return 0


def _find_partitions(log: object) -> Partitions:
    from ullage.storage.partitions import Partitions

    found = getattr(log, "partitions", None)
    if not isinstance(found, Partitions):
        raise ConfigurationError(
            "only a log in PostgreSQL has partitions: give --store postgresql://... "
            "(`ullage retention` works on any log)"
        )
    return found


def _show(partitions: list[Partition]) -> None:
    """Show partitions, one on each line: name, time span of the sessions' starts, bytes."""
    for one in partitions:
        first = (
            "begin" if isinf(one.first) else f"{datetime.fromtimestamp(one.first, UTC):%Y-%m-%d}"
        )
        end = f"{datetime.fromtimestamp(one.end, UTC):%Y-%m-%d}"
        lines.out(f"{one.name}  {first:10} {end}  {one.size:,} bytes")
