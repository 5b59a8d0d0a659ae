"""The actions of a line in a chat: a command, or a turn. The module draws nothing, reads no keys.

A `Face` shows it: plain lines (`cli.chat`) or a screen (`cli.screen`).
"""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from ullage import context
from ullage.agent import Agent, Ended, Session
from ullage.agent.continuing import follow_session
from ullage.agent.files import state_folder
from ullage.agent.kit import Asking
from ullage.agent.session import Told
from ullage.agent.totals import add_up
from ullage.api.search import search
from ullage.cli import activity, changes, desk, export, lines, sessions, undo
from ullage.cli.attaching import Attaching
from ullage.core.errors import ConfigurationError, UllageError
from ullage.core.errors.nearest import suggest
from ullage.core.session.permissions import Mode
from ullage.storage import ndjson
from ullage.tools import Workspace

LISTED: Final = 10
"""Sessions that /sessions lists."""

HIT_LINES: Final = 4
"""Lines of each passage that /search shows."""

Result = TypeVar("Result")


class Face(Protocol):
    """Shows the events of a talk, and asks its person."""

    @property
    def ask(self) -> Asking:
        """Ask the person about a call."""
        ...

    def begin(self, what: str) -> None:
        """Show that some work is waited for."""
        ...

    def end(self) -> None:
        """Show that the work is over."""
        ...

    def hear(self, event: Told) -> None:
        """Show an event of the session."""
        ...

    def open(self, session: Session) -> None:
        """Show another session from here on."""
        ...

    def show_past(self, session: Session) -> None:
        """Show the last messages of a continued session."""
        ...

    def show_diff(self, text: str) -> None:
        """Show a unified diff."""
        ...

    def show_report(self, report: Mapping[str, Any]) -> None:
        """Show the parts of the window."""
        ...


@dataclass(slots=True)
class Talk:
    """One talk: `session` changes with /summary, /clear and /sessions, `mode` with /plan."""

    agent: Agent
    session: Session
    given: argparse.Namespace
    face: Face
    mode: Mode = "build"
    pastes: dict[str, str] = field(default_factory=dict)
    images: dict[str, Path] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.given.plan:
            self.mode = "plan"
        self._listen(self.session)

    def greet(self) -> None:
        """Tell the session, the model, the guides, and why the shell is off."""
        desk.say(f"session {self.session.name}, model {self.agent.provider.model}; /help")
        if why := desk.explain_shell(self.given):
            desk.say(f"the shell is off: {why}")
        desk.say_guides(self.agent)
        self.face.show_past(self.session)

    async def take(self, line: str) -> None:
        """Run a line: a command, or a turn. Errors are reported, and the talk continues."""
        try:
            await self._do(line)
        except UllageError as error:
            desk.say(f"ullage: {error}")

    async def go_on(self) -> None:
        """Continue a turn that was cut off before."""
        if self.session.fold.turn is not None:
            desk.say("the last turn was cut off: going on with it")
            try:
                await self._turn(None)
            except UllageError as error:
                desk.say(f"ullage: {error}")

    async def _do(self, line: str) -> None:
        word, _, rest = line.strip().partition(" ")
        if word in COMMANDS:
            done = COMMANDS[word][0](self, rest.strip())
            if done is not None:
                await done
        elif word.startswith("/") and not self._is_sent(word):
            near = suggest(word, [*COMMANDS, *OTHERS], "/help lists what there is")
            desk.say(f"there is no {word}: {near}")
        elif line.strip():
            await self._turn(line)

    def _is_sent(self, word: str) -> bool:
        """Tell whether a word with a slash is a skill or a path, and so a message."""
        skill = any(skill.name == word[1:] for skill in self.agent.skills)
        return skill or "/" in word[1:]

    async def _turn(self, line: str | None) -> None:
        options = desk.turn_options(self.given)
        options["mode"] = self.mode
        options["ask"] = self.face.ask
        ended: Ended | None
        try:
            if line is None:
                ended = await self.wait(self.agent.aresume(self.session, **options))
            else:
                text, options["parts"] = self._compose(line)
                ended = await self.wait(self.agent.arun(self.session, text, **options))
        finally:
            self._follow()
        if ended is not None and not ended.ok:
            desk.say(f"ullage: {ended.error} ({ended.reason})")
            if self.session.fold.unanswered is not None:
                desk.say("/retry tries it again")
        elif ended is not None and ended.stop == "length":
            desk.say(activity.CUT)

    def _compose(self, line: str) -> tuple[str, Sequence[Mapping[str, Any]]]:
        """Return the text and the parts of a line; report the attachments."""
        dialect = self.agent.provider.dialect
        made = Attaching(self.find_workspace(), dialect, self.pastes, self.images).compose(line)
        for note in made.notes:
            desk.say(f"  {note}")
        return made.text, made.parts

    def find_workspace(self) -> Workspace | None:
        """Return the folder for attached files, or None if the log itself is in it."""
        try:
            return Workspace(self.agent.workspace or Path(), state_folder(self.session.log.url))
        except ConfigurationError:  # a talk without tools works all the same
            return None

    def _follow(self) -> None:
        """Follow a session to its continuation, even after an interrupted turn."""
        now = follow_session(self.session)
        if now.name != self.session.name:
            self._move(now, f"session {now.name} goes on from {self.session.name}")

    async def wait(self, work: Coroutine[Any, Any, Result], what: str = activity.WAITING) -> Result:
        """Return the result of some work, and show meanwhile that it is waited for."""
        self.face.begin(what)
        try:
            return await work
        finally:
            self.face.end()

    def _move(self, made: Session, said: str) -> None:
        """Continue in another session."""
        desk.say(said)
        self.session.close()
        self._listen(made)

    def _listen(self, session: Session) -> None:
        self.session = session
        session.hear(self.face.hear)
        self.face.open(session)

    # --- commands: on the window ----------------------------------------------------------------

    async def context(self, _: str) -> None:
        """Show what fills the window, by part."""
        view = await self.wait(self.agent.aview(self.session, mode=self.mode), "counting")
        sent = view.kwargs
        provider = self.agent.provider
        work = asyncio.to_thread(
            context,
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
        found = await self.wait(work, "counting")
        self.face.show_report(found.to_dict())

    async def window(self, _: str) -> None:
        """Show the size of the window, and its source."""
        desk.say((await self.wait(self.agent.awindow(), "asking the server")).explain())

    async def compact(self, rest: str) -> None:
        """Compact the history now: /compact [share of the window]."""
        ratio = None
        if rest:
            try:
                ratio = float(rest)
            except ValueError:
                desk.say(f"/compact takes a share of the window such as 0.4, not {rest!r}")
                return
        work = self.agent.acompact(self.session, target_ratio=ratio)
        done = await self.wait(work, "compacting")
        if done.checkpoint is None and not done.reason:  # a reason was reported before
            desk.say("nothing changed")

    def uncompact(self, _: str) -> None:
        """Undo the last compaction."""
        gone = self.agent.uncompact(self.session)
        if gone is None:
            desk.say("there is no compaction to take back")
            return
        desk.say(
            f"taken back: {gone.tokens_after:,} -> {gone.tokens_before:,} tokens; from "
            "here on only what does not fit is compacted, until the next time it is"
        )

    async def model(self, rest: str) -> None:
        """Switch to another model: /model ID [BASE_URL]."""
        name, _, base_url = rest.partition(" ")
        if not name:
            desk.say(f"the model is {self.agent.provider.model}: /model ID [BASE_URL]")
            return
        before = self.agent.provider
        provider = replace(before, model=name)
        if base_url.strip():
            provider = replace(provider, base_url=base_url.strip(), api_key=None, origin={})
        work = self.agent.aswitch(self.session, provider)
        desk.say((await self.wait(work, f"asking about {name}")).window.explain())

    def cost(self, _: str) -> None:
        """Show the totals of the session: requests, tokens, dollars."""
        found = add_up(self.session.events())
        desk.say(found.describe())
        if found.requests and found.dollars is None:
            desk.say("the price of the model is not known, so no dollars are said")

    # --- commands: on sessions ------------------------------------------------------------------

    def sessions(self, rest: str) -> None:
        """List the last sessions, or continue one: /sessions [NAME]."""
        log = self.session.log
        if rest:
            found = desk.find_open_session(log, rest, take_over=False)
            if found.name == self.session.name:
                desk.say(f"session {found.name} is the one that you are in")
                return
            self._move(found, f"session {found.name} goes on; {self._name_way_back()}")
            self._say_workspace(found)
            self.face.show_past(found)
            return
        heads = log.sessions()[::-1]
        overviews = desk.open_overviews(log)
        rows = [sessions.read(log, head, overviews) for head in heads[:LISTED]]
        rows = sessions.link_rows(rows)
        for line in sessions.draw_table(rows):
            desk.say(line)
        if len(heads) > LISTED:
            desk.say(f"{len(heads) - LISTED:,} older ones: ullage sessions lists them")

    def _say_workspace(self, session: Session) -> None:
        """Say in which folder a session worked before, if it is not this talk's."""
        before, here = session.fold.served.get("workspace"), self.agent.workspace
        if before is not None and here is not None and str(here.absolute()) != before:
            desk.say(f"it worked in {before}, and goes on in {here.absolute()}")

    def clear(self, _: str) -> None:
        """Begin a new session; the old one is kept."""
        made = Session.create(self.session.log)
        self._move(made, f"session {made.name} begins; {self._name_way_back()}")

    async def summary(self, _: str) -> None:
        """Continue in a new session with a summary of this one."""
        made = await self.wait(self.agent.asummarise(self.session), "summarising")
        self._move(made, f"session {made.name} goes on from {self.session.name}")

    def save(self, rest: str) -> None:
        """Write the session to a new file: /save FILE (.md: the conversation, else all events)."""
        if not rest:
            desk.say("/save takes the name of a file that is not there yet")
            return
        path, events = Path(rest).expanduser(), self.session.events()
        export.refuse_secrets(events, self.session.name)
        if path.suffix == ".md":
            _write_new(path, export.write_conversation(self.session.fold))
        else:
            ndjson.export(events, self.session.name, path)
        desk.say(f"wrote session {self.session.name} to {path}")

    def search(self, rest: str) -> None:
        """Find text that was said or left out in all sessions: /search WORDS."""
        if not rest:
            desk.say("/search takes words to look for")
            return
        found = search(rest, store=self.session.log)
        for hit in found:
            desk.say(f"{hit.reference} in session {hit.session}")
            rows = list(lines.block(hit.text.strip()))
            more = len(rows) - HIT_LINES
            for row in [*rows[:HIT_LINES], *([f"... {more:,} more lines"] if more > 0 else [])]:
                desk.say(f"  {row}")
        if not found:
            desk.say("nothing was found")

    def _name_way_back(self) -> str:
        name = self.session.name
        return f"session {name} is kept: /sessions {name} goes back to it"

    # --- commands: on the work ------------------------------------------------------------------

    def plan(self, _: str) -> None:
        """Switch to plan mode: only read, and show a plan."""
        self.mode = "plan"

    def build(self, _: str) -> None:
        """Make changes again."""
        self.mode = "build"

    def tools(self, _: str) -> None:
        """List the tools that the model is offered."""
        found = self.agent.list_tools(
            self.session, mode=self.mode, permission=self.given.permission
        )
        widest = max((len(spec.name) for spec in found), default=0)
        for spec in found:
            desk.say(f"  {spec.name:<{widest}}  {spec.description.split('. ')[0].rstrip('.')}")
        if not found:
            desk.say("the model is offered no tools")

    async def retry(self, _: str) -> None:
        """Try the last turn again, if it has no answer."""
        if self.session.fold.unanswered is None:
            desk.say("the last turn was answered: there is nothing to try again")
            return
        await self._turn(None)

    def diff(self, _: str) -> None:
        """Show the file changes of the last turn."""
        found = changes.find_last_changes(self.session)
        if found is None:
            desk.say("the last turn changed no file")
            return
        for path, text in changes.draw_changes(self.session, found.workspace, found.changes):
            desk.say(f"{path}:")
            self.face.show_diff(text)

    def undo(self, rest: str) -> None:
        """Restore the files that the last turn changed: /undo [force]."""
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

    def help(self, _: str) -> None:
        """Show all commands."""
        for name, (_way, said) in COMMANDS.items():
            desk.say(f"  {name:<13}{said}")
        for name, said in OTHERS.items():
            desk.say(f"  {name:<13}{said}")
        desk.say("  @FILE        Attach a file of the workspace to the message.")


Command = Callable[[Talk, str], Coroutine[Any, Any, None] | None]

COMMANDS: Final[Mapping[str, tuple[Command, str]]] = {
    f"/{way.__name__}": (way, (way.__doc__ or "").strip())
    for way in (
        *(Talk.context, Talk.window, Talk.compact, Talk.uncompact, Talk.model, Talk.cost),
        *(Talk.sessions, Talk.clear, Talk.summary, Talk.save, Talk.search, Talk.plan),
        *(Talk.build, Talk.tools, Talk.retry, Talk.diff, Talk.undo, Talk.help),
    )
}
"""The commands that may be typed instead of a message."""

ENDS: Final = ("/quit", "/exit")

OTHERS: Final[Mapping[str, str]] = {
    "/unfold": "Show a call or reasoning whole: /unfold [N], or ctrl-o; on the screen alone.",
    "/edit": "Write the message in $EDITOR, as ctrl-x ctrl-e does; on the screen alone.",
    "/quit": "End; so does Ctrl-D.",
}
"""Commands that a face handles itself."""


def _write_new(path: Path, text: str) -> None:
    """Write a new file that only its owner can read."""
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror}") from None
    with os.fdopen(file, "w", encoding="utf-8") as opened:
        opened.write(text)
