"""`ullage pin`: protect a message of a session from compaction."""

from __future__ import annotations

import argparse

from ullage.cli import desk

SUMMARY = "keep a message of a session from every compaction, by the number of its event"

EPILOG = """`ullage show SESSION` numbers the events. A pinned message stays as it is in
every request; if it no longer fits, the turn says so."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.epilog = EPILOG
    parser.add_argument("session", help="its name, or how it begins")
    parser.add_argument("event", type=int, help="the number of an event of the message")
    parser.add_argument("--off", action="store_true", help="pin it no more")
    desk.add_log(parser)


def run(given: argparse.Namespace) -> int:
    """Pin or unpin the message."""
    with desk.lend_log(given) as log, desk.find_session(log, given.session) as session:
        session.pin(given.event, pinned=not given.off)
        desk.say(
            f"event {given.event} of session {session.name} is "
            f"{'pinned no more' if given.off else 'pinned'}"
        )
    return 0
