"""`ullage chat`: turn after turn in a terminal, the gauge in sight.

It reads lines, shows what comes, and hands everything else to the agent.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from ullage import context
from ullage.agent import Agent, Ended, Session
from ullage.agent.continuing import follow_session
from ullage.cli import activity, desk, lines, origin, picture, undo
from ullage.core.errors import UllageError

SUMMARY = "talk in the terminal: tools, a gauge, and a history that survives"

EPILOG = "Ctrl-C interrupts an answer; Ctrl-D or /quit ends. Lines that end in \\ go on."

Result = TypeVar("Result")


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.epilog = EPILOG
    parser.add_argument("text", nargs="?", help="what to say first")
    parser.add_argument(
        "--session", metavar="NAME", help="go on in this session (else a new one); - is the last"
    )
    desk.add_log(parser)
    desk.add_model(parser)
    desk.add_work(parser)


def run(given: argparse.Namespace) -> int:
    """Talk until the input ends; 130 where it was broken off."""
    with desk.lend_log(given, create=True) as log:
        name = None if given.session == "-" else given.session
        found = None
        if given.session is not None:
            found = desk.find_open_session(log, name, take_over=given.take_over)
        given = given if found is None else origin.complete(given, found)
        with desk.lend_provider(given) as provider:
            agent = desk.make_agent(given, provider)
            chat = Chat(agent, found or Session.create(log), given)
            try:
                return chat.loop()
            finally:
                chat.session.close()


@dataclass(slots=True)
class Chat:
    """One talk: `session` changes with /summary, `mode` with /plan and /build."""

    agent: Agent
    session: Session
    given: argparse.Namespace
    mode: str = "build"
    shown: activity.Activity = field(init=False)

    def __post_init__(self) -> None:
        self.shown = activity.Activity(streams=True, gauges=False)
        if self.given.plan:
            self.mode = "plan"

    def loop(self) -> int:
        """Read and answer, until the input ends."""
        desk.say(f"session {self.session.name}, model {self.agent.provider.model}; /help")
        if why := desk.explain_shell(self.given):
            desk.say(f"the shell is off: {why}")
        history()
        self.listen(self.session)
        self._cut_off()
        if self.given.text is not None:
            self._take(self.given.text)
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
            if line.strip() in ("/quit", "/exit"):
                return 0
            self._take(line)

    def listen(self, session: Session) -> None:
        """Take a session as the one that is talked in."""
        self.session = session
        session.hear(self.shown.hear)

    def _cut_off(self) -> None:
        """Go on with a turn that was cut off before."""
        if self.session.fold.turn is not None:
            desk.say("the last turn was cut off: going on with it")
            self._attempt(lambda: self._turn(None))

    def _line(self) -> str:
        """Return what a person says: a line, and more where it ends in a backslash."""
        meter = self.shown.meter
        prompt = f"[{meter}] {self.mode}> " if meter else f"{self.mode}> "
        lines: list[str] = []
        while True:
            line = input(prompt if sys.stdin.isatty() else "")
            if not line.endswith("\\"):
                return "\n".join([*lines, line])
            lines.append(line[:-1])
            prompt = "... "

    def _take(self, line: str) -> None:
        self._attempt(lambda: self._do(line))

    def _do(self, line: str) -> None:
        """Do what a line says: a command, or a turn."""
        word, _, rest = line.strip().partition(" ")
        if word in COMMANDS:
            COMMANDS[word][0](self, rest.strip())
        elif word.startswith("/") and not self._skill(word[1:]):
            desk.say(f"there is no {word}: /help lists what there is")
        elif line.strip():
            self._turn(line)

    def _attempt(self, act: Callable[[], None]) -> None:
        """Do something that may fail or be interrupted; the chat goes on."""
        try:
            act()
        except UllageError as error:
            desk.say(f"ullage: {error}")
        except KeyboardInterrupt:
            desk.say("\ninterrupted; what had come is kept")

    def _skill(self, name: str) -> bool:
        return any(skill.name == name for skill in self.agent.skills)

    def _turn(self, text: str | None) -> None:
        options = desk.turn_options(self.given)
        options["mode"] = "plan" if self.mode == "plan" else "build"
        options["ask"] = self.shown.ask
        ended: Ended | None
        try:
            if text is None:
                ended = self._await(self.agent.aresume(self.session, **options))
            else:
                ended = self._await(self.agent.arun(self.session, text, **options))
        finally:
            self._follow()
        if ended is not None and not ended.ok:
            desk.say(f"ullage: {ended.error} ({ended.reason})")
            if self.session.fold.unanswered is not None:
                desk.say("/retry tries it again")
        elif ended is not None and ended.stop == "length":
            desk.say(activity.CUT)

    def _follow(self) -> None:
        """Go on where the session went on in another one, also where its turn was broken off."""
        now = follow_session(self.session)
        if now.name != self.session.name:
            self._move(now)

    def _await(self, work: Coroutine[Any, Any, Result], what: str = activity.WAITING) -> Result:
        """Return what comes of some work; the seconds are shown meanwhile, with what it is."""
        self.shown.begin(what)
        try:
            return activity.run_work(work, self.shown.tick)
        finally:
            self.shown.end()

    def _move(self, made: Session) -> None:
        """Go on in another session."""
        desk.say(f"session {made.name} goes on from {self.session.name}")
        self.session.close()
        self.shown.meter = ""
        self.listen(made)

    # --- commands -------------------------------------------------------------------------------

    def context(self, _: str) -> None:
        """Show what fills the window, by part."""
        view = self._await(self.agent.aview(self.session, mode=self._mode()), "counting")
        sent = view.kwargs
        provider = self.agent.provider
        found = context(
            sent.get("messages", sent.get("input")),
            window=view.window,
            max_tokens=view.prepared.max_tokens,
            model=provider.model,
            tools=sent.get("tools"),
            system=sent.get("system", sent.get("instructions")),
            dialect=provider.dialect,
            base_url=provider.base_url,
            api_key=provider.api_key,
            runtime=self.agent.runtime,
        )
        desk.say(picture.draw(found.to_dict(), width=lines.screen(sys.stderr).columns))

    def window(self, _: str) -> None:
        """Show how big the window is, and who says so."""
        desk.say(self._await(self.agent.awindow(), "asking the server").explain())

    def compact(self, rest: str) -> None:
        """Make the history smaller now: /compact [share of the window]."""
        ratio = None
        if rest:
            try:
                ratio = float(rest)
            except ValueError:
                desk.say(f"/compact takes a share of the window such as 0.4, not {rest!r}")
                return
        done = self._await(self.agent.acompact(self.session, target_ratio=ratio), "compacting")
        if done.checkpoint is None and not done.reason:  # a reason was told when it came up
            desk.say("nothing changed")

    def summary(self, _: str) -> None:
        """Go on in a new session that knows of this one by a summary; else this one goes on."""
        self._move(self._await(self.agent.asummarise(self.session), "summarising"))

    def model(self, rest: str) -> None:
        """Go on with another model: /model ID [BASE_URL]."""
        name, _, base_url = rest.partition(" ")
        if not name:
            desk.say(f"the model is {self.agent.provider.model}: /model ID [BASE_URL]")
            return
        before = self.agent.provider
        provider = replace(before, model=name)
        if base_url.strip():
            provider = replace(provider, base_url=base_url.strip(), api_key=None, origin={})
        view = self._await(self.agent.aswitch(self.session, provider), f"asking about {name}")
        desk.say(view.window.explain())

    def plan(self, _: str) -> None:
        """Read only from now on; show a plan."""
        self.mode = "plan"

    def build(self, _: str) -> None:
        """Make changes again."""
        self.mode = "build"

    def retry(self, _: str) -> None:
        """Try the last turn again, where it has no answer."""
        if self.session.fold.unanswered is None:
            desk.say("the last turn was answered: there is nothing to try again")
            return
        self._turn(None)

    def undo(self, rest: str) -> None:
        """Bring back the files that the last turn changed: /undo [force]."""
        if rest not in ("", "force"):
            desk.say(f"/undo takes force or nothing, not {rest!r}; /uncompact is for compactions")
            return
        done = self.session.undo_files(force=bool(rest))
        if done is None:
            desk.say("nothing to undo: no turn has changed a file since")
            undo.name_parent(self.session)
            return
        for line in undo.draw_undone(done):
            desk.say(line)

    def uncompact(self, _: str) -> None:
        """Take the last compaction back."""
        gone = self.agent.uncompact(self.session)
        if gone is None:
            desk.say("there is no compaction to take back")
            return
        desk.say(
            f"taken back: {gone.tokens_after:,} -> {gone.tokens_before:,} tokens; under the same "
            "pressure the policy asks for it again"
        )

    def help(self, _: str) -> None:
        """Show what there is."""
        for name, (_way, said) in COMMANDS.items():
            desk.say(f"  {name:<13}{said}")
        desk.say(f"  {'/quit':<13}End (Ctrl-D)")

    def _mode(self) -> Any:
        return self.mode


Command = Callable[[Chat, str], None]

COMMANDS: Final[Mapping[str, tuple[Command, str]]] = {
    f"/{way.__name__}": (way, (way.__doc__ or "").strip())
    for way in (
        *(Chat.context, Chat.window, Chat.compact, Chat.summary, Chat.model, Chat.plan),
        *(Chat.build, Chat.retry, Chat.undo, Chat.uncompact, Chat.help),
    )
}
"""What may be typed in the place of something to say."""


def history() -> None:
    """Load line editing where the system has it: input() then knows arrows and earlier lines."""
    with suppress(ImportError):
        import readline

        readline.set_history_length(1_000)
