"""`ullage submit`: give a turn to any free worker, and wait for its answer if asked."""

from __future__ import annotations

import argparse
import asyncio
import json
import shlex
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from ullage.cli import desk, lines, stream
from ullage.cli.run import TEXT
from ullage.cli.stdin import read_prompt
from ullage.cli.worker import add_engine
from ullage.core.errors import ConfigurationError
from ullage.storage import hide_password
from ullage.storage.place import MADE, find_new_folder

if TYPE_CHECKING:
    from ullage.workers.job import JobOutcome
    from ullage.workers.queue import JobQueue, Ticket

SUMMARY = "have a turn run by a worker: its id, or its answer with --wait"

EPILOG = """exit codes:
  0 submitted, or an answer, 1 error, 2 usage or not found, 6 no answer, 130 cancelled"""

CODES: Final[Mapping[str, int]] = {"done": 0, "failed": 6, "cancelled": 130}


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.epilog = EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("text", nargs="?", help=TEXT)
    parser.add_argument("--session", metavar="NAME", help="go on in this session (else a new one)")
    parser.add_argument("--tenant", metavar="NAME", help="the tenant of the job (default)")
    parser.add_argument(
        "--priority", type=int, metavar="N", help="-100 to 100, among this tenant's jobs (0)"
    )
    parser.add_argument(
        "--key", metavar="TEXT", help="two jobs of a tenant with one key are one job"
    )
    parser.add_argument("--agent", metavar="NAME", help="the worker's agent (default)")
    parser.add_argument("--plan", action="store_true", help="plan mode: read only, show a plan")
    parser.add_argument("--permission", choices=("auto", "ask", "read_only"))
    parser.add_argument("--max-iterations", type=int, metavar="N", help="the most model calls")
    parser.add_argument("--wait", action="store_true", help="wait for the answer and print it")
    stream.add_arguments(parser)
    desk.add_log(parser)
    add_engine(parser)


def run(given: argparse.Namespace) -> int:
    """Submit; the exit code tells the result."""
    text = read_prompt(given.text)
    if text is None or not text.strip():
        raise ConfigurationError("there is nothing to say: give a text, or pipe one into stdin")
    from ullage.workers.queue import JobQueue

    url = desk.store_url(given)
    new = find_new_folder(url)
    with JobQueue(url, given.engine) as queue:
        if new is not None:
            desk.say(MADE.format(folder=new))
        ticket = queue.submit(
            given.session or uuid.uuid4().hex[:12],
            text,
            tenant=given.tenant,
            priority=given.priority,
            key=given.key,
            agent=given.agent,
            mode="plan" if given.plan else None,
            permission=given.permission,
            max_iterations=given.max_iterations,
        )
        if given.events:
            return _finish(ticket, asyncio.run(_print_events(ticket)), given)
        if given.wait:
            return _finish(ticket, ticket.result(), given)
        _tell(queue, ticket, given)
    return 0


def _describe_worker(given: argparse.Namespace) -> str:
    """Return the command of a worker that would take the job."""
    options = {"--store": given.store and hide_password(given.store), "--engine": given.engine}
    named = [f"{name} {shlex.quote(value)}" for name, value in options.items() if value]
    return " ".join(["ullage worker", *named, "--base-url URL --model MODEL"])


def _tell(queue: JobQueue, ticket: Ticket, given: argparse.Namespace) -> None:
    if given.json:
        made = {"job": ticket.id, "session": ticket.session, "store": queue.store}
        lines.out(json.dumps(made, indent=2))
    else:
        lines.out(ticket.id)
        desk.say(
            f"session {ticket.session}; a worker runs the job. Start one where none runs: "
            f"{_describe_worker(given)}"
        )


async def _print_events(ticket: Ticket) -> JobOutcome:
    written = stream.EventStream()
    async for told in ticket.events():
        written.hear(told)
    return await ticket.aresult()


def _finish(ticket: Ticket, outcome: JobOutcome, given: argparse.Namespace) -> int:
    """Print how the job ended; return the exit code."""
    made = {
        "job": ticket.id,
        "session": outcome.session,
        "outcome": outcome.state,
        "text": outcome.text,
        "reason": outcome.reason,
        "error": outcome.error,
    }
    if given.events:
        lines.out(json.dumps({"v": stream.VERSION, "kind": "ended", **made}))
    elif given.json:
        lines.out(json.dumps(made, indent=2))
    elif outcome.ok:
        lines.out(outcome.text)
    if not outcome.ok:
        desk.say(f"ullage: {outcome.error} ({outcome.reason})")
    return CODES[outcome.state]
