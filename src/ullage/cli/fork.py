"""`ullage fork`: begin a session that shares another one's beginning."""

from __future__ import annotations

import argparse

from ullage.cli import desk

SUMMARY = "begin a session that shares the events of another up to one of them"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("session", help="its name, or how it begins")
    parser.add_argument(
        "--at", type=int, metavar="N", help="the last event that is shared (else all)"
    )
    parser.add_argument("--name", help="what to name the new session (else by chance)")
    desk.add_log(parser)


def run(given: argparse.Namespace) -> int:
    """Print the name of the new session."""
    with (
        desk.lend_log(given) as log,
        desk.find_session(log, given.session) as session,
        session.fork(given.at, given.name) as made,
    ):
        forked = made.fold.forked
        desk.say(f"forked from {forked['parent']} at event {forked['seq']}")
        print(made.name)
    return 0
