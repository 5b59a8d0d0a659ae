"""`ullage statusline`: one line on how full the window is, for Claude Code, tmux and prompts.

It runs at every prompt, so `begin` runs it without the other commands and loads only the code it
needs. It prints a line whatever is on stdin or in a session file.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from typing import Final, NoReturn

from ullage.cli import meter, stations
from ullage.core.values.fullness import Fullness

SUMMARY = "print one line on how full the window is, for status lines and prompts"

EPILOG: Final = """examples:
  ullage statusline --install claude       show it in Claude Code (asks, keeps a backup)
  ullage statusline                        the newest session of this folder
  ullage statusline --from codex --json    the same as JSON
  ullage statusline --format '{percent} of {window} ({origin})'

fields of --format: bar, percent, used, window, origin, left (tokens to the next compaction), cost,
cache, model, session, source, tier, reason
"""

WHERE: Final = ("claude", "tmux", "bash", "zsh", "fish")
"""Programs that `--install` supports."""

SHELLS: Final = frozenset({"bash", "zsh", "fish"})
SLOW: Final = ("-h", "--help", "--set", "--install", "--uninstall")
"""Options that need the whole command line."""

UNREAD: Final = "ctx unknown (stdin holds no status of Claude Code)"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.epilog = EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    source = parser.add_argument_group(
        "the session to show (else the JSON of Claude Code on stdin, else the newest session here)"
    )
    source.add_argument(
        "--from", dest="source", choices=stations.SOURCES, help="the newest session of a program"
    )
    source.add_argument("--session", metavar="ID", help="the session whose id begins so")
    source.add_argument("--cwd", metavar="DIR", help="the folder of the session (this one)")
    source.add_argument("--store", metavar="URL", help="the log of --from ullage: sqlite:FILE")
    form = parser.add_argument_group("how to show it")
    form.add_argument("--width", type=int, metavar="CELLS", help="at most so wide (COLUMNS, or 80)")
    form.add_argument("--format", dest="template", metavar="TEXT", help="with fields in braces")
    form.add_argument("--json", action="store_true", help="the state as JSON")
    form.add_argument("--ascii", action="store_true", help="no characters beyond ASCII")
    form.add_argument("--color", choices=("auto", "always", "never"), default="auto")
    form.add_argument(
        "--in",
        dest="place",
        choices=meter.PLACES,
        default="plain",
        help="the program that shows the line: sets its colours and escapes",
    )
    form.add_argument("--quiet", action="store_true", help="print nothing where nothing is known")
    form.add_argument(
        "--strict", action="store_true", help="exit with 1 where nothing is known (else 0)"
    )
    setting = parser.add_argument_group("settings files of other programs")
    setting.add_argument(
        "--install", choices=WHERE, help="put it there: shows the change, asks, keeps a backup"
    )
    setting.add_argument("--uninstall", choices=WHERE, help="take it back, byte for byte")
    setting.add_argument("--yes", action="store_true", help="do not ask")
    setting.add_argument("--force", action="store_true", help="replace another status line")


def run(given: argparse.Namespace) -> int:
    """Print the line, or install the command in the settings of another program."""
    if given.install is not None or given.uninstall is not None:
        from ullage.cli import dotfiles

        return dotfiles.run(given)
    return show(given)


class _Quick(argparse.ArgumentParser):
    """A parser that leaves errors to the whole command line, which reports them."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(message)


def begin(words: Sequence[str]) -> int | None:
    """Print the line at once; return None if the whole command line is needed."""
    if any(word.startswith(SLOW) for word in words):
        return None
    parser = _Quick(prog="ullage statusline", add_help=False, allow_abbrev=False)
    arguments(parser)
    try:
        given = parser.parse_args(words)
    except ValueError:
        return None
    if _find_fault(given):
        return None
    try:
        return show(given)
    except OSError as error:
        from ullage.cli.output import end_output

        return end_output(error)
    except KeyboardInterrupt:
        return 130


def show(given: argparse.Namespace) -> int:
    """Print the line; the exit code is 0 unless `--strict` asks for another."""
    fault = _find_fault(given)
    if fault:
        from ullage.core.errors import ConfigurationError

        raise ConfigurationError(fault)
    one, heard = _find(given)
    known = one is not None and (one.tokens is not None or one.share is not None)
    if known or not given.quiet:
        _print(one, given, heard=heard)
    if known or not given.strict:
        return 0
    why = UNREAD if one is None else one.reason
    print(f"ullage: {meter.list_facts(Fullness(reason=why))['reason']}", file=sys.stderr)
    return 1


def _find(given: argparse.Namespace) -> tuple[Fullness | None, bool]:
    """Return how full the session is, and whether Claude Code told it on stdin."""
    if given.source is None and given.session is None:
        data = stations.read_stdin()
        if data:
            return stations.read_status(data), True
    asked = stations.Asked(given.source, given.session, _find_folder(given.cwd), given.store)
    return stations.find_fullness(asked), False


def _find_folder(named: str | None) -> str:
    """Return the requested folder, or "" if the working directory is gone."""
    try:
        return os.path.abspath(named or os.getcwd())
    except OSError:
        return ""


def _print(one: Fullness | None, given: argparse.Namespace, *, heard: bool) -> None:
    if given.json:
        shown = one or Fullness(reason=UNREAD)
        print(json.dumps(meter.to_dict(shown)), flush=True)
        return
    style = meter.Style(
        _find_width(given.width),
        given.place,
        _is_coloured(given, heard=heard),
        given.ascii,
    )
    line = UNREAD[: style.width] if one is None else meter.draw(one, style, given.template)
    if not given.ascii and not _takes(line):
        line = meter.draw(one, style._replace(plain=True), given.template) if one else line
    print(line, end=" " if given.place in SHELLS else "\n", flush=True)


def _takes(line: str) -> bool:
    """Tell whether stdout can show a line."""
    try:
        line.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _find_width(asked: int | None) -> int:
    columns = os.environ.get("COLUMNS", "")
    if asked is not None:
        return asked
    return int(columns) if columns.isdecimal() and 0 < len(columns) < 5 and int(columns) else 80


def _is_coloured(given: argparse.Namespace, *, heard: bool) -> bool:
    """Tell whether to colour: as asked, else if the place is known, unless NO_COLOR is set."""
    if given.color != "auto":
        return bool(given.color == "always")
    if os.environ.get("NO_COLOR"):
        return False
    if given.place != "plain" or heard:
        return True
    return sys.stdout is not None and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def _find_fault(given: argparse.Namespace) -> str:
    """Return the error in the options, or ""."""
    if given.width is not None and given.width < 1:
        return f"--width is the most cells of the line, not {given.width}"
    named = meter.FIELD.findall(given.template or "")
    fields = meter.list_facts(Fullness())
    unknown = next((name for name in named if name not in fields), None)
    return f"--format has no field {unknown!r}: {', '.join(fields)}" if unknown else ""
