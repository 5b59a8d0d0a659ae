"""`ullage run`: run one turn of a session, with its answer on stdout."""

from __future__ import annotations

import argparse
import shlex
import sys
from dataclasses import replace

from ullage.agent import Agent, Ended, Session
from ullage.agent.continuing import follow_session
from ullage.cli import activity, desk, endpoint, lines, origin, stream
from ullage.cli.stdin import read_prompt
from ullage.core.errors import ConfigurationError
from ullage.storage.postgres_url import hide_password

SUMMARY = "run one turn: the answer on stdout, what happens on stderr"

TEXT = "the prompt; piped stdin is added to it, and - means stdin alone"

EPILOG = """exit codes:
  0 answer, 1 error, 2 usage or not found, 3 permission denied, 5 another writer is at work,
  6 no answer or capped, 124 the model fell silent, 130 interrupted
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.epilog = EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("text", nargs="?", help=TEXT)
    parser.add_argument("--session", metavar="NAME", help="go on in this session (else a new one)")
    stream.add_arguments(parser)
    parser.add_argument("--quiet", action="store_true", help="nothing on stderr but errors")
    desk.add_log(parser)
    endpoint.add_model(parser)
    desk.add_work(parser)


def run(given: argparse.Namespace) -> int:
    """Run the turn; the exit code tells how it ended."""
    text = read_prompt(given.text)
    if text is None or not text.strip():
        raise ConfigurationError("there is nothing to say: give a text, or pipe one into stdin")
    with desk.lend_log(given, create=True) as log:
        found = None
        if given.session is not None:
            found = desk.find_open_session(log, given.session, take_over=given.take_over)
        given = given if found is None else origin.complete(given, found)
        with endpoint.lend_provider(given) as provider:
            agent = desk.make_agent(given, provider)
            with found or Session.create(log) as session:
                return one(agent, session, text, given)


def one(agent: Agent, session: Session, text: str | None, given: argparse.Namespace) -> int:
    """Run one turn, or continue the one that was cut off, and print how it ended."""
    streams = lines.is_terminal(sys.stdout) and not (given.json or given.events)
    shown = activity.Activity(quiet=given.quiet, streams=streams)
    if not given.quiet:
        desk.say_guides(agent)
    session.hear(shown.hear)
    written = stream.EventStream()
    if given.events:
        session.hear(written.hear)
    options = desk.turn_options(given)
    options["ask"] = shown.ask
    before = session.fold.head
    try:
        if text is None:
            ended = activity.run_work(agent.aresume(session, **options), shown.tick)
        else:
            ended = activity.run_work(agent.arun(session, text, **options), shown.tick)
    except KeyboardInterrupt:
        now = follow_session(session)
        moved = now.name != session.name
        ended = activity.read_interrupted_turn(now.events(after=0 if moved else before))
        ended = replace(ended, continued=now.name if moved else "")
    finally:
        shown.end()
    if ended is None:
        raise ConfigurationError(
            f"session {session.name} has no turn that was cut off or failed: say something to "
            f"go on, ullage resume {session.name} TEXT"
        )
    if given.events:
        written.end(session, ended)
    elif given.json:
        lines.out(activity.document(session, ended))
    elif ended.ok and not shown.has_answered:
        lines.out(lines.visible(ended.text) if streams else ended.text)
    _tell(ended.continued or session.name, ended, given)
    return activity.code(ended)


def _tell(name: str, ended: Ended, given: argparse.Namespace) -> None:
    """Report on stderr how the turn ended, and how to continue."""
    if not ended.ok:
        desk.say(f"ullage: {ended.error} ({ended.reason})")
        store = _store(given)
        desk.say(f"try it again: ullage resume {name}{store}")
        desk.say(f"go on with: ullage resume {name} TEXT{store}")
        return
    if ended.stop == "length":
        desk.say(activity.CUT)
    if not given.quiet:
        desk.say(f"session {name}")


def _store(given: argparse.Namespace) -> str:
    """Return the option that names the log, if it was given without a password in it."""
    if given.store is None or hide_password(given.store) != given.store:
        return ""
    return f" --store {shlex.quote(given.store)}"
