"""`ullage retention`: remove old sessions from the log, including their names."""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from ullage.agent.retention import (
    Removal,
    RetentionRules,
    SessionFamily,
    apply_retention,
    plan_retention,
)
from ullage.cli import desk, lines
from ullage.core.errors import ConfigurationError

SUMMARY = "take old sessions out of the log by age, tenant and size"

EPILOG = """A session goes with those of its subagents and with those that it went on in, when the
last of them is old enough; one that somebody writes stays. Nothing is left of it, unlike after
`ullage purge`, which keeps times and costs and overwrites the text. docs/retention.md says more."""

BUSY: Final = 5
UNITS: Final[Mapping[str, int]] = MappingProxyType(
    {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}
)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.epilog = EPILOG
    parser.add_argument(
        "--days", type=float, metavar="DAYS", help="remove sessions without an event since then"
    )
    parser.add_argument(
        "--tenant-days",
        action="append",
        default=[],
        metavar="NAME=DAYS",
        help="days for one tenant, instead of --days; `never` keeps its sessions",
    )
    parser.add_argument(
        "--most",
        metavar="BYTES",
        help="data of all sessions together, such as 500G: beyond it the oldest go",
    )
    parser.add_argument("--dry-run", action="store_true", help="say what would go")
    parser.add_argument("--yes", action="store_true", help="ask nothing")
    parser.add_argument("--json", action="store_true", help="one object for a program")
    desk.add_log(parser)


def run(given: argparse.Namespace) -> int:
    """Remove the due sessions, and report them; exit code 5 if a session was busy."""
    rules = read_rules(given)
    with desk.lend_log(given) as log:
        due = plan_retention(log, rules, time.time())
        count = sum(len(family.members) for family in due)
        if given.dry_run:
            _show_due(due, as_json=given.json)
            desk.say(f"{count:,} session{'s'[: count != 1]} of {log.url} would go")
            return 0
        if due:
            desk.confirm_loss(given, f"{count:,} session{'s'[: count != 1]} of {log.url}")
        done = apply_retention(log, due, time.time)
    _show_done(done, as_json=given.json)
    return BUSY if done.busy else 0


def _show_due(due: Sequence[SessionFamily], *, as_json: bool) -> None:
    """Show the sessions to remove, and the rule for each."""
    if as_json:
        named = [{"sessions": one.members, "tenant": one.tenant, "why": one.why} for one in due]
        lines.out(json.dumps({"due": named}))
        return
    for family in due:
        lines.out(f"{' '.join(family.members)}: {family.why}")


def _show_done(done: Removal, *, as_json: bool) -> None:
    """Show the removed sessions, and those that stayed."""
    if as_json:
        lines.out(json.dumps({"gone": done.sessions, "busy": done.busy, "events": done.events}))
        return
    told = [f"gone  {name}" for name in done.sessions]
    told += [f"left  {name}: {why}" for name, why in done.busy]
    if done.files:
        told.append(f"{done.files:,} contents of files that undo could bring back are gone")
    for line in told or ["nothing is due"]:
        lines.out(line)


def read_rules(given: argparse.Namespace) -> RetentionRules:
    """Return the rules of the arguments; raises ConfigurationError."""
    tenants = dict(_read_tenant(text) for text in given.tenant_days)
    most = None if given.most is None else _read_bytes(given.most)
    return RetentionRules(given.days, tenants, most)


def _read_tenant(text: str) -> tuple[str, float]:
    name, equals, days = text.rpartition("=")
    try:
        number = math.inf if days == "never" else float(days)
    except ValueError:
        number = math.nan
    if not (name and equals and number > 0):
        raise ConfigurationError(
            f"--tenant-days is NAME=DAYS with a number over 0, or NAME=never: {text!r:.80}"
        )
    return name, number


def _read_bytes(text: str) -> int:
    number, unit = text.strip().lower().removesuffix("b"), ""
    if number[-1:] in UNITS and number:
        number, unit = number[:-1], number[-1]
    try:
        return int(float(number) * UNITS[unit])
    except (ValueError, OverflowError):
        raise ConfigurationError(
            f"--most is a number of bytes, such as 500G, 20M or 1000000: {text!r:.80}"
        ) from None
