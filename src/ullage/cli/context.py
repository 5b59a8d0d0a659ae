"""`ullage context`: show what fills the window of a conversation.

It reads a file or a session, and passes one report to the module that draws it.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from ullage import importers
from ullage.api.context import Contents, of_session, strip_window_mark
from ullage.cli import desk, glyphs, notes, picture, progress, recorded
from ullage.cli.lines import is_encodable, is_terminal, out, when
from ullage.core.errors import ConfigurationError
from ullage.core.values.progress import Progress
from ullage.importers import places
from ullage.importers.listing import list_sessions

SUMMARY = "show what fills the window: by part, by tool, by turn"

EPILOG: Final = """examples:
  ullage context --demo                        a bundled session, to look around
  ullage context --from claude --last          the last session of Claude Code
  ullage context --from claude --list          which sessions there are
  ullage context --from opencode --list        those of opencode
  ullage context --from ullage --last          the last session of ullage's own
  ullage context --from codex --last --turns   the last session of Codex, turn by turn
  ullage context request.json --window 128000  an OpenAI or Anthropic request
  ullage context chat.jsonl --what-if window=32768 --html report.html
"""

PROGRAMS: Final = (*places.SOURCES, *recorded.SOURCES)

MOST: Final = 30
"""Most sessions that are listed."""

DIGITS: Final = 15
"""Most digits of a number of tokens: JSON readers that use floats hold such sums exactly."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.epilog = EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    source = parser.add_argument_group("what to look at")
    source.add_argument(
        "file",
        nargs="?",
        help="messages or a request (JSON or JSON lines), a session file, or - for stdin",
    )
    source.add_argument(
        "--from",
        dest="source",
        choices=(*importers.SOURCES, *recorded.SOURCES),
        help="the program that wrote it (else recognised); ullage: its own sessions, "
        "proxy: its conversations",
    )
    source.add_argument(
        "--last",
        action="store_true",
        help="the newest session of --from claude, codex, opencode, ullage or proxy",
    )
    source.add_argument(
        "--list", action="store_true", help="list the sessions of --from, the newest first"
    )
    source.add_argument("--session", metavar="ID", help="the session whose id begins so")
    source.add_argument(
        "--store", metavar="URL", help="the log of --from ullage, or the store of --from proxy"
    )
    source.add_argument(
        "--proxy",
        metavar="URL",
        default=recorded.PROXY,
        help=f"the running proxy of --from proxy ({recorded.PROXY}); without one its store is read",
    )
    source.add_argument("--demo", action="store_true", help="a bundled sample session")
    window = parser.add_argument_group("against what")
    window.add_argument("--model", help="the model whose vocabulary, window and prices count")
    window.add_argument("--window", type=int, metavar="TOKENS", help="the window, in tokens")
    window.add_argument(
        "--what-if",
        action="append",
        default=[],
        metavar="window=N|reserve=N",
        help="look at it against another window or another reserve for the output",
    )
    form = parser.add_argument_group("how to show it")
    form.add_argument("--brief", action="store_true", help="one line")
    form.add_argument("--turns", action="store_true", help="also how it grew, turn by turn")
    form.add_argument("--top", type=int, default=5, metavar="N", help="largest items to list")
    form.add_argument("--json", action="store_true", help="the report as JSON (ullage.context/1)")
    form.add_argument("--html", metavar="FILE", help="write one self-contained page")
    form.add_argument("--ascii", action="store_true", help="no characters beyond ASCII")
    form.add_argument("--color", choices=("auto", "always", "never"), default="auto")


def run(given: argparse.Namespace) -> int:
    """Print the parts of the window, or write the page."""
    tried = what_if(given.what_if)
    notes.check_model(strip_window_mark(given.model))
    if given.top < 0:
        raise ConfigurationError(f"--top is how many items to list, not {given.top}")
    _one(given)
    if given.list:
        return _list(given)
    window, reserve = tried.get("window", given.window), tried.get("reserve")
    with progress.watch("reading") as bar:
        contents = _contents(
            given, recorded.ShownWindow(given.model, window, reserve, given.top), bar
        )
    report = contents.to_dict()
    if tried:
        said = ", ".join(f"{name} of {tokens:,} tokens" for name, tokens in tried.items())
        report["warnings"] = [f"what if: {said}", *report["warnings"]]
    if given.html is not None:
        _write(given.html, report)
    if given.json:
        print(json.dumps(report))
    elif sys.stdout is not None and (given.brief or given.html is None):
        text = _draw_report(report, given, plain=given.ascii)
        if not is_encodable(text, sys.stdout.encoding):
            text = _draw_report(report, given, plain=True)
        print(text)
    return 0


def _draw_report(report: Mapping[str, Any], given: argparse.Namespace, *, plain: bool) -> str:
    if given.brief:
        line = picture.brief(report)
        return "".join(picture.PLAIN.get(sign, sign) for sign in line) if plain else line
    return picture.draw(
        report,
        width=_width(),
        colour=is_coloured(given.color, os.environ, terminal=is_terminal(sys.stdout)),
        ascii=plain,
        top=given.top,
        turns=given.turns,
    )


def what_if(given: Sequence[str]) -> dict[str, int]:
    """Read `window=32768` and `reserve=4096`; raises ConfigurationError for anything else."""
    found: dict[str, int] = {}
    for text in given:
        name, _, value = text.partition("=")
        least = {"window": 1, "reserve": 0}.get(name)
        digits = value.replace("_", "").replace(",", "")
        numeric = digits.isdecimal() and len(digits) <= DIGITS
        if least is None or not numeric or int(digits) < least:
            raise ConfigurationError(
                f"--what-if {text!r}: expected window=TOKENS or reserve=TOKENS, such as "
                "window=32768"
            )
        found[name] = int(digits)
    return found


def is_coloured(wish: str, environ: Mapping[str, str], *, terminal: bool) -> bool:
    """Tell whether to colour: as asked, else on a terminal unless NO_COLOR or TERM=dumb."""
    if wish != "auto":
        return wish == "always"
    return terminal and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


def _one(given: argparse.Namespace) -> None:
    """Check that one thing was named; raises ConfigurationError otherwise."""
    chosen = [given.last, given.session is not None, given.list]
    if sum([given.file is not None, given.demo, *chosen]) != 1:
        raise ConfigurationError(
            "name one thing to look at: a FILE (or -), --from claude --last, "
            "--from claude --session ID, --from claude --list, or --demo"
        )
    if any(chosen) and given.source not in PROGRAMS:
        raise ConfigurationError(
            f"--last, --session and --list need --from {', --from '.join(PROGRAMS[:-1])} or "
            f"--from {PROGRAMS[-1]}"
        )
    if given.file is not None and given.source in recorded.SOURCES:
        raise ConfigurationError(
            f"--from {given.source} reads no file: give --last, --session ID or --list"
        )


def _contents(
    given: argparse.Namespace, shown: recorded.ShownWindow, bar: progress.Bar
) -> Contents:
    """Return the parts of the window of the named session."""
    if given.source == "ullage":
        return recorded.read_session(given, shown)
    if given.source == "proxy":
        return recorded.read_kept(_read_kept(given), given.session, shown)
    session = _session(given, bar)
    bar.begin("counting")
    return of_session(
        session,
        model=shown.model,
        window=shown.window,
        reserved=shown.reserved,
        top=shown.top,
    )


def _read_kept(given: argparse.Namespace) -> list[recorded.RecordedConversation]:
    return recorded.read_proxy_store(given.proxy, given.store)


def _list(given: argparse.Namespace) -> int:
    """Print a line for each session: when, id, project, title."""
    if given.source == "ullage":
        found, total = recorded.list_sessions(given, MOST)
    elif given.source == "proxy":
        kept = [one.listed for one in _read_kept(given)]
        found, total = kept[:MOST], len(kept)
    else:
        found, total = list_sessions(given.source, os.environ, MOST)
    if given.json:
        print(json.dumps({"total": total, "sessions": [asdict(one) for one in found]}))
        return 0
    for one in found:
        at = when(one.at) if one.at else ""
        facts = (at, one.id, one.project or "", one.title or "")
        out("  ".join(glyphs.clean(fact) for fact in facts if fact))
    if not found:
        desk.say(f"no sessions of {given.source} were found")
    elif total > len(found):
        desk.say(f"{total - len(found):,} older ones: --session ID shows one, and so does its file")
    return 0


def _session(given: argparse.Namespace, report: Progress) -> importers.ImportedSession:
    """Return the session of a file or of another program."""
    if given.demo:
        return importers.load(importers.SAMPLE, source="claude")
    if given.file is not None:
        return importers.load(given.file, source=given.source, report=report)
    if given.last:
        found = importers.latest(given.source)
    else:
        found = importers.find(given.source, given.session)
    return importers.load(found, source=given.source, report=report)


def _width() -> int:
    from shutil import get_terminal_size

    return min(get_terminal_size((100, 24)).columns, 120)


def _write(name: str, report: Mapping[str, Any]) -> None:
    """Write the page so that only its owner can read it: it quotes the session."""
    from ullage.cli.page import page

    path, flags = Path(name), os.O_WRONLY | os.O_CREAT
    try:
        with os.fdopen(os.open(path, flags, 0o600), "w", encoding="utf-8") as file:
            if path.is_file():  # a regular file, which may have been open to all
                path.chmod(0o600)
                file.truncate(0)
            file.write(page(report))
    except OSError as error:
        raise ConfigurationError(f"{name} cannot be written: {error}") from error
    print(f"wrote {name}", file=sys.stderr)
