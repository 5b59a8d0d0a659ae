"""`ullage validate`: check that a request keeps its protocol and fits its window."""

from __future__ import annotations

import argparse
from pathlib import Path

from ullage import importers
from ullage.api.context import strip_window_mark
from ullage.api.functions import validate
from ullage.cli import notes, progress

SUMMARY = "check that messages keep the protocol and fit the window; exit code 1 where not"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "file", help="messages or a request (JSON or JSON lines), a session file, or - for stdin"
    )
    parser.add_argument(
        "--from",
        dest="source",
        choices=importers.SOURCES,
        help="the program that wrote it (else recognised)",
    )
    parser.add_argument(
        "--model", help="the model whose window and vocabulary count (else the file's model)"
    )
    parser.add_argument("--base-url", help="the server that will be asked")
    parser.add_argument("--window", type=int, metavar="TOKENS", help="the window, in tokens")
    parser.add_argument("--max-tokens", type=int, metavar="TOKENS", help="the output asked for")


def run(given: argparse.Namespace) -> int:
    """Check, and report the checks; a fault is an error with its place and its fix."""
    with progress.watch(f"reading {Path(given.file).name}") as bar:
        session = importers.load(given.file, source=given.source, report=bar)
    notes.warn(session)
    notes.check_model(strip_window_mark(given.model))
    messages = session.current
    model = given.model or session.model
    validate(
        messages,
        window=session.window_tokens if given.window is None else given.window,
        max_tokens=session.max_tokens if given.max_tokens is None else given.max_tokens,
        model=strip_window_mark(model),
        tools=list(session.tools),
        system=session.system,
        dialect=session.dialect,
        base_url=given.base_url,
    )
    print(
        f"{given.file}: {len(messages):,} messages of {session.dialect} keep the protocol and fit"
    )
    return 0
