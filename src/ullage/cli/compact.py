"""`ullage compact`: the messages of a file made smaller, or what would be done."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ullage
from ullage import importers
from ullage.contents import served
from ullage.core.checkpoint import Checkpoint
from ullage.core.errors import ConfigurationError
from ullage.core.policies.policy import Policy
from ullage.runtime import default
from ullage.windows import Question

SUMMARY = "make the messages of a file smaller, by the laws; --dry-run first"

TURNS = 10
"""Calls for which a saving is estimated: a piece of work more, as agents go."""

POLICIES = ("ladder", "advisory", "auto_summary", "trim_oldest", "summarise")


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "file", help="messages or a request (JSON or JSON lines), a session file, or - for stdin"
    )
    parser.add_argument(
        "--from", dest="source", choices=importers.SOURCES, help="who wrote it (else recognised)"
    )
    parser.add_argument("--target", type=int, metavar="TOKENS", help="the size to reach")
    parser.add_argument("--ratio", type=float, help="the share of the window to reach (0.6)")
    parser.add_argument("--window", type=int, metavar="TOKENS", help="the window, in tokens")
    parser.add_argument("--model", help="whose window and vocabulary (else the file's model)")
    parser.add_argument("--policy", choices=POLICIES, help="what to do (else clear, then trim)")
    parser.add_argument("--store", metavar="URL", help="keep what is left out, for ullage recall")
    parser.add_argument(
        "--summarizer", metavar="URL", help="base URL of the server that writes the summary"
    )
    parser.add_argument("--summarizer-model", metavar="ID", help="its model (else the --model)")
    parser.add_argument("--dry-run", action="store_true", help="say what would be done")
    parser.add_argument("--out", metavar="FILE", help="where the messages go (else to stdout)")


def run(given: argparse.Namespace) -> int:
    """Print the messages, or the plan; what was done goes to stderr. 1: the target is missed."""
    session = importers.load(given.file, source=given.source)
    options: dict[str, Any] = {
        "model": served(given.model or session.model),
        "window": session.window_tokens if given.window is None else given.window,
        "tools": list(session.tools) or None,
        "system": session.system,
        "policy": None if given.policy is None else Policy.named(given.policy),
        "dry_run": given.dry_run,
    }
    if session.dialect != "openai_chat":
        options["dialect"] = session.dialect
    if given.target is not None:
        options["target_tokens"] = given.target
    if given.ratio is not None or given.target is None:
        options["target_ratio"] = 0.6 if given.ratio is None else given.ratio
    if given.summarizer is not None:
        name = given.summarizer_model or options["model"]
        options["summarizer"] = ullage.Summarizer(name, base_url=given.summarizer)
    with _store(given) as store:
        found = ullage.compact(session.current, store=store, **options)
    to = sys.stdout if given.dry_run else sys.stderr
    print(_said(found, dry=given.dry_run), file=to)
    if found.checkpoint is not None:
        print(_pays(found.checkpoint, options["model"]), file=to)
    if not given.dry_run:
        _write(given.out, found.messages)
    return 0 if found.reached else 1


@contextmanager
def _store(given: argparse.Namespace) -> Iterator[ullage.Store | None]:
    """Lend the store that is named; a dry run opens none."""
    if given.store is None or given.dry_run:
        yield None
        return
    store = ullage.open_store(given.store)
    try:
        yield store
    finally:
        store.close()


def _pays(made: Checkpoint, model: str | None) -> str:
    """Return what it saves over the next ten calls, against the cached prefix that is lost."""
    prices = default().windows.prices(Question(model)) if model is not None else ()
    saved = made.saving(TURNS, prices)
    dollars = f", about ${saved.dollars:.4f}" if prices and saved.dollars is not None else ""
    by = f"; the summary is by rule ({made.fallback_reason})" if made.fallback_reason else ""
    seen = f"; the summarizer saw {made.seen:.0%} of it" if made.seen is not None else ""
    return (
        f"saves {saved.tokens:,} tokens over {TURNS} more calls{dollars}; "
        f"{made.cached_tokens_lost:,} tokens are no longer cached{by}{seen}"
    )


def _said(found: ullage.Compaction, *, dry: bool) -> str:
    """Return what was done, or would be, in one line."""
    if not found.changed:
        return f"nothing changed: {found.reason}; {found.before.high:,} tokens"
    edits = Counter(type(edit).__name__.lower() for edit in found.edits)
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(edits.items()))
    did = "would go" if dry else "went"
    missed = "" if found.reached else f"; missed: {found.reason}"
    return (
        f"{found.before.high:,} tokens {did} to {found.after.high:,} by {found.strategy} "
        f"({kinds}){missed}"
    )


def _write(name: str | None, messages: list[Any]) -> None:
    text = json.dumps(messages, ensure_ascii=True, indent=1)
    if name is None:
        print(text)
        return
    try:
        Path(name).write_text(text + "\n", "utf-8")
    except OSError as error:
        raise ConfigurationError(f"{name} cannot be written: {error}") from error
