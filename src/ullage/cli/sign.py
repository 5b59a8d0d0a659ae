"""A sign of life on stderr: the current work, and its seconds so far.

It has a line of its own and is removed before other output. The module does not know turns.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from typing import Final

from ullage.cli import glyphs, lines

EVERY_S: Final = 1.0
"""Seconds between two signs."""


@dataclass(slots=True)
class Sign:
    """Seconds since `begin`, shown by each `tick` and removed by `clear`; on a terminal only."""

    what: str = "waiting"
    _since: float = field(default_factory=time.monotonic)
    _shown: int = 0

    def begin(self, what: str) -> None:
        """Wait for something; the seconds continue if it is the same thing as before."""
        if what != self.what:
            self.clear()
            self.what, self._since = what, time.monotonic()

    def describe(self, what: str) -> None:
        """Describe the work in more detail; the seconds continue."""
        self.what = what

    def tick(self) -> None:
        """Show the seconds so far."""
        if not lines.fits(sys.stderr):
            return
        seconds = int(time.monotonic() - self._since)
        room = lines.screen(sys.stderr).columns - 1
        text = glyphs.cut(f"  {glyphs.clean(self.what)} {seconds} s", room)
        self._write("\r" + text + " " * (self._shown - len(text)))
        self._shown = len(text)

    def clear(self) -> None:
        """Remove the sign, and leave the line empty."""
        if self._shown:
            self._write("\r" + " " * self._shown + "\r")
            self._shown = 0

    def _write(self, text: str) -> None:
        if sys.stderr is not None:
            print(text, end="", file=sys.stderr, flush=True)
