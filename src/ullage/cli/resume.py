"""`ullage resume`: continue a session, with its unanswered turn or with a new one."""

from __future__ import annotations

import argparse

from ullage.cli import desk, endpoint, origin, stream
from ullage.cli import run as running
from ullage.cli.stdin import read_prompt

SUMMARY = "go on in a session: with its last turn, if that has no answer, or with something new"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.epilog = running.EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("session", help="its name, or how it begins")
    parser.add_argument("text", nargs="?", help=running.TEXT)
    stream.add_arguments(parser)
    parser.add_argument("--quiet", action="store_true", help="nothing on stderr but errors")
    desk.add_log(parser)
    endpoint.add_model(parser)
    desk.add_work(parser)


def run(given: argparse.Namespace) -> int:
    """Run the turn; the exit code tells how it ended."""
    text = read_prompt(given.text)
    with (
        desk.lend_log(given) as log,
        desk.find_open_session(log, given.session, take_over=given.take_over) as session,
    ):
        given = origin.complete(given, session)
        with endpoint.lend_provider(given) as provider:
            return running.one(desk.make_agent(given, provider), session, text, given)
