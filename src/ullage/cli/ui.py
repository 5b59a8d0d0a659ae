"""`ullage ui`: conversations live in a browser: of ullage's own log, Claude Code and Codex.

The proxy shows its conversations itself, at its own address.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from ullage.cli import desk, logs
from ullage.cli.face import add_sources, find_replays, make_sources
from ullage.config.serving import SHORTEST, loopback
from ullage.core.errors import ConfigurationError
from ullage.core.errors.extras import explain_missing
from ullage.workers.job import blank_texts
from ullage.workers.opening import ENGINES

SUMMARY = "watch and steer conversations in a browser: your sessions, Claude Code's, Codex'"

EPILOG = """Shows every source that exists; --from limits it. A proxy shows its
conversations at its own address (ullage serve). Nothing is loaded from elsewhere."""

PORT = 8791
DRAIN_S = 1.0


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.epilog = EPILOG
    add_sources(parser)
    parser.add_argument(
        "--queue",
        nargs="?",
        const="",
        choices=("", *ENGINES),
        metavar="ENGINE",
        help="also watch the queue of turns: waiting jobs, running jobs and workers",
    )
    parser.add_argument("--host", default="127.0.0.1", help="the address to bind to (127.0.0.1)")
    parser.add_argument(
        "--port", type=int, default=PORT, help=f"the port ({PORT}); 0 takes a free one"
    )
    parser.add_argument(
        "--token-env",
        metavar="NAME",
        help="the variable with the token that browsers must show; needed beyond this machine",
    )
    logs.add_options(parser)


def run(given: argparse.Namespace) -> int:
    """Serve the pages until a signal."""
    token = _read_token(given)
    try:
        from ullage.cli.serve import bind_socket, serve_pages
        from ullage.live.desk import LiveDesk
        from ullage.pages.alone import Alone
        from ullage.pages.app import About
    except ModuleNotFoundError as error:
        raise explain_missing("ullage ui", error.name) from error
    sources = make_sources(given)
    listening = bind_socket(given.host, given.port)
    with ExitStack() as held, listening, _lend_queue(given) as queue:
        logs.begin_logging(held, given)
        names = ", ".join(source.name for source in sources)
        pages = {} if queue is None else {"pages": {"/ullage/queue": "what waits and runs"}}
        about = About(f"watches {names}", lambda _: pages, find_replays(), queue)
        app = Alone(LiveDesk(sources), about, host=given.host, token=token)
        host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(given.host, given.host)  # noqa: S104
        address = f"http://{host}:{listening.getsockname()[1]}/"
        logs.announce(given, "started", [f"watching {names}: {address}"], address=address)
        code = serve_pages(app, listening, DRAIN_S)
        logs.announce(given, "ended", [], code=code)
        return code


@contextmanager
def _lend_queue(given: argparse.Namespace) -> Iterator[Callable[[], dict[str, Any]] | None]:
    """Lend a function that reports the watched queue, or None without one."""
    if given.queue is None:
        yield None
        return
    from ullage.workers.queue import JobQueue

    with JobQueue(desk.store_url(given), given.queue or None) as queue:
        yield lambda: blank_texts(queue.report())


def _read_token(given: argparse.Namespace) -> str | None:
    if given.token_env is None:
        if not loopback(given.host):
            raise ConfigurationError(
                f"--host {given.host} can be reached from other machines, and no token is set: "
                "give --token-env NAME, or bind to 127.0.0.1"
            )
        return None
    token = os.environ.get(given.token_env, "")
    if len(token) < SHORTEST:
        raise ConfigurationError(
            f"--token-env {given.token_env} holds no secret: give {SHORTEST} or more characters"
        )
    return token
