"""`ullage chat`: turn after turn in a terminal, with the gauge in sight.

It chooses between its own screen and plain lines, which it reads here; `cli.talk` handles the
lines.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Final

from ullage.agent import Agent, Session
from ullage.cli import activity, asking, desk, endpoint, lines, origin, picture
from ullage.cli.stdin import spell
from ullage.cli.talk import ENDS, OTHERS, Talk

SUMMARY = "talk in the terminal: tools, a gauge, and a history that survives"

EPILOG = """Ctrl-C interrupts an answer; Ctrl-D or /quit ends. Lines that end in \\ go on. Keys,
commands and the display: docs/chat.md"""

SCREEN: Final = ("prompt_toolkit", "rich")
"""The packages that draw the screen: the extra `chat`."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.epilog = EPILOG
    parser.add_argument("text", nargs="?", help="what to say first")
    parser.add_argument(
        "--session", metavar="NAME", help="go on in this session (else a new one); - is the last"
    )
    parser.add_argument(
        "--plain",
        action="store_true",
        help="plain lines instead of a screen; also the fallback if its packages are missing",
    )
    desk.add_log(parser)
    endpoint.add_model(parser)
    desk.add_work(parser)


def run(given: argparse.Namespace) -> int:
    """Talk until the input ends; exit code 130 if it was interrupted."""
    given.text = None if given.text is None else spell(given.text)
    with desk.lend_log(given, create=True) as log:
        name = None if given.session == "-" else given.session
        found = None
        if given.session is not None:
            found = desk.find_open_session(log, name, take_over=given.take_over)
        given = given if found is None else origin.complete(given, found)
        with endpoint.lend_provider(given) as provider:
            agent = desk.make_agent(given, provider)
            session = found or Session.create(log)
            return talk(agent, session, given)


def talk(agent: Agent, session: Session, given: argparse.Namespace) -> int:
    """Talk in a session, on a screen if possible."""
    if not given.plain and has_screen():
        from ullage.cli.screen.app import run_screen

        return run_screen(agent, session, given)
    face = PlainFace()
    chat = PlainChat(Talk(agent, session, given, face), face)
    try:
        return chat.loop()
    finally:
        chat.talk.session.close()


def has_screen() -> bool:
    """Tell whether a screen can be drawn: terminals for input and output, and its packages."""
    return (
        lines.is_terminal(sys.stdin)
        and lines.is_terminal(sys.stderr)
        and lines.fits(sys.stdout)
        and all(find_spec(name) is not None for name in SCREEN)
    )


class PlainFace(activity.Activity):
    """Shows a talk in lines: the answer on stdout, all else on stderr."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(streams=True, gauges=False)

    def open(self, session: Session) -> None:
        """Show this session from here on."""
        del session
        self.meter = ""

    def show_past(self, session: Session) -> None:
        """Show nothing: plain lines show only new events."""

    def show_diff(self, text: str) -> None:
        """Show a unified diff, in colours if wanted."""
        paint = asking.paints("diff")
        for row in asking.draw_rows(text, lines.screen(sys.stderr).columns, paint):
            print(row, file=sys.stderr, flush=True)

    def show_report(self, report: Mapping[str, Any]) -> None:
        """Show the parts of the window."""
        desk.say(picture.draw(report, width=lines.screen(sys.stderr).columns))


@dataclass(slots=True)
class PlainChat:
    """Reads line after line, and handles each."""

    talk: Talk
    face: PlainFace

    def loop(self) -> int:
        """Read and answer, until the input ends."""
        self.talk.greet()
        history()
        self._attempt(self.talk.go_on())
        if self.talk.given.text is not None:
            self._attempt(self.talk.take(self.talk.given.text))
        broken = 0
        while True:
            try:
                line = self._line()
            except EOFError:
                return 0
            except KeyboardInterrupt:
                broken += 1
                if broken > 1:
                    return 130
                desk.say("\n/quit or Ctrl-D ends, another Ctrl-C as well")
                continue
            broken = 0
            if line.strip() in ENDS:
                return 0
            word = line.strip().partition(" ")[0]
            if word in OTHERS:
                desk.say(f"{word} is for the screen: a terminal, without --plain")
                continue
            self._attempt(self.talk.take(line))

    def _attempt(self, work: Coroutine[Any, Any, None]) -> None:
        """Run work that may be interrupted; the chat continues."""
        try:
            try:
                activity.run_work(work, self.face.tick)
            finally:
                self.face.end()  # a tick may come after the end of the work
        except KeyboardInterrupt:
            desk.say("\ninterrupted; the part that had come is kept")

    def _line(self) -> str:
        """Return the person's message: a line, and more if it ends in a backslash."""
        meter, mode = self.face.meter, self.talk.mode
        prompt = f"[{meter}] {mode}> " if meter else f"{mode}> "
        typed: list[str] = []
        while True:
            line = input(prompt if sys.stdin.isatty() else "")
            if not line.endswith("\\"):
                return "\n".join([*typed, line])
            typed.append(line[:-1])
            prompt = "... "


def history() -> None:
    """Load line editing if the system has it: input() then knows arrows and earlier lines."""
    if sys.platform != "win32":
        with suppress(ImportError):
            import readline

            readline.set_history_length(1_000)
