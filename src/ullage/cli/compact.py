"""`ullage compact`: make the messages of a file, or a session, smaller, or show the plan."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import ullage
from ullage import importers
from ullage.agent import Agent
from ullage.agent.agent import Compacting
from ullage.agent.session import Live, Told
from ullage.api.context import strip_window_mark
from ullage.cli import desk, endpoint, lines, notes, offline, origin, progress
from ullage.config.settings import SAME
from ullage.core.compaction.checkpoint import Checkpoint
from ullage.core.compaction.plan import Outcome
from ullage.core.compaction.policy import Policy
from ullage.core.compaction.reasons import explain_unchanged, name_most
from ullage.core.dialects import registry
from ullage.core.errors import ConfigurationError, UnknownSession
from ullage.core.summary.flaws import BY_RULE, explain_flaw, name_strategies
from ullage.importers.files import is_file
from ullage.runtime import default
from ullage.tools import Executor, Sandbox
from ullage.windows import Question

SUMMARY = "make the messages of a file, or a session, smaller, by the laws; --dry-run first"

RATIO: Final = 0.6
"""The share of the window to reach by default."""

TURNS: Final = 10
"""Further calls for the estimate of a saving: a typical piece of an agent's work."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "file",
        metavar="FILE|SESSION",
        help="messages or a request (JSON or JSON lines), a session file, or - for stdin; where "
        "there is no such file, the name of a session or its beginning",
    )
    parser.add_argument("--target", type=int, metavar="TOKENS", help="the size to reach")
    parser.add_argument(
        "--ratio",
        type=float,
        help=f"the size to reach as a share of the window, not of the file ({RATIO})",
    )
    endpoint.add_policy(parser)
    endpoint.add_summarizer(parser)
    parser.add_argument("--dry-run", action="store_true", help="say what would be done")
    parser.add_argument(
        "--store",
        metavar="URL",
        help="for a file: keep the dropped texts there, for ullage recall; for a session: the log "
        "that holds it",
    )
    files = parser.add_argument_group("files")
    files.add_argument(
        "--from",
        dest="source",
        choices=importers.SOURCES,
        help="the program that wrote it (else recognised)",
    )
    files.add_argument("--out", metavar="FILE", help="where the messages go (else to stdout)")
    sessions = parser.add_argument_group("sessions, as they are run")
    sessions.add_argument(
        "--workspace", metavar="DIR", help="the folder that its tools work in (its own, or here)"
    )
    sessions.add_argument(
        "--tools", action=argparse.BooleanOptionalAction, help="it has tools, or none"
    )
    endpoint.add_model(parser)


FILES: Final = ("source", "out")
SESSIONS: Final = ("embedded", "api_key_env", "workspace", "tools")


def run(given: argparse.Namespace) -> int:
    """Do the work; exit code 1 if the target is missed."""
    if given.file == "-" or is_file(given.file):
        _without(given, SESSIONS, "sessions")
        if given.summarizer != SAME:
            _without(given, ("base_url",), "sessions, and for --summarizer same")
        return _file(given)
    _without(given, FILES, "files")
    return _compact_session(given)


def _without(given: argparse.Namespace, names: tuple[str, ...], whose: str) -> None:
    found = [name for name in names if getattr(given, name) is not None]
    if found:
        option = {"source": "from"}.get(found[0], found[0].replace("_", "-"))
        other = "no file that is there" if whose == "files" else "a file"
        raise ConfigurationError(f"--{option} is for {whose}, and {given.file} is {other}")


# ── a session ───────────────────────────────────────────────────────────────────────────────────


def _compact_session(given: argparse.Namespace) -> int:
    """Compact a session of the log; the result goes to stdout."""
    with desk.lend_log(given) as log:
        try:
            session = desk.find_session(log, given.file)
        except UnknownSession as error:
            raise UnknownSession(f"there is no file {given.file}, and {error}") from error
        given = origin.complete_work(given, session)
        with (
            session,
            offline.lend_model(given, session) as lent,
            progress.watch("compacting") as bar,
        ):
            workspace = Path(given.workspace or ".")
            agent = Agent(
                lent.provider,
                workspace=workspace,
                executor=(lambda _: Executor(workspace, tools=()))
                if given.tools is False
                else None,
                shell=Sandbox(),
                policy=_policy(given),
                summarizer=endpoint.find_summarizer(given, lent.provider.model),
                window=lent.window,
                runtime=lent.runtime,
                subagents=given.subagents or None,
            )
            session.hear(_watch_session(bar))
            made = agent.acompact(
                session,
                target_tokens=given.target,
                target_ratio=_ratio(given),
                dry_run=given.dry_run,
            )
            done = asyncio.run(made)
        return _report(done, given, agent.provider.model)


def _report(done: Compacting, given: argparse.Namespace, model: str) -> int:
    """Print the result or the plan; return the exit code."""
    outcome, count = done.view.compaction, done.view.prepared.count
    if outcome is None:
        target = _target(done, given)
        print(f"nothing changed: {explain_unchanged(done.reason, target, count)}")
        return 0 if count.high <= target else 1
    print(_format_outcome(outcome, dry=given.dry_run))
    if given.dry_run:
        _list(outcome)
    if done.checkpoint is not None:  # pragma: no branch - there is one where there is an outcome
        print(_pays(done.checkpoint, model))
    return 0 if outcome.reached else 1


def _target(done: Compacting, given: argparse.Namespace) -> int:
    """Return the target size in tokens; from a share, it needs a known window."""
    if given.target is not None:
        return int(given.target)
    return int((done.view.window.input_tokens or 0) * (_ratio(given) or RATIO))


def _ratio(given: argparse.Namespace) -> float | None:
    """Return the target share of the window, or None if only a size was given."""
    if given.ratio is None and given.target is not None:
        return None
    return RATIO if given.ratio is None else float(given.ratio)


def _policy(given: argparse.Namespace) -> Policy | None:
    return None if given.policy is None else Policy.from_name(given.policy)


def _watch_session(bar: progress.Bar) -> Callable[[Told], None]:
    """Return a listener that draws the progress of a session's summary."""

    def hear(event: Told) -> None:
        told = event.data if isinstance(event, Live) else {}
        if told.get("state") == "summarising" and "total" in told:
            _report_answers(bar, told["done"], told["total"])

    return hear


def _report_answers(bar: progress.Bar, done: int, total: int | None) -> None:
    """Draw the number of answered requests for a summary."""
    if bar.unit != "answers":
        bar.begin("summarising", "answers")
    bar(done, total if done else None)  # the seconds show until the first one


# ── a file ──────────────────────────────────────────────────────────────────────────────────────


def _file(given: argparse.Namespace) -> int:
    """Print the messages or the plan, and the result on stderr; exit code 1 for a missed size."""
    with progress.watch(f"reading {Path(given.file).name}") as bar:
        session = importers.load(given.file, source=given.source, report=bar)
    notes.warn(session)
    notes.check_model(strip_window_mark(given.model))
    options: dict[str, Any] = {
        "model": strip_window_mark(given.model or session.model),
        "window": session.window_tokens if given.window is None else given.window,
        "tools": list(session.tools) or None,
        "system": session.system,
        "policy": _policy(given),
        "dry_run": given.dry_run,
    }
    if session.dialect != registry.DEFAULT:
        options["dialect"] = session.dialect
    if given.target is not None:
        options["target_tokens"] = given.target
    if _ratio(given) is not None:
        options["target_ratio"] = _ratio(given)
    with _store(given) as store, progress.watch("compacting") as bar:
        options["summarizer"] = endpoint.find_summarizer(given, options["model"])
        options["base_url"] = given.base_url
        options["report"] = partial(_report_answers, bar)
        found = ullage.compact(session.current, store=store, **options)
    to = sys.stdout if given.dry_run else sys.stderr
    for flaw in found.flaws:
        desk.say(f"ullage: {flaw}")
    print(_format_outcome(found.outcome, dry=given.dry_run), file=to)
    if found.checkpoint is not None:
        print(_pays(found.checkpoint, options["model"]), file=to)
    if given.dry_run:
        _list(found.outcome)
    else:
        _write(given.out, session.rebuild(found.messages))
    return 0 if found.reached else 1


def _list(outcome: Outcome) -> None:
    """Print a line for each removed or shortened message, and the text that replaces them."""
    rows = list(outcome.changes())
    if not rows:
        return
    lines.out(f"{'message':>8}  {'role':10} {'tokens':>8} {'after':>8}  {'by':16} begins")
    for row in rows:
        after = "gone" if row.after is None else f"{row.after:,}"
        called = " ".join(f"{call.name}({call.arguments})" for call in row.message.calls)
        words = lines.brief(row.message.text or called or "(no text)", WORDS)
        head = f"{row.position:>8,}  {row.message.role:10.10} {row.before:>8,} {after:>8}"
        lines.out(f"{head}  {row.strategy:16} {words}")
    for insert in outcome.script.inserts:
        words = lines.brief(insert.text, WORDS)
        lines.out(f"{'new':>8}  {insert.role:10.10} {'':>8} {'':>8}  {'block':16} {words}")


WORDS: Final = 48
"""Cells for the beginning of a message in a list."""


@contextmanager
def _store(given: argparse.Namespace) -> Iterator[ullage.Store | None]:
    """Lend the named store; a dry run opens none."""
    if given.store is None or given.dry_run:
        yield None
        return
    store = ullage.open_store(given.store)
    try:
        yield store
    finally:
        store.close()


def _pays(made: Checkpoint, model: str | None) -> str:
    """Return the saving over the next ten calls, against the lost cached prefix."""
    prices = default().windows.prices(Question(model)) if model is not None else ()
    saved = made.saving(TURNS, prices)
    dollars = f", about ${saved.dollars:.4f}" if prices and saved.dollars is not None else ""
    reason = made.fallback_reason
    by = f"; {BY_RULE} ({explain_flaw(reason)})" if reason else ""
    seen = f"; the summarizer saw {made.seen:.0%} of it" if made.seen is not None else ""
    return (
        f"saves {saved.tokens:,} tokens over {TURNS} more calls{dollars}; "
        f"{made.cached_tokens_lost:,} tokens are no longer cached{by}{seen}"
    )


def _format_outcome(found: Outcome, *, dry: bool) -> str:
    """Return the result or the plan in one line."""
    if not found.changed:
        why = explain_unchanged(found.reason or "", found.target, found.before)
        return f"nothing changed: {why}"
    edits = Counter(type(edit).__name__.lower() for edit in found.script.edits())
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(edits.items()))
    did = "would go" if dry else "went"
    missed = "" if found.reached else f"; missed: {found.reason}"
    how = name_strategies(found.strategy, found.fallback_reason)
    how = f"by {how}" if found.fallback_reason is None else f"and is {how}"
    return f"{name_most(found.before)} {did} to {found.after.high:,} {how} ({kinds}){missed}"


def _write(name: str | None, messages: list[Any]) -> None:
    text = json.dumps(messages, ensure_ascii=True, indent=1)
    if name is None:
        print(text)
        return
    try:
        Path(name).write_text(text + "\n", "utf-8")
    except OSError as error:
        raise ConfigurationError(f"{name} cannot be written: {error}") from error
