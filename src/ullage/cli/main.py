"""The command line: parse, run one command, turn errors into exit codes.

Exit codes: 0 answer, 1 error, 2 usage or not found, 5 another writer is active, 130 interrupted;
commands may have further ones. The module knows the commands, not their work.
"""

from __future__ import annotations

import argparse
import json
import keyword
import os
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, Final, NoReturn, Protocol

import ullage
from ullage import config
from ullage.core.errors import BusyWriter, ConfigurationError, UllageError, UnknownSession
from ullage.core.errors.nearest import suggest

GROUPS: Final[Mapping[str, Sequence[str]]] = {
    "look around": ("demo", "docs", "doctor", "statusline"),
    "talk to a model": ("run", "chat", "resume", "undo"),
    "guard any client": ("serve", "with", "hooks", "mcp"),
    "watch conversations": ("top", "ui"),
    "turns on many machines": ("worker", "submit", "queue"),
    "what fills a window": ("context", "count", "validate", "compact", "recall", "search"),
    "how large a window is": ("window", "models", "explain-error"),
    "recorded sessions": (
        "sessions",
        "show",
        "fork",
        "pin",
        "replay",
        "replay-policy",
        "export",
        "import",
        "verify",
        "purge",
        "retention",
        "originals",
        "partitions",
    ),
    "settings": ("config", "completion"),
}
COMMANDS: Final = tuple(name for names in GROUPS.values() for name in names)

PAGES: Final[Mapping[str, str]] = {
    "demo": "tutorial",
    "doctor": "servers",
    "docs": "tutorial",
    "statusline": "statusline",
    **dict.fromkeys(("run", "resume", "undo"), "agent"),
    "chat": "chat",
    "serve": "proxy",
    "with": "with",
    "hooks": "hooks",
    "mcp": "mcp",
    **dict.fromkeys(("top", "ui"), "pages"),
    **dict.fromkeys(("worker", "submit", "queue"), "workers"),
    "context": "context",
    "count": "counters",
    "validate": "concepts/laws",
    "compact": "compaction",
    **dict.fromkeys(("recall", "search"), "storage"),
    "window": "concepts/window",
    "models": "table",
    "explain-error": "faq",
    **dict.fromkeys(("sessions", "show", "fork", "pin", "export", "import", "replay"), "sessions"),
    "replay-policy": "replay",
    **dict.fromkeys(("verify", "purge"), "log"),
    **dict.fromkeys(("retention", "originals", "partitions"), "retention"),
    "config": "configuration",
}
"""The page with more about a command, by its name for `ullage docs`; the default is `cli`."""

EXAMPLES: Final = """\
examples:
  ullage demo --quick                         a conversation with a real small model
  ullage context --from claude --last         what fills the window of your last session
  ullage chat --embedded --no-tools           talk to a small model that runs here
  ullage serve --upstream http://HOST:8080    a guard for every client of a server
  ullage compact request.json --ratio 0.5     a request that fits into half of the window

ullage COMMAND --help tells more of one, ullage docs of all.
"""

AGENTS: Final = frozenset({"run", "chat", "resume", "replay", "compact", "worker"})
"""Commands that use a model of their own."""

OK, FAILED, USAGE, BUSY, INTERRUPTED = 0, 1, 2, 5, 130


class Command(Protocol):
    """One file of this package."""

    SUMMARY: str

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the command's arguments."""
        ...

    def run(self, given: argparse.Namespace) -> int:
        """Do the work; return the exit code."""
        ...


def parser(only: str | None = None) -> Parser:
    """Return the parser: with all commands, with one, or with none if `only` is "".

    It loads the commands that the parser has.
    """
    top = Parser(
        prog="ullage",
        description="Keeps conversations with language models inside their context window.",
        usage="%(prog)s [-h] [--version] COMMAND ...",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"ullage {ullage.__version__}")
    commands = top.add_subparsers(
        help=argparse.SUPPRESS, dest="command", metavar="COMMAND", required=True, prog=top.prog
    )
    for name in COMMANDS if only is None else filter(None, (only,)):
        command = _command(name)
        sub = commands.add_parser(name, description=command.SUMMARY)
        top.inner[name] = sub
        command.arguments(sub)
        _complete(sub, PAGES.get(name, "cli"))
    if only is None:
        top.epilog = "\n".join([*_list_groups(), EXAMPLES])
    return top


def _complete(sub: argparse.ArgumentParser, page: str) -> None:
    """Add the option for settings and the documentation page to each command and subcommand."""
    if isinstance(sub, Parser):
        sub.page = page
    inner = [a for a in sub._actions if isinstance(a, argparse._SubParsersAction)]  # noqa: SLF001 - argparse lists them nowhere else
    for action in inner:
        for each in action.choices.values():
            _complete(each, page)
    if not inner:
        sub.add_argument(
            "--set",
            dest="settings",
            action="append",
            default=[],
            metavar="KEY=VALUE",
            help="a setting for this run, such as policy.tail_share=0.5 (docs/settings.md)",
        )


def _list_groups() -> Iterator[str]:
    """Yield the lines that list all commands in groups by purpose."""
    for group, names in GROUPS.items():
        yield f"{group}:"
        for name in names:
            row = f"  {name:15}{_command(name).SUMMARY}"
            yield from textwrap.wrap(row, 98, subsequent_indent=" " * 17)
        yield ""


NUMBERS: Final[Mapping[Any, tuple[str, str]]] = {
    int: ("whole number", "8"),
    float: ("number", "0.5"),
}
"""Names of number types, with an example."""


class Parser(argparse.ArgumentParser):
    """A parser that suggests corrections for wrong words."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.inner: dict[str, argparse.ArgumentParser] = {}
        """The parsers of commands, by name."""
        self.page = ""
        """The documentation page with more about the command."""

    def format_help(self) -> str:
        """Return the help; its last line names the documentation page."""
        more = f"\nmore: ullage docs {self.page}\n" if self.page else ""
        return super().format_help() + more

    def parse_known_args(  # type: ignore[override]  # one of the two forms is used here
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse arguments; for an unknown option, the error suggests the nearest one."""
        options = [name for action in self._actions for name in action.option_strings]
        first = args[0] if args and self.inner else ""
        if first.startswith("--") and not any(name.startswith(first) for name in options):
            self._refuse([first], first, options)
        given, rest = super().parse_known_args(args, namespace)
        wrong = next((word for word in rest if word.startswith("--")), None)
        if wrong is not None and not self.inner:
            self._refuse(rest, wrong, options)
        return given, rest

    def _refuse(self, words: Sequence[str], wrong: str, options: Sequence[str]) -> NoReturn:
        """Refuse unknown arguments, and suggest the most similar option."""
        name = wrong.partition("=")[0]
        near = "no option may follow --" if name in options else suggest(name, options)
        self.error(f"unrecognized arguments: {' '.join(words)}{near and f'; {near}'}")

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        """Return the value of an argument; the error for an invalid number says so."""
        try:
            return super()._get_value(action, arg_string)
        except argparse.ArgumentError as error:
            kind = NUMBERS.get(action.type)
            if kind is None:
                raise
            raise argparse.ArgumentError(
                action, f"{arg_string!r:.80} is no {kind[0]}: give one, such as {kind[1]}"
            ) from error

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Refuse a value that is not a choice, and suggest the nearest choice."""
        if action.choices is not None and value not in action.choices:
            known = [str(choice) for choice in action.choices]
            what = "command" if action.dest == "command" else "choice"
            near = suggest(str(value), known, f"choose from {', '.join(known)}")
            raise argparse.ArgumentError(
                action if what == "choice" else None, f"invalid {what}: {value!r}; {near}"
            )


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


def _settle_words(words: Sequence[str]) -> Sequence[str]:
    """Return the command line with clear values for options whose value may be left out."""
    if words and words[0] == "with":
        from ullage.cli.with_ import settle_words

        return ["with", *settle_words(words[1:])]
    if not words or words[0] not in AGENTS:
        return words
    from ullage.cli.endpoint import settle_embedded

    return settle_embedded(words)


def _shows_top() -> bool:
    """Tell whether `ullage` alone shows the conversations: in a terminal that can draw them."""
    if not (sys.stdin and sys.stdin.isatty() and sys.stdout and sys.stdout.isatty()):
        return False
    from importlib.util import find_spec

    return os.environ.get("TERM") != "dumb" and find_spec("textual") is not None


def _say(text: str) -> None:
    from ullage.cli import lines

    lines.note(text)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    try:
        code = _run(sys.argv[1:] if argv is None else argv)
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        from ullage.cli.output import end_output

        return end_output(error)
    return code


TALKING: Final = ("chat", "mcp", "top")
"""Commands that run as long as somebody reads and writes."""


def _check_streams(command: str) -> None:
    """Raise ConfigurationError if an interactive command was started with a closed stream."""
    for name, stream in (("input", sys.stdin), ("output", sys.stdout)):
        if command in TALKING and stream is None:
            raise ConfigurationError(
                f"standard {name} is closed, and `ullage {command}` needs it: "
                "use /dev/null to have it empty"
            )


def _run(words: Sequence[str]) -> int:
    """Run the command that the words name; returns the exit code."""
    named = words[0] if words and words[0] in COMMANDS else None
    if words and words[0] == "--version":
        named = ""
    given = argparse.Namespace()
    try:
        if not words and not _shows_top():
            parser().print_help()
            return OK
        words, named = (words, named) if words else (("top",), "top")
        given = parser(named).parse_args(_settle_words(words))
        _check_streams(given.command)
        with config.given_options(given.settings):
            return _command(given.command).run(given)
    except UllageError as error:
        _say(f"ullage: {error}")
        if getattr(given, "json", False) and sys.stdout is not None:
            told = {"outcome": "error", "reason": error.code, "error": str(error)}
            print(json.dumps(told, indent=2))
        return _code(error)
    except KeyboardInterrupt:
        _say("ullage: interrupted")
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
