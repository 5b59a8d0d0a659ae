"""`ullage replay`: print a session's request, as it is now or was at any of its events."""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

from ullage import config
from ullage.agent import Live, Session
from ullage.agent.session import Told
from ullage.cli import desk, endpoint, lines, offline, origin
from ullage.cli.events import SessionEvents
from ullage.cli.show import add_at
from ullage.core.compaction.policy import Policy
from ullage.core.session.caching import add_cache_hints, find_root
from ullage.core.tokens.window import Window
from ullage.guard.view import View
from ullage.providers.bodies import body
from ullage.storage.log_memory import MemoryLog

SUMMARY = "print what would be sent to the model now, as JSON; nothing is sent or recorded"

EPILOG = """The model and the server are the session's; the server is asked for its window alone.
If no server was recorded, or its key is missing, the model that answered last is taken, and no
server is asked. Give the arguments of `ullage run` to see the exact request of that run."""

UNUSED: Final = (
    "a compaction of this session is not used here: give the --base-url and --dialect it was run "
    "with"
)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.epilog = EPILOG
    parser.add_argument("session", nargs="?", help="its name, or how it begins (else the newest)")
    add_at(parser)
    parser.add_argument(
        "--json", action="store_true", help="one document with the gauge and the request"
    )
    desk.add_log(parser)
    endpoint.add_model(parser)
    desk.add_work(parser)


def run(given: argparse.Namespace) -> int:
    """Print the body of the request; how full the window is goes to stderr."""
    with lend_view(given) as (session, lent, view):
        held = session.fold
        place, root = lent.provider, find_root(held, session.name)
        fields = add_cache_hints(view.kwargs, place.options, root, place.dialect, place.base_url)
        sent = body(place, fields)
    if held.checkpoints and view.prepared.replayed is None:
        desk.say(UNUSED)
    desk.say(view.assessment.notice())
    if not given.json:
        print(json.dumps(sent, indent=1))
        return 0
    told: dict[str, Any] = {"session": session.name, "at": held.head, "request": sent}
    told["gauge"] = view.assessment.to_dict()
    told["window"] = view.window.explain()
    print(json.dumps(told, indent=1))
    return 0


UNBOUNDED: Final = 1_000_000_000
"""More tokens than any session has."""


@contextmanager
def lend_view(
    given: argparse.Namespace, *, as_it_is: bool = False
) -> Iterator[tuple[Session, offline.Lent, View]]:
    """Lend a session, its model, and its current request.

    With `as_it_is` no compaction is planned, and a request that does not fit is lent, too.
    """
    with desk.lend_log(given) as log:
        session = desk.find_session(log, given.session)
        if given.at is not None:
            session = _past(session, given.at)
        given = origin.complete_work(given, session)
        with offline.lend_model(given, session) as lent:
            window = UNBOUNDED if as_it_is else lent.window
            policy = _hold_still(given, session, lent) if as_it_is else None
            work = argparse.Namespace(**{**vars(given), "window": window})
            agent = desk.make_agent(work, lent.provider, policy)
            agent.runtime = lent.runtime
            if not as_it_is:
                session.hear(_tell)
            view = asyncio.run(agent.aview(session, **desk.turn_options(given)))
            yield session, lent, view


def _hold_still(given: argparse.Namespace, session: Session, lent: offline.Lent) -> Policy:
    """Return the session's policy without its rungs: it applies compactions, and plans none.

    It works on the window of the session, or on the one of the newest compaction. In a larger
    window that compaction would be left out, because the whole history fits.
    """
    policy = desk.read_policy(given) or Policy.read(config.load().settings.policy)
    newest = session.fold.checkpoints[-1][1] if session.fold.checkpoints else {}
    bound = lent.window or newest.get("resolved") or newest.get("bound") or None
    if bound is not None:
        bound = policy.narrow(Window(input_tokens=bound)).working_tokens
    return replace(policy, rungs=(), effective=bound, economic=None)


def _past(session: Session, at: int) -> Session:
    """Return the session at an event, in memory, so that nothing can be recorded."""
    log = MemoryLog()
    log.restore(list(SessionEvents(session, at)), time.time())
    return Session(log, session.name)


def _tell(event: Told) -> None:
    if isinstance(event, Live) and event.type == "status" and "text" in event.data:
        desk.say(lines.brief(event.data["text"], 400))
