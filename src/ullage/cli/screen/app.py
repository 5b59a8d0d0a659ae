"""The screen of a chat: it draws, reads keys and runs turns in one event loop.

The terminal keeps its scrollback: complete text is written above and stays there. Only the running
part, the input line and the row below it are drawn again.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections import deque
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Final

from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import ThreadedCompleter
from prompt_toolkit.input import create_input
from prompt_toolkit.output import ColorDepth, Output
from prompt_toolkit.styles import Style

from ullage.agent import Agent, Session
from ullage.agent.session import Told
from ullage.cli import activity, desk, lines, picture
from ullage.cli.asking import ConsentQuestion
from ullage.cli.screen import prompt
from ullage.cli.screen.above import Above, find_descriptor
from ullage.cli.screen.completion import ChatCompleter, FileList
from ullage.cli.screen.drawing import Canvas, has_colours, is_plain_text, make_diff, make_text
from ullage.cli.screen.feed import SPIN_S, Feed, draw_block
from ullage.cli.screen.history import HistoryFile, find_history
from ullage.cli.screen.keys import bind_keys
from ullage.cli.screen.layout import LEAST_INPUT, make_layout
from ullage.cli.screen.toolbar import Toolbar
from ullage.cli.talk import COMMANDS, ENDS, OTHERS, Talk
from ullage.core.session.log.fold import Round, User
from ullage.core.session.permissions import Consent
from ullage.core.session.tools import Pending

NAMES_LISTED: Final = 200
"""Most sessions whose names are offered."""

QUEUE_SHOWN: Final = 3
SETTLE_S: Final = 0.08
"""Seconds without another resize before everything is drawn again."""

STYLE: Final = Style.from_dict(
    {
        "prompt": "bold",
        "question": "bold ansiyellow",
        "queue": "italic ansibrightblack",
        "sign": "ansicyan",
        "toolbar": "reverse",
        "toolbar.warning": "reverse ansiyellow",
        "toolbar.full": "reverse ansired",
    }
)

AT_ONCE: Final = frozenset({"/help", *OTHERS, *ENDS})
"""Commands that run while an answer comes; all other lines wait for its end."""


class ScreenApplication(Application[int]):
    """The application, which lets the screen handle a resize."""

    screen: Screen

    def _on_resize(self) -> None:
        self.screen.resize()


class Screen:
    """Shows a talk and reads its person's keys; it is the `Face` of `talk`."""

    def __init__(self, agent: Agent, session: Session, given: argparse.Namespace) -> None:
        self.output = make_output()
        self.above = Above(self.output, self.canvas, find_descriptor())
        self.feed = Feed(self.above.put, ascii=is_plain_text())
        self.toolbar = Toolbar()
        self.queued: deque[str] = deque()
        self._wakes = asyncio.Event()
        self._work: asyncio.Future[None] | None = None
        self._breaks = 0
        self._unfolded = (0, 0)
        self._width = self.columns
        self._settling: asyncio.TimerHandle | None = None
        self.away = self._faulty = False
        self.talk = Talk(agent, session, given, self)
        self.history = HistoryFile(find_history())
        self.buffer = Buffer(
            completer=ThreadedCompleter(self._make_completer()),
            complete_while_typing=True,
            history=self.history,
            multiline=True,
            tempfile_suffix=".md",
        )
        self.question = prompt.LineQuestion(self.buffer)
        self.app = self._make_app()

    def _make_app(self) -> ScreenApplication:
        app = ScreenApplication(
            layout=make_layout(self),
            key_bindings=bind_keys(self),
            style=STYLE,
            color_depth=None if has_colours() else ColorDepth.DEPTH_1_BIT,
            erase_when_done=True,
            input=create_input(sys.stdin),
            output=self.output,
        )
        app.screen = self
        app.ttimeoutlen, app.timeoutlen = 0.05, 0.3  # a lone Esc counts soon
        return app

    def _make_completer(self) -> ChatCompleter:
        said = {name: said for name, (_, said) in COMMANDS.items()} | dict(OTHERS)
        said = {name: text.partition(":")[0].rstrip(".") for name, text in said.items()}
        said |= {f"/{skill.name}": "skill" for skill in self.talk.agent.skills}
        return ChatCompleter(said, FileList(self.talk.find_workspace()), self._list_sessions)

    def _list_sessions(self) -> Sequence[tuple[str, str]]:
        heads = self.talk.session.log.sessions()[::-1][:NAMES_LISTED]
        return [(head.session, f"begun {lines.when(head.created)}") for head in heads]

    # --- running --------------------------------------------------------------------------------

    async def run(self) -> int:
        """Talk until the person leaves; return the exit code."""
        loop = asyncio.get_running_loop()
        with self._take_streams():
            self.above.attach(loop)
            self.above.lift, self.above.lower = self._lift, self._lower
            running = asyncio.ensure_future(self.app.run_async(pre_run=self._greet))
            worker = loop.create_task(self._run_lines())
            worker.add_done_callback(self._fail)
            ticker = loop.create_task(self._tick())
            try:
                return await asyncio.shield(running)
            finally:
                ticker.cancel()
                worker.cancel()
                await asyncio.gather(worker, ticker, return_exceptions=True)
                self.leave(activity.CODES["interrupted"])  # if this is cancelled from outside
                await asyncio.gather(running, return_exceptions=True)
                self.above.lift = self.above.lower = _do_nothing
                self.above.close_line()
                self.above.flush_new()

    def _greet(self) -> None:
        self.talk.greet()

    @contextmanager
    def _take_streams(self) -> Iterator[None]:
        """Send all messages to the area above the line."""
        kept = sys.stdout, sys.stderr
        sys.stdout = sys.stderr = self.above
        try:
            yield
        finally:
            sys.stdout, sys.stderr = kept

    async def _run_lines(self) -> None:
        """Run line after line, each after the one before it."""
        await self._attempt(self.talk.go_on())
        if self.talk.given.text is not None:
            self._show_message(self.talk.given.text)
            await self._attempt(self.talk.take(self.talk.given.text))
        while True:
            while not self.queued:
                self._wakes.clear()
                await self._wakes.wait()
            line = self.queued.popleft()
            self._show_message(line)
            await self._attempt(self.talk.take(line))

    async def _attempt(self, work: Coroutine[Any, Any, None]) -> None:
        """Run work that may be interrupted; the chat continues."""
        self._work = asyncio.ensure_future(work)
        try:
            await self._work
        except asyncio.CancelledError:
            task = asyncio.current_task()
            desk.say("interrupted; the part that had come is kept")
            if task is not None and task.cancelling():
                raise
        finally:
            self._work = None
            self.app.invalidate()

    def _fail(self, worker: asyncio.Task[None]) -> None:
        """End the screen if the work on lines failed by our own fault."""
        if not worker.cancelled() and (error := worker.exception()) and self.app.is_running:
            self.app.exit(exception=error)

    async def _tick(self) -> None:
        """Draw the sign of life again as long as it is shown."""
        while True:
            await asyncio.sleep(SPIN_S)
            if self.is_working and not self.away:
                self.app.invalidate()

    # --- actions of a person --------------------------------------------------------------------

    @property
    def is_working(self) -> bool:
        """True while a turn or a command runs."""
        return self._work is not None

    @property
    def has_label(self) -> bool:
        """True if the label of a paste is before the cursor."""
        before = self.buffer.document.text_before_cursor
        return any(before.endswith(label) for label in self._labels)

    @property
    def _labels(self) -> list[str]:
        return [*self.talk.pastes, *self.talk.images]

    def submit(self) -> None:
        """Take the typed line: an answer, an immediate command, or a line that waits its turn."""
        line, self._breaks = self.buffer.text, 0
        if self.question.is_open:
            desk.say(f"{self.question.text}{line}")
            self.question.answer(line)
            return
        if not line.strip():
            return
        self.buffer.append_to_history()
        self.buffer.reset()
        if self.history.fault and not self._faulty:
            self._faulty = True
            desk.say(f"no history is kept: {self.history.fault}")
        word, _, rest = line.strip().partition(" ")
        if word in AT_ONCE:
            self._do_at_once(word, rest.strip())
            return
        self.queued.append(line)
        self._wakes.set()

    def _do_at_once(self, word: str, rest: str) -> None:
        if word in ENDS:
            self.leave(0)
        elif word == "/unfold":
            self.unfold(rest)
        elif word == "/edit":
            self.edit()
        else:
            self.talk.help(rest)

    def paste(self, data: str) -> None:
        """Take pasted text."""
        if self.question.is_open:
            self.buffer.insert_text(data.partition("\n")[0].strip("\r"))
            return
        prompt.insert_paste(self.buffer, data, self.talk.pastes, self.talk.images)

    def erase_label(self) -> None:
        """Erase the label of a paste before the cursor."""
        prompt.erase_label(self.buffer, self._labels)

    def interrupt(self) -> None:
        """Interrupt the answer; else empty the line; else, the second time, end."""
        if self.is_working:
            self.stop()
        elif self.buffer.text:
            self.buffer.reset()
        elif self._breaks:
            self.leave(activity.CODES["interrupted"])
        else:
            self._breaks += 1
            desk.say("/quit or Ctrl-D ends, another Ctrl-C as well")

    def stop(self) -> None:
        """Interrupt the running work; lines typed ahead come back into the input line."""
        if self._work is not None:
            self._work.cancel()
        if self.queued:
            held = "\n".join([*self.queued, *filter(None, [self.buffer.text])])
            self.queued.clear()
            self.buffer.text = held
            self.buffer.cursor_position = len(held)

    def leave(self, code: int) -> None:
        """End the screen."""
        if self.app.is_running and not self.app.is_done:
            self.app.exit(result=code)

    def unfold(self, rest: str) -> None:
        """Show a folded text in full; without a number the last one, then the one before it."""
        if rest and not rest.lstrip("#").isdigit():
            desk.say(f"/unfold takes the number of a line such as #3, not {rest!r}")
            return
        last = len(self.feed.folded)
        if not rest:  # the one before, unless more was folded since
            of, shown = self._unfolded
            self._unfolded = (last, shown - 1 if of == last and shown > 1 else last)
        number = int(rest.lstrip("#")) if rest else self._unfolded[1] or None
        if wrong := self.feed.unfold(number):
            desk.say(wrong)

    def edit(self) -> None:
        """Open the line in $EDITOR; output waits meanwhile."""
        if self.away:
            return
        self.away = True
        opened = self.buffer.open_in_editor(validate_and_handle=False)
        opened.add_done_callback(self._return)

    def _return(self, _: object) -> None:
        self.away = False
        self.above.flush_new()

    # --- drawing --------------------------------------------------------------------------------

    @property
    def columns(self) -> int:
        """Current width of the terminal."""
        return self.output.get_size().columns

    @property
    def prompt(self) -> str:
        """The text before the line."""
        return self.question.text if self.question.is_open else f"{self.talk.mode}> "

    def canvas(self) -> Canvas:
        """Return the current canvas; the last column stays empty."""
        return Canvas(self.columns - 1, has_colours())

    def draw_live(self) -> str:
        """Return the running part, in the rows that are left for it."""
        rows = self.output.get_size().rows - LEAST_INPUT - min(len(self.queued), QUEUE_SHOWN)
        return self.feed.draw_live(self.canvas(), max(rows, 1))

    def draw_queue(self) -> list[str]:
        """Return the lines typed ahead, one on each row."""
        shown = [f"queued: {line}" for line in list(self.queued)[:QUEUE_SHOWN]]
        if len(self.queued) > QUEUE_SHOWN:
            shown.append(f"and {len(self.queued) - QUEUE_SHOWN} more")
        return [lines.brief(row, self.columns - 1) for row in shown]

    def draw_toolbar(self) -> str:
        """Return the row at the bottom."""
        return self.toolbar.draw(self.talk.mode, self.talk.agent.provider.model, self.columns)

    def _lift(self) -> None:
        if self.app.is_running:
            self.app.renderer.erase()

    def _lower(self) -> None:
        if self.app.is_running:
            self.app.renderer.reset()
            self.app._redraw()  # noqa: SLF001 - at once, so that nothing flickers

    def resize(self) -> None:
        """Draw everything again once the size is stable."""
        if self._settling is not None:
            self._settling.cancel()
        loop = asyncio.get_running_loop()
        self._settling = loop.call_later(SETTLE_S, self.draw_anew)

    def draw_anew(self) -> None:
        """Draw the area above at the current width, and the part below it."""
        if self.away or not self.app.is_running:
            return
        before, self._width = self._width, self.columns
        self.app.renderer.erase()
        self.above.draw_anew(self.output.get_size().rows, before)

    def _show_message(self, line: str) -> None:
        """Put a person's message above its answer."""
        sign = f"{self.talk.mode}> "
        self.above.put(lambda canvas: "\n" + canvas.draw(make_text(f"{sign}{line}", "bold")))

    # --- the face of a talk ---------------------------------------------------------------------

    def begin(self, what: str) -> None:
        """Show that some work is waited for."""
        self.feed.begin(what)

    def end(self) -> None:
        """Show that the work is over."""
        self.feed.end()

    def hear(self, event: Told) -> None:
        """Show an event."""
        self.toolbar.hear(event)
        self.feed.hear(event)

    def open(self, session: Session) -> None:
        """Show another session from here on."""
        self.toolbar.open(session)
        self.feed.open(session)

    def show_past(self, session: Session) -> None:
        """Put the last messages of a continued session above."""
        items = session.fold.items
        spoke = max((n for n, item in enumerate(items) if isinstance(item, User)), default=None)
        for item in [] if spoke is None else items[spoke:]:
            if isinstance(item, User):
                self._show_message(item.text.partition("\n\n<")[0])
            elif isinstance(item, Round):
                for text in item.texts:
                    self.above.put(partial(draw_block, text))

    async def ask(self, call: Pending, reason: str) -> Consent | None:
        """Ask the person about a call, above the line; the answer is typed in the line."""
        return await ConsentQuestion(call, reason, self.question.put).put()

    def show_diff(self, text: str) -> None:
        """Show a unified diff."""
        made = make_diff(text)
        self.above.put(lambda canvas: canvas.draw(made))

    def show_report(self, report: Mapping[str, Any]) -> None:
        """Show the parts of the window."""
        self.above.put(lambda canvas: picture.draw(report, width=canvas.columns) + "\n")


def make_output() -> Output:
    """Return the terminal without asking for the cursor's place, since some never answer."""
    stream = sys.stdout
    if sys.platform == "win32":
        from prompt_toolkit.output import create_output

        return create_output(stream)
    from prompt_toolkit.output.vt100 import Vt100_Output

    output = Vt100_Output.from_pty(stream, term=os.environ.get("TERM"))
    output.enable_cpr = False
    return output


def run_screen(agent: Agent, session: Session, given: argparse.Namespace) -> int:
    """Talk on a screen until the person leaves."""
    made: list[Screen] = []

    async def run() -> int:
        made.append(Screen(agent, session, given))
        return await made[0].run()

    try:
        return activity.run_work(run())
    finally:
        with suppress(IndexError):
            session = made[0].talk.session
        session.close()


def _do_nothing() -> None:
    pass
