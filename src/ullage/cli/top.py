"""`ullage top`: a live view of conversations; `ullage` alone in a terminal is the same."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from typing import TYPE_CHECKING

from ullage.cli import desk, lines
from ullage.cli.face import add_sources, make_sources
from ullage.core.errors import ConfigurationError
from ullage.core.errors.extras import explain_missing
from ullage.runtime import default

if TYPE_CHECKING:
    from ullage.live.values import LiveSession
    from ullage.top.station import Station

SUMMARY = "every conversation of this machine, or of a proxy, live in the terminal"

EPILOG = """Keys: Enter opens one, / filters, s sorts by the next column, r turns the order, q
quits. Without arguments and in a terminal, `ullage` does the same."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.epilog = EPILOG
    add_sources(parser)
    parser.add_argument("--proxy", metavar="URL", help="a running proxy, instead of all that")
    parser.add_argument(
        "--token-env", metavar="NAME", help="the variable with the token that the proxy wants"
    )
    parser.add_argument("--once", action="store_true", help="print the conversations and end")
    parser.add_argument("--json", action="store_true", help="with --once: one JSON document")


def run(given: argparse.Namespace) -> int:
    """Show the screen until the person leaves, or print once."""
    if given.json and not given.once:
        raise ConfigurationError("--json prints once: give --once as well")
    station = make_station(given)
    if given.once:
        return asyncio.run(_print_once(station, as_json=given.json))
    try:
        from ullage.top.app import Top
    except ModuleNotFoundError as error:
        raise explain_missing("ullage top", error.name) from error
    if not (lines.fits(sys.stderr) or lines.fits(sys.stdout)):
        raise ConfigurationError(
            "this is no terminal to draw on: `ullage top --once` prints the rows"
        )
    Top(station).run()
    return 0


def make_station(given: argparse.Namespace) -> Station:
    """Return the source of the screen; raises ConfigurationError without one."""
    from ullage.live.desk import LiveDesk
    from ullage.live.programs import MOST, READ
    from ullage.top.station import Here, There

    if given.proxy is None:
        if given.token_env is not None:
            raise ConfigurationError("--token-env is for --proxy URL: sources here want no token")
        return Here(LiveDesk(make_sources(given, MOST if given.once else READ)))
    token = None
    if given.token_env is not None:
        token = os.environ.get(given.token_env)
        if not token:
            raise ConfigurationError(f"--token-env {given.token_env} names no variable that is set")
    return There(given.proxy, default().transport, token)


async def _print_once(station: Station, *, as_json: bool) -> int:
    try:
        rows = sorted(await station.list_rows(), key=lambda row: -row.at)
    finally:
        await station.aclose()
    if as_json:
        print(json.dumps({"conversations": [row.to_dict() for row in rows]}, indent=2))
        return 0
    for row in rows:
        lines.out(_draw_line(row))
    if not rows:
        desk.say("no conversation yet")
    return 0


def _draw_line(row: LiveSession) -> str:
    used = "?" if row.used is None else f"{row.used:,}"
    share = "" if row.used is None or not row.window else f" {row.used / row.window:.0%}"
    window = "?" if row.window is None else f"{row.window:,}"
    facts = (row.source, f"{used}/{window}{share}", row.model, row.title or row.id)
    return lines.brief("  ".join(filter(None, facts)), 200)
