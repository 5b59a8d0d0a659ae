"""The area above the input line: written once, and drawn again if the width changes.

It replaces stdout and stderr, so that all messages appear there while the screen is open. The
callers of `write` have cleaned their text.
"""

from __future__ import annotations

import io
import os
import re
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ullage.cli.screen.drawing import Canvas, clean

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from prompt_toolkit.output import Output

    from ullage.cli.screen.feed import Entry

COLOURS: Final = re.compile(r"(\x1b\[[0-9;]{0,40}m)")

KEPT: Final = 400
"""Entries that are kept, to be drawn again at another width."""


class Above(io.TextIOBase):
    """A stream whose complete lines are written above; other threads may write, too.

    `put` writes an entry that can be drawn again. `lift` removes the part below, `lower` shows it
    again.
    """

    def __init__(self, output: Output, canvas: Callable[[], Canvas], descriptor: int) -> None:
        super().__init__()
        self._output, self._canvas, self._descriptor = output, canvas, descriptor
        self._kept: deque[Entry] = deque(maxlen=KEPT)
        self._held = ""
        self._lock = threading.Lock()
        self._loop: AbstractEventLoop | None = None
        self._waits = False
        self.lift: Callable[[], None] = _do_nothing
        self.lower: Callable[[], None] = _do_nothing
        self._new: list[str] = []

    # --- as a stream ----------------------------------------------------------------------------

    @property
    def encoding(self) -> str:  # type: ignore[override]  # a stream that has one
        """The encoding of the terminal."""
        return self._output.encoding()

    def fileno(self) -> int:
        """Return the descriptor of the terminal, for asking its size."""
        return self._descriptor

    def isatty(self) -> bool:
        """Tell that this is a terminal."""
        return True

    def writable(self) -> bool:
        """Tell that it can be written to."""
        return True

    def write(self, text: str) -> int:
        """Write a text above as soon as its lines are complete."""
        with self._lock:
            whole, _, self._held = (self._held + text).rpartition("\n")
            ready = "\n" in text
        if ready:
            self.put(_repeat(f"{whole}\n"))
        return len(text)

    # --- as a place -----------------------------------------------------------------------------

    def attach(self, loop: AbstractEventLoop) -> None:
        """Write in this loop from here on, from whichever thread."""
        self._loop = loop

    def put(self, entry: Entry) -> None:
        """Write an entry above."""
        text = entry(self._canvas())
        with self._lock:
            self._kept.append(entry)
            self._new.append(text)
            if self._waits:
                return
            self._waits = self._loop is not None
        if self._loop is None:
            self.flush_new()
        else:
            self._loop.call_soon_threadsafe(self.flush_new)

    def flush_new(self) -> None:
        """Write the new entries, together with the part below."""
        with self._lock:
            text, self._new, self._waits = "".join(self._new), [], False
        if text:
            self.lift()
            self._send(guard(text))
            self.lower()

    def close_line(self) -> None:
        """Write the text that has no line end yet."""
        with self._lock:
            held, self._held = self._held, ""
        if held:
            self.put(_repeat(f"{held}\n"))

    def draw_anew(self, rows: int, before: int) -> None:
        """Draw the last entries again at the current width, on a screen of so many rows.

        `before` is the old width: the text visible then is visible now, or above.
        """
        self.flush_new()
        canvas, old = self._canvas(), Canvas(before, self._canvas().colour)
        texts: list[str] = []
        now = then = 0
        for entry in reversed(self._kept):
            texts.append(entry(canvas))
            now += count_rows(texts[-1], canvas.columns)
            then += count_rows(entry(old), before)
            if now >= rows and then >= rows:
                break
        if now >= rows and then >= rows:
            blank = "".join(f"\x1b[{row};1H\x1b[2K" for row in range(1, rows + 1))
        else:  # move lines of other programs up, do not overwrite them
            blank = f"\x1b[{rows};1H" + "\n" * rows
        self._send(f"\x1b[0m{blank}\x1b[H{guard(''.join(reversed(texts)))}")
        self.lower()

    def _send(self, text: str) -> None:
        encoding = self._output.encoding() or "utf-8"
        shown = text.encode(encoding, "backslashreplace").decode(encoding)
        self._output.write_raw(shown)
        self._output.flush()


def guard(text: str) -> str:
    """Return a text with no control sequences but colours, whoever wrote it, even a log."""
    pieces = COLOURS.split(text)
    return "".join(piece if n % 2 else clean(piece) for n, piece in enumerate(pieces))


def _repeat(text: str) -> Entry:
    """Return an entry that gives the same text at any width."""
    return lambda _: text


def count_rows(text: str, columns: int) -> int:
    """Return the approximate number of rows of a text; control sequences count as visible."""
    return sum(max(-(-len(line) // max(columns, 1)), 1) for line in text.split("\n")[:-1])


def find_descriptor() -> int:
    """Return the descriptor of the terminal for output."""
    return 1 if os.isatty(1) else 2


def _do_nothing() -> None:
    pass
