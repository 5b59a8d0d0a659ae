"""`ullage worker`: run the turns that were submitted to a queue, until it is told to drain."""

from __future__ import annotations

import argparse
import asyncio
import signal
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from functools import partial
from importlib import import_module
from typing import Any, Final

from ullage.agent import Agent
from ullage.cli import desk, endpoint, logs
from ullage.core.errors import ConfigurationError
from ullage.core.errors.extras import explain_missing
from ullage.storage.place import MADE, find_new_folder
from ullage.storage.postgres_url import hide_password
from ullage.workers.opening import ENGINES, choose_engine

SUMMARY = "run the turns of a queue: any number of workers, on any number of machines"

EPILOG: Final = """The queue is beside the log of --store: a file for the workers of one machine, or
PostgreSQL for any number. SIGTERM and Ctrl-C drain: no job more is taken, and those under way get
--drain-s seconds; a second one leaves them to other workers at once."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.epilog = EPILOG
    desk.add_log(parser)
    add_engine(parser)
    parser.add_argument("--name", help="what people call it (the name of this machine)")
    parser.add_argument("--slots", type=int, metavar="N", help="turns at once (4)")
    parser.add_argument(
        "--lease-s",
        type=float,
        metavar="SECONDS",
        help="silence after which a worker may be taken for dead; the same for all of a queue (30)",
    )
    parser.add_argument(
        "--drain-s",
        type=float,
        metavar="SECONDS",
        help="what turns under way get when it ends (30)",
    )
    parser.add_argument(
        "--agents",
        metavar="MODULE:NAME",
        help="agents of your own: an Agent, a mapping of them by name, or a function that returns "
        "either; the options of the model and of the work are not looked at then",
    )
    parser.add_argument(
        "--metrics-port", type=int, metavar="PORT", help="serve Prometheus text on 127.0.0.1"
    )
    logs.add_options(parser)
    endpoint.add_model(parser)
    desk.add_work(parser)


def add_engine(parser: argparse.ArgumentParser) -> None:
    """Declare the engine of a queue."""
    parser.add_argument(
        "--engine",
        choices=ENGINES,
        help="what keeps the queue (sqlite in a file, procrastinate in PostgreSQL)",
    )


def run(given: argparse.Namespace) -> int:
    """Work until a signal; return the exit code."""
    store = desk.store_url(given)
    engine = choose_engine(store, given.engine)
    try:
        from ullage.workers.worker import TurnWorker
    except ModuleNotFoundError as error:  # pragma: no cover - msgspec comes with the package
        raise explain_missing("ullage worker", error.name) from error
    from ullage.workers.counters import JobMetrics

    with ExitStack() as held:
        logs.begin_logging(held, given)
        agents = _find_agents(given, held)
        logs.apply_levels(given)
        metrics = JobMetrics()
        new = find_new_folder(store)
        worker = TurnWorker(
            store,
            agents,
            engine=engine,
            metrics=metrics,
            name=given.name,
            slots=given.slots,
            lease_s=given.lease_s,
            drain_s=given.drain_s,
        )
        if given.metrics_port is not None:
            from ullage.cli.scraping import serve_metrics

            held.enter_context(serve_metrics(given.metrics_port, metrics, store, engine))
        where = hide_password(store)
        said = [f"works for the {engine} queue of {where}; Ctrl-C drains"]
        if new is not None:
            said.insert(0, MADE.format(folder=new))
        logs.announce(given, "started", said, engine=engine, store=where)
        asyncio.run(_work(worker, partial(logs.announce, given)))
        logs.announce(given, "ended", [])
    return 0


async def _work(worker: Any, announce: Callable[[str, list[str]], None]) -> None:
    told = 0

    def hear() -> None:
        nonlocal told
        told += 1
        if told == 1:
            announce("draining", ["drains: takes no job more"])
            worker.drain()
        else:
            announce("leaving", ["leaves its running jobs to other workers"])
            worker.leave()

    loop = asyncio.get_running_loop()
    with suppress(NotImplementedError):  # Windows
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, hear)
    await worker.arun()


def _find_agents(given: argparse.Namespace, held: ExitStack) -> Agent | Mapping[str, Agent]:
    """Return the agents that the arguments name."""
    if given.agents is None:
        agent = desk.make_agent(given, held.enter_context(endpoint.lend_provider(given)))
        if given.log_format == "text":
            desk.say_guides(agent)
        return agent
    module, _, name = given.agents.partition(":")
    try:
        found = getattr(import_module(module), name or "agents")
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigurationError(
            f"--agents {given.agents} cannot be loaded ({error}): give MODULE:NAME of a module on "
            "Python's path"
        ) from error
    made = found() if callable(found) else found
    agents = made.values() if isinstance(made, Mapping) else [made]
    if not agents or not all(isinstance(agent, Agent) for agent in agents):
        raise ConfigurationError(
            f"--agents {given.agents} is {made!r:.80}: expected an Agent, or a mapping of them"
        )
    return made  # type: ignore[no-any-return]  # looked at above
