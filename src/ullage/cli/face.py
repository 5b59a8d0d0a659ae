"""Builds the pages: a proxy's conversations, or sessions of logs and programs.

The caller serves them.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import platformdirs

from ullage import config
from ullage.agent import Agent, Session
from ullage.cli import desk, offline, origin, recorded, replay
from ullage.core.compaction.checkpoint import Checkpoint
from ullage.core.errors import ConfigurationError
from ullage.core.summary.flaws import name_strategies
from ullage.importers.places import SOURCES as PROGRAMS
from ullage.importers.places import folders
from ullage.live.logs import LogHands, LogSource
from ullage.live.programs import READ, ProgramSource
from ullage.live.source import LiveSource, NotPossible
from ullage.storage import open_log
from ullage.storage.place import SESSIONS, default_url

if TYPE_CHECKING:
    from ullage.pages.app import LivePages
    from ullage.proxy.app import App

OWN: Final = "ullage"
RECENT: Final = 200
"""Last events that are searched for the last report of a session."""

KINDS: Final = (OWN, *PROGRAMS)
"""The possible values of `--from`."""


def make_face(app: App) -> LivePages:
    """Return the pages of a proxy."""
    from ullage.cli.serve import clients
    from ullage.live.desk import LiveDesk
    from ullage.pages.app import About, LivePages
    from ullage.proxy.pages import LINKS, VIEWER
    from ullage.proxy.source import ProxySource

    def tell(scope: Mapping[str, Any]) -> dict[str, Any]:
        host = next((v.decode("latin-1") for k, v in scope["headers"] if k == b"host"), "")
        root = f"http://{host}"
        upstreams = [one.name for one in app.serve.upstreams]
        told = {"address": root, "upstreams": upstreams, "clients": clients(root)}
        return {**told, "pages": dict(LINKS)}

    names = ", ".join(one.name for one in app.serve.upstreams)
    watching = LiveDesk([ProxySource(app)], app.watch.feed)
    about = About(f"guards {names}", tell, find_replays())
    return LivePages(watching, lambda scope: scope.get(VIEWER), about)


def find_replays() -> Path:
    """Return the folder in the user's cache for the results of replays."""
    held = config.load().settings.cache_dir
    return Path(held or platformdirs.user_cache_dir("ullage", appauthor=False)) / "replays"


def add_sources(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments for the sources."""
    desk.add_log(parser)
    parser.add_argument(
        "--from",
        dest="sources",
        metavar="WHAT",
        help=f"sources to watch, with commas between: {', '.join(KINDS)} (all that is there)",
    )


def make_sources(given: argparse.Namespace, most_read: int = READ) -> list[LiveSource]:
    """Return the named sources, or all existing ones without a name.

    `most_read` is the number of a program's files that one look reads. Raises ConfigurationError
    for an unknown name, or if there is no source.
    """
    kinds = [name.strip() for name in (given.sources or "").split(",") if name.strip()]
    unknown = sorted(set(kinds) - set(KINDS))
    if unknown:
        raise ConfigurationError(
            f"--from {unknown[0]}: sessions of {', '.join(KINDS)} can be watched"
        )
    made: list[LiveSource] = []
    url = desk.store_url(given)
    if OWN in kinds or (not kinds and _is_there(url)):
        made.append(LogSource(open_log(url, create=False), _make_hands(url)))
    for name in PROGRAMS:
        if name in kinds or (not kinds and any(map(Path.is_dir, folders(name, os.environ)))):
            made.append(ProgramSource(name, os.environ, most_read=most_read))
    if not made:
        raise ConfigurationError(
            "there is nothing to watch yet: no session of `ullage run` or `ullage chat`, and no "
            "folder of Claude Code, Codex or opencode; --store URL names a log, --from a program"
        )
    return made


def _is_there(url: str) -> bool:
    return url != default_url(SESSIONS) or Path(url.partition(":")[2]).is_file()


def _make_hands(url: str) -> LogHands:
    """Return the actions that need a session's own model and tools, as the commands do them."""

    def report(name: str) -> Mapping[str, Any]:
        asked = argparse.Namespace(session=name, store=url)
        return recorded.read_session(asked, recorded.ShownWindow()).to_dict()

    def uncompact(name: str) -> Checkpoint | None:
        with _lend_agent(url, name) as (agent, session):
            return agent.uncompact(session)

    def preview(name: str, policy: str) -> Mapping[str, Any]:
        with _lend_agent(url, name, policy or "ladder") as (agent, session):
            done = asyncio.run(agent.acompact(session, target_ratio=0.5, dry_run=True))
        outcome = done.view.compaction
        if outcome is None:
            return {"policy": policy, "changed": False, "reason": done.reason}
        return {
            "policy": policy or "ladder",
            "before": outcome.before.tokens,
            "after": outcome.after.tokens,
            "strategy": name_strategies(outcome.strategy, outcome.fallback_reason),
            "reached": outcome.reached,
        }

    return LogHands(report, uncompact, preview)


def _find_window(session: Session) -> int | None:
    """Return the window of the last report, or None without one."""
    head = session.fold.head
    for event in reversed(session.events(after=max(0, head - RECENT))):
        context = event.data.get("context") if event.type == "provider_usage" else None
        if isinstance(context, Mapping) and type(context.get("window")) is int:
            return int(context["window"])
    return None


@contextmanager
def _lend_agent(url: str, name: str, policy: str | None = None) -> Iterator[tuple[Agent, Session]]:
    """Lend a session with an agent of its own model, whose server is only asked for its window."""
    parser = argparse.ArgumentParser()
    replay.arguments(parser)
    given = parser.parse_args([name, "--store", url])
    with desk.lend_log(given) as log, desk.find_session(log, name) as session:
        given = origin.complete_work(given, session)
        given.policy = policy if policy is not None else given.policy
        with offline.lend_model(given, session) as lent:
            window = lent.window or _find_window(session)
            work = argparse.Namespace(**{**vars(given), "window": window})
            try:
                agent = desk.make_agent(work, lent.provider)
            except ConfigurationError as error:
                raise NotPossible(str(error)) from error
            agent.runtime = lent.runtime
            yield agent, session
