"""The command line: parse, run one command, turn errors into exit codes.

Exit codes: 0 answer, 1 error, 2 usage or not found, 5 another writer is at work, 130 interrupted;
commands may have further ones. It knows the commands, not their work.
"""

from __future__ import annotations

import argparse
import json
import keyword
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Final, Protocol

import ullage
from ullage.core.errors import BusyWriter, UllageError, UnknownSession

COMMANDS: Final[Sequence[str]] = (
    *("demo", "run", "chat", "resume", "sessions", "show", "fork", "replay", "compact"),
    *("export", "import", "verify", "context", "count", "validate", "explain-error"),
    *("recall", "serve", "window", "models", "doctor", "config", "completion"),
)

AGENTS: Final = frozenset({"run", "chat", "resume", "replay", "compact"})
"""The commands that have a model of their own."""

OK, FAILED, USAGE, BUSY, INTERRUPTED = 0, 1, 2, 5, 130


class Command(Protocol):
    """One file of this room."""

    SUMMARY: str

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the command's arguments."""
        ...

    def run(self, given: argparse.Namespace) -> int:
        """Do the work; return the exit code."""
        ...


def parser(only: str | None = None) -> argparse.ArgumentParser:
    """Return the parser of the command line, whole or with one command, which is then loaded."""
    top = argparse.ArgumentParser(
        prog="ullage",
        description="Keeps conversations with language models inside their context window.",
    )
    top.add_argument("--version", action="version", version=f"ullage {ullage.__version__}")
    commands = top.add_subparsers(dest="command", metavar="command", required=True)
    for name in COMMANDS if only is None else (only,):
        command = _command(name)
        commands_help = command.SUMMARY
        sub = commands.add_parser(name, help=commands_help, description=commands_help)
        command.arguments(sub)
    return top


def _command(name: str) -> Command:
    module = name.replace("-", "_")
    if keyword.iskeyword(module):
        module += "_"  # `import`
    command: Command = import_module(f"ullage.cli.{module}")
    return command


def _code(error: UllageError) -> int:
    if isinstance(error, UnknownSession):
        return USAGE
    return BUSY if isinstance(error, BusyWriter) else FAILED


def _settled(words: Sequence[str]) -> Sequence[str]:
    """Return the command line with no doubt left about an option whose value may be left out."""
    if not words or words[0] not in AGENTS:
        return words
    from ullage.cli.desk import settle_embedded

    return settle_embedded(words)


def _say(text: str) -> None:
    if sys.stderr is not None:  # closed before the start: print would take stdout instead
        print(text, file=sys.stderr)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    words = sys.argv[1:] if argv is None else argv
    named = words[0] if words and words[0] in COMMANDS else None
    given = argparse.Namespace()
    try:
        given = parser(named).parse_args(_settled(words))
        return _command(given.command).run(given)
    except UllageError as error:
        _say(f"ullage: {error}")
        if getattr(given, "json", False) and sys.stdout is not None:
            told = {"outcome": "error", "reason": error.code, "error": str(error)}
            print(json.dumps(told, indent=2))
        return _code(error)
    except BrokenPipeError:
        # Whoever read the output, such as `head`, has enough. What Python flushes at its exit must
        # find an open file (Python documentation, "Note on SIGPIPE").
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except KeyboardInterrupt:
        _say("ullage: interrupted")
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
