"""Asks the person at the terminal about a call: shows all of it, page by page, then asks.

The model's text is shown with every control, bidirectional and invisible character as an escape.
The module decides nothing, and does not know turns.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from ullage.cli import glyphs, lines
from ullage.core.errors import ConfigurationError
from ullage.core.session.permissions import Consent, Grant
from ullage.core.session.tools import Pending

TERMINAL: Final = "/dev/tty"
"""The terminal of a program, even if its stdin is a pipe."""

OPENED: Final[int] = os.O_RDONLY | getattr(os, "O_NOCTTY", 0)
"""The flags to open it with. Windows has neither the file nor the flag."""

LINE: Final = "| "
REST: Final = ": "
"""The marks before a line of a call, and before its continuation."""

KEPT_ROWS: Final = 10
"""Rows of the screen that a page leaves for the question below it."""

LEAST_ROWS: Final = 10
"""Rows of a page that a low screen shows even at the cost of the question's rows."""

COLOURS: Final[Mapping[str, str]] = MappingProxyType(
    {"+": "\x1b[32m", "-": "\x1b[31m", "@": "\x1b[36m"}
)
PLAIN: Final = "\x1b[0m"

KINDS: Final[Mapping[str, str]] = MappingProxyType(
    {"command": "command", "path": "path", "arguments": "call"}
)

MORE: Final = "Enter shows more, g all the rest, n refuses"
HELP: Final = "answer y, a or n: it is neither allowed nor refused yet"

Read = Callable[[str], Awaitable[str | None]]
"""Shows a question and returns the line that a person types, or None at the end of the input."""


async def ask(call: Pending, reason: str) -> Consent | None:
    """Ask the person at the terminal about a call; return None without a terminal.

    After a cancellation, such as Ctrl-C, later lines are not read.
    """
    with _terminal() as descriptor:
        if descriptor is None:
            return None

        async def read(question: str) -> str | None:
            return await _read_line(descriptor, question)

        return await ConsentQuestion(call, reason, read).put()


@dataclass(frozen=True, slots=True)
class ConsentQuestion:
    """One question to a person."""

    call: Pending
    reason: str
    read: Read

    async def put(self) -> Consent:
        """Show the whole call, and return the answer."""
        if not await self._show():
            return await self._refuse("")
        lines.note(f"  {lines.expose(self.reason)}")
        for way in self._ways():
            lines.note(f"    {way}")
        while True:
            answer = await self.read("  Allow? [y/a/N] ")
            if answer is None:
                return Consent(False)
            word, _, rest = answer.strip().partition(" ")
            if word.lower() in ("", "n", "no"):
                return await self._refuse(rest.strip()) if word else Consent(False)
            if word.lower() in ("y", "yes") and not rest.strip():
                return Consent(True)
            if word.lower() in ("a", "always") and (found := self._always(rest.strip())):
                return found
            lines.note(f"  {HELP}")

    async def _show(self) -> bool:
        """Show the effect of the call; return whether all of it was shown."""
        preview = self.call.preview
        note = f": {preview.note}" if preview.note else ""
        lines.note(f"  {lines.expose(self.call.name)} asks for permission{lines.expose(note)}")
        size = lines.screen(sys.stderr)
        rows = list(draw_rows(preview.text, size.columns, paints(preview.kind)))
        page = max(size.lines - KEPT_ROWS, min(size.lines - 3, LEAST_ROWS), 1)
        shown = 0
        while shown < len(rows):
            for row in rows[shown : shown + page]:
                print(row, file=sys.stderr, flush=True)
            shown += page
            if shown < len(rows):
                answer = await self.read(f"  -- {shown} of {len(rows)} rows: {MORE} -- ")
                if answer is None or answer.strip().lower() in ("n", "no"):
                    return False
                page = len(rows) if answer.strip().lower() == "g" else page
        return True

    def _ways(self) -> Iterator[str]:
        """Yield the possible answers, one on each row."""
        tool, kind, text = map(lines.expose, self.call.subject)
        same = f"{tool} of {text}" if kind == "path" else f"this very {KINDS[kind]}"
        yield "y          yes, once"
        yield f"a          always in this session: {same}"
        if kind == "command":
            yield "a git log  always in this session: commands that begin with git log"
        elif kind == "path":
            yield f"a src/**   always in this session: {tool} of paths like this"
        yield f"a *        always in this session: every call of {tool}"
        yield "n REASON   no, and the model is told the reason"

    def _always(self, pattern: str) -> Consent | None:
        """Return a yes for the session; None, with a message, if the pattern matches nothing."""
        if pattern.strip("*") == "" and pattern:
            consent = Consent(True, scope="tool")
        elif pattern:
            plain = pattern.removesuffix("*").removesuffix(":").strip()
            command = self.call.subject.kind == "command"
            consent = Consent(True, scope="pattern", pattern=plain if command else pattern)
        else:
            consent = Consent(True, scope="same")
        try:
            grant = Grant(self.call.subject, consent.scope, consent.pattern)
        except ConfigurationError as error:
            lines.note(f"  {lines.expose(str(error))}")
            return None
        lines.note(f"  allowed in this session, in memory only: {lines.expose(str(grant))}")
        if not grant.covers(self.call.subject):
            lines.note("  this call does not match that; it is allowed once")
        return consent

    async def _refuse(self, reason: str) -> Consent:
        if not reason:
            reason = (await self.read("  Why? The model is told (Enter: no reason) ") or "").strip()
        return Consent(False, reason)


# ── drawing ─────────────────────────────────────────────────────────────────────────────────────


def paints(kind: str) -> bool:
    """Tell whether lines are coloured: for a diff, on a terminal, unless NO_COLOR is set."""
    wanted = not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"
    return kind == "diff" and wanted and lines.is_terminal(sys.stderr)


def draw_rows(text: str, columns: int, paint: bool) -> Iterator[str]:  # noqa: FBT001 - one of two forms
    """Yield the rows of a text on a screen: every character, with control characters escaped."""
    room = max(columns - len(LINE) - 1, 10)
    for line in text.split("\n"):
        colour = COLOURS.get(line[:1], "") if paint else ""
        mark = LINE
        for piece in _pieces(lines.expose(line), room):
            yield f"{colour}{mark}{piece}{PLAIN if colour else ''}"
            mark = REST


def _pieces(text: str, room: int) -> Iterator[str]:
    """Yield a line in pieces that fit; an empty line gives one piece."""
    kept, used = "", 0
    for character in text:
        width = glyphs.cells(character)
        if used + width > room:
            yield kept
            kept, used = "", 0
        kept, used = kept + character, used + width
    yield kept


# ── reading ─────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def _terminal() -> Iterator[int | None]:
    """Lend the descriptor of the person's input: stdin, or the terminal if stdin is a pipe."""
    if not lines.is_terminal(sys.stderr):
        yield None
    elif lines.is_terminal(sys.stdin):
        yield sys.stdin.fileno()
    else:
        try:
            descriptor = os.open(TERMINAL, OPENED)
        except OSError:
            yield None
            return
        try:
            yield descriptor
        finally:
            os.close(descriptor)


async def _read_line(descriptor: int, question: str) -> str | None:
    """Show a question and return the next typed line; earlier input is no answer.

    After a cancellation nothing is read, so that the next line goes to the next reader.
    """
    if sys.platform == "win32":  # Windows has no tools to ask about
        return None
    import termios

    loop = asyncio.get_running_loop()
    with suppress(termios.error):
        termios.tcflush(descriptor, termios.TCIFLUSH)
    print(question, end="", file=sys.stderr, flush=True)
    ready = asyncio.Event()
    loop.add_reader(descriptor, ready.set)
    try:
        await ready.wait()
    except asyncio.CancelledError:
        lines.note("")
        raise
    finally:
        loop.remove_reader(descriptor)
    try:
        typed = os.read(descriptor, 65_536)
    except OSError:  # the terminal is gone
        return None
    return typed.decode("utf-8", "replace") if typed else None
