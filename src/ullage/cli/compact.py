"""`ullage compact`: the messages of a file made smaller, or what would be done."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import ullage
from ullage import importers
from ullage.contents import served
from ullage.core.errors import ConfigurationError
from ullage.core.policies.policy import Policy

SUMMARY = "make the messages of a file smaller, by the laws; --dry-run first"

POLICIES = ("ladder", "advisory", "auto_summary")


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
    parser.add_argument("--policy", choices=POLICIES, default="ladder")
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
        "policy": Policy.named(given.policy),
        "dry_run": given.dry_run,
    }
    if session.dialect != "openai_chat":
        options["dialect"] = session.dialect
    if given.target is not None:
        options["target_tokens"] = given.target
    if given.ratio is not None or given.target is None:
        options["target_ratio"] = 0.6 if given.ratio is None else given.ratio
    found = ullage.compact(session.current, **options)
    print(_said(found, dry=given.dry_run), file=sys.stdout if given.dry_run else sys.stderr)
    if not given.dry_run:
        _write(given.out, found.messages)
    return 0 if found.reached else 1


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
