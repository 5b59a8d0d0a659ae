"""The common parts of the session commands: log, model and session.

The module opens and starts what the arguments name, and closes it again. It does not know turns.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ullage import config
from ullage.agent import Agent, Session, TurnOptions
from ullage.agent import folders as skills
from ullage.agent.continuing import follow_session
from ullage.agent.overviews import Overviews
from ullage.agent.purging import list_old_sessions, purge_sessions
from ullage.cli import endpoint, lines, presenting
from ullage.core.compaction.policy import Policy
from ullage.core.errors import ConfigurationError, UnknownSession
from ullage.core.session.log.erasing import is_purged
from ullage.core.session.permissions import Rule
from ullage.providers import Provider
from ullage.storage import open_log
from ullage.storage.log import EventLog, Head
from ullage.storage.place import MADE, SESSIONS, default_url, find_new_folder
from ullage.storage.protocol import DAY_S
from ullage.tools import Executor, Sandbox, Workspace


def say(text: str) -> None:
    """Tell people something on stderr; only the answer goes to stdout."""
    lines.note(text)


# ── the log ─────────────────────────────────────────────────────────────────────────────────────


def add_log(parser: argparse.ArgumentParser) -> None:
    """Declare the place of sessions."""
    parser.add_argument(
        "--store",
        metavar="URL",
        help="where sessions are kept: sqlite:FILE or postgresql://... (else the setting `store`, "
        "else a file in the user's data folder)",
    )


def store_url(given: argparse.Namespace) -> str:
    """Return the URL of the place of sessions."""
    named = config.load(options=[("--store", "store", given.store)]).settings.store
    if named:
        return str(named)
    return default_url(SESSIONS)


@contextmanager
def lend_log(given: argparse.Namespace, *, create: bool = False) -> Iterator[EventLog]:
    """Lend the log; without `create` it must exist."""
    embeddings = config.load().settings.embeddings
    url = store_url(given)
    new = find_new_folder(url) if create else None
    log = open_log(url, create=create, embeddings=embeddings)
    try:
        if new is not None and not getattr(given, "quiet", False):
            say(MADE.format(folder=new))
        if create:
            _apply_retention(log)
        yield log
    finally:
        log.close()


def open_overviews(log: EventLog) -> Overviews:
    """Return the overviews of a log's sessions, kept in the configured cache folder."""
    import platformdirs

    held = config.load().settings.cache_dir
    return Overviews(
        log, Path(held) if held else platformdirs.user_cache_path("ullage", appauthor=False)
    )


def _apply_retention(log: EventLog) -> None:
    """Erase the sessions that are older than the setting `retention_days`; report how many."""
    days = config.load().settings.retention_days
    old = [] if days is None else list_old_sessions(log, time.time() - days * DAY_S)
    if old:
        done = purge_sessions(log, old)
        count = len(done.sessions)
        plural = "s"[: count != 1]
        say(f"{count:,} session{plural} older than {days:g} days erased (retention_days)")


def find_session(log: EventLog, name: str | None) -> Session:
    """Return the session with this name or beginning; without a name, the newest one.

    Raises UnknownSession for no match, and ConfigurationError for several.
    """
    heads = log.sessions()
    if name is None and heads:
        return _find_newest(log, heads)
    found = [head.session for head in heads if name is not None and head.session.startswith(name)]
    if name in found or len(found) != 1:
        if len(found) > 1 and name not in found:
            raise ConfigurationError(
                f"{len(found)} sessions begin with {name!r}: {', '.join(sorted(found)[:5])}: give "
                "more of the name"
            )
        if name not in found:
            what = "no session" if name is None else f"no session {name!r:.60}"
            raise UnknownSession(
                f"there is {what} in {log.url}: check the name and --store; `ullage sessions` "
                "lists what there is"
            )
        return Session(log, name)
    return Session(log, found[0])


def _find_newest(log: EventLog, heads: Sequence[Head]) -> Session:
    """Return the session that a person began last, not a subagent's if there is another.

    A session whose text was erased is skipped.
    """
    for head in reversed(heads):
        if is_purged(log.read(head.session, head.seq - 1)):
            continue
        if not any(event.data.get("parent") for event in log.read(head.session, upto=1)):
            return Session(log, head.session)
    return Session(log, heads[-1].session)


def find_open_session(log: EventLog, name: str | None, *, take_over: bool) -> Session:
    """Return the session of this name, or its continuation, which is reported.

    With `take_over`, this process becomes its writer from here on.
    """
    named = find_session(log, name)
    found = follow_session(named)
    if found.name != named.name:
        say(f"session {named.name} goes on in session {found.name}")
    if take_over and (taken := found.acquire(take_over=True).taken):
        say(f"taken over: {taken}")
    return found


# ── the agent ───────────────────────────────────────────────────────────────────────────────────


def add_work(parser: argparse.ArgumentParser) -> None:
    """Declare the rights and the equipment of the agent."""
    group = parser.add_argument_group("work")
    presenting.add_context(group)
    group.add_argument(
        "--workspace", metavar="DIR", help="the folder that tools work in (the session's, or here)"
    )
    group.add_argument(
        "--no-shell", dest="shell", action="store_false", help="no commands, not even sandboxed"
    )
    group.add_argument("--network", action="store_true", help="let commands use the network")
    group.add_argument(
        "--no-exit-gate",
        dest="gated",
        action="store_false",
        help="let commands with --network run unasked though the session holds private data and "
        "text of others",
    )
    group.add_argument("--allow-root", action="store_true", help="let commands run as root")
    group.add_argument(
        "--tools", action=argparse.BooleanOptionalAction, help="offer the model tools, or none"
    )
    group.add_argument("--plan", action="store_true", help="plan mode: read only, show a plan")
    group.add_argument(
        "--permission",
        choices=("auto", "ask", "read_only"),
        default="auto",
        help="whether changes are made, asked for, or refused (auto)",
    )
    for verdict in ("allow", "ask", "deny"):
        group.add_argument(
            f"--{verdict}-writes",
            action="append",
            default=[],
            metavar="GLOB",
            help=f"{verdict} writes to paths like this, whatever the permission",
        )
    group.add_argument("--dry-run", action="store_true", help="run no tool; say what each would do")
    add_guidance(group)
    group.add_argument(
        "--take-over",
        action="store_true",
        help="write to the session though another process does; its turn ends",
    )
    endpoint.add_policy(group)
    endpoint.add_summarizer(group)
    group.add_argument(
        "--max-iterations", type=int, metavar="N", help="the most calls of the model in a turn"
    )
    group.add_argument(
        "--subagents",
        type=int,
        metavar="DEPTH",
        help="let the model give tasks to subagents: 1, and these begin none; 2, and they may",
    )


def add_guidance(group: argparse._ActionsContainer) -> None:
    """Declare the additional guidance of a model: skills, the project's instructions."""
    group.add_argument(
        "--skills", metavar="DIR", action="append", default=[], help="a folder of SKILL.md folders"
    )
    group.add_argument(
        "--no-instructions",
        dest="instructions",
        action="store_false",
        help="do not read AGENTS.md (else CLAUDE.md) of the workspace and of the folders above it "
        "in its repository",
    )


def make_sandbox(given: argparse.Namespace) -> Sandbox:
    """Return the rights that the arguments give the shell."""
    return Sandbox(network=given.network, as_root=given.allow_root)


def explain_shell(given: argparse.Namespace) -> str:
    """Return why no command of the agent can run, or "" if commands run or are not wanted."""
    if not given.shell or given.tools is False:
        return ""
    return make_sandbox(given).lacking(Workspace(Path(given.workspace or ".")))


def read_policy(given: argparse.Namespace) -> Policy | None:
    """Return the policy that the arguments name, None if they name none."""
    return None if given.policy is None else Policy.from_name(given.policy)


def make_agent(
    given: argparse.Namespace, provider: Provider, policy: Policy | None = None
) -> Agent:
    """Return the agent that the arguments describe, with `policy` instead of theirs if given.

    Problems with skills are reported.
    """
    workspace = Path(given.workspace or ".")
    if not workspace.is_dir():
        raise ConfigurationError(f"--workspace {given.workspace} is no folder")
    rules = [
        *(Rule(glob, "deny") for glob in given.deny_writes),
        *(Rule(glob, "ask") for glob in given.ask_writes),
        *(Rule(glob, "allow") for glob in given.allow_writes),
    ]
    for folder in given.skills:
        if not Path(folder).is_dir():
            raise ConfigurationError(f"--skills {folder} is no folder")
    found = skills.load([Path(folder) for folder in given.skills], say)
    return Agent(
        provider,
        workspace=workspace,
        executor=(lambda _: Executor(workspace, tools=())) if given.tools is False else None,
        shell=make_sandbox(given) if given.shell else None,
        policy=policy or read_policy(given),
        summarizer=endpoint.find_summarizer(given, provider.model),
        window=None if given.embedded is not None else given.window,
        writes=rules,
        skills=found,
        subagents=given.subagents or None,
        gated=given.gated,
        instructions=given.instructions,
    )


def say_guides(agent: Agent) -> None:
    """Report which instructions of the project the model gets, and their problems."""
    for guide in agent.read_guides(tell=say):
        cut = "" if guide.whole else ", cut"
        say(f"instructions: {guide.source} ({len(guide.text):,} characters{cut})")


def turn_options(given: argparse.Namespace) -> TurnOptions:
    """Return the options of each turn."""
    return {
        "mode": "plan" if given.plan else "build",
        "permission": given.permission,
        "dry_run": given.dry_run,
        "max_iterations": given.max_iterations,
        "presenter_context": presenting.read_context(given.context),
    }


def confirm_loss(given: argparse.Namespace, what: str) -> None:
    """Ask the person for confirmation; raises ConfigurationError without a yes."""
    if given.yes:
        return
    if not lines.is_terminal(sys.stdin):
        raise ConfigurationError(f"{what} would be erased for good: confirm it with --yes")
    say(f"{what} will be erased for good, and nothing brings it back. Type yes to go on:")
    if input().strip().lower() != "yes":
        raise ConfigurationError("nothing was erased")
