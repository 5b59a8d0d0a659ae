"""A sign of life on stderr: what is waited for, and for how many seconds.

It stands on a line of its own and is gone before anything else is written. It knows no turn.
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
    """Seconds since `begin`, shown by each `tick` and taken away by `clear`; on a terminal only."""

    what: str = "waiting"
    _since: float = field(default_factory=time.monotonic)
    _shown: int = 0

    def begin(self, what: str) -> None:
        """Wait for something; the seconds go on where it is what was waited for already."""
        if what != self.what:
            self.clear()
            self.what, self._since = what, time.monotonic()

    def describe(self, what: str) -> None:
        """Say more of what is waited for; the seconds go on."""
        self.what = what

    def tick(self) -> None:
        """Show how long it has been."""
        if not lines.fits(sys.stderr):
            return
        seconds = int(time.monotonic() - self._since)
        room = lines.screen(sys.stderr).columns - 1
        text = glyphs.cut(f"  {glyphs.clean(self.what)} {seconds} s", room)
        self._write("\r" + text + " " * (self._shown - len(text)))
        self._shown = len(text)

    def clear(self) -> None:
        """Take the sign away, and leave the line empty."""
        if self._shown:
            self._write("\r" + " " * self._shown + "\r")
            self._shown = 0

    def _write(self, text: str) -> None:
        if sys.stderr is not None:
            print(text, end="", file=sys.stderr, flush=True)
