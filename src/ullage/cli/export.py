"""`ullage export`: write a session as lines of JSON, to keep or to move it."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from ullage import config
from ullage.cli import desk, lines, progress
from ullage.cli.events import SessionEvents, print_lines
from ullage.cli.show import add_at
from ullage.core.errors import ConfigurationError
from ullage.core.messages.redaction import Redactor, find_keys
from ullage.core.session.log.erasing import chain_anew
from ullage.core.session.log.event import Draft, Event
from ullage.core.session.log.fold import FailedUser, Fold, Round, User
from ullage.storage import ndjson

NAMED: Final = 5
"""Most events that are named if they hold a secret."""

SUMMARY = "write a session as lines of JSON, each event as it was recorded"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("session", help="its name, or how it begins")
    parser.add_argument(
        "--out", metavar="FILE", default="-", help="a file that is not there yet (else stdout, -)"
    )
    add_at(parser)
    secrets = parser.add_mutually_exclusive_group()
    secrets.add_argument(
        "--redact",
        action="store_true",
        help="leave out what looks like keys, and the secrets of this environment; the events get "
        "new ids",
    )
    secrets.add_argument(
        "--with-secrets", action="store_true", help="write texts that look like keys without asking"
    )
    desk.add_log(parser)


def run(given: argparse.Namespace) -> int:
    """Write the session; only the owner can read the file."""
    with desk.lend_log(given) as log:
        session = desk.find_session(log, given.session)
        with progress.watch(f"reading {session.name}", "events") as bar:
            events = SessionEvents(session, given.at)
            written = _scan(given, events)
            if given.out != "-":
                bar.begin(f"writing {session.name}", "events")
                ndjson.export(written, session.name, Path(given.out), bar, len(events))
        if given.out == "-":
            print_lines(written)
        else:
            desk.say(f"wrote {len(events):,} events of session {session.name} to {given.out}")
    return 0


def _scan(given: argparse.Namespace, events: SessionEvents) -> Iterable[Event]:
    """Return the events to write; events with secrets need an explicit option.

    Without one, raises ConfigurationError that names them.
    """
    if given.with_secrets:
        return events
    redactor = Redactor(config.credentials(), keys=True)
    what = _describe_secrets(events, events.session.name, redactor)
    if not what:
        return events
    if not given.redact:
        raise ConfigurationError(
            f"there seems to be a secret ({what}): nothing was written; --redact leaves it out, "
            "--with-secrets writes it"
        )
    desk.say(f"left out: {what}")
    return chain_anew((e, Draft(e.type, redactor.data(e.data), e.v)) for e in events)


def refuse_secrets(events: Iterable[Event], name: str) -> None:
    """Raise ConfigurationError if events seem to hold a secret."""
    if what := _describe_secrets(events, name, Redactor(config.credentials(), keys=True)):
        raise ConfigurationError(
            f"there seems to be a secret ({what}): nothing was written; ullage export {name} "
            "--redact leaves it out"
        )


def _describe_secrets(events: Iterable[Event], name: str, redactor: Redactor) -> str:
    """Return the events with secrets and the kinds of these, or ""."""
    held, kinds = list[int](), set[str]()
    for event in events:
        if redactor.text(event.text) != event.text:
            held.append(event.seq)
            kinds |= set(find_keys(event.text))
    if not held:
        return ""
    kinds = kinds or {"a known secret"}
    numbers = ", ".join(map(str, held[:NAMED]))
    more = f" and {len(held) - NAMED:,} more" if len(held) > NAMED else ""
    return f"{', '.join(sorted(kinds))} in event {numbers}{more} of session {name}"


def write_conversation(fold: Fold) -> str:
    """Return the conversation of a session as Markdown, with one line for each call."""
    told = [f"# Session {fold.session}"]
    for item in fold.items:
        if isinstance(item, User | FailedUser):
            told.append(f"## You\n\n{item.text}")
        elif isinstance(item, Round):
            told.append(f"## {item.model}")
            told += item.texts
            told += [f"- `{call.name}` {lines.brief(call.arguments, 100)}" for call in item.calls]
    return "\n\n".join(told) + "\n"
