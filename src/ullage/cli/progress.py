"""A bar for long work on stderr: its progress, its speed, and the time left.

It is drawn only on a terminal, after one second, and removed when the work ends. A thread draws it,
so that waiting for a server, or a step without reports, does not look like the end. Bars of
libraries are drawn only with a report, so they are not used. The module does not know the work.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from ullage.cli import glyphs, lines

AFTER_S: Final = 1.0
"""Seconds of work without a bar."""

EVERY_S: Final = 0.2
"""Seconds between two drawings."""

CELLS, LEAST = 24, 4
"""Most cells of the bar; with fewer than the least, only numbers are shown."""

BYTES: Final = "MB"
"""The unit of reports in bytes."""


@dataclass(slots=True)
class Bar:
    """The state of the work: a `Progress` that keeps the last report."""

    what: str
    unit: str = BYTES
    done: int = 0
    total: int | None = None
    since: float = field(default_factory=time.monotonic)
    first: int | None = None
    """The amount done at the first report: the rate counts only the work after it."""

    def __call__(self, done: int, total: int | None) -> None:
        """Take a report."""
        if self.first is None:
            self.first = done
        self.done, self.total = done, total

    def begin(self, what: str, unit: str = BYTES) -> None:
        """Begin the next step of the work."""
        self.what, self.unit, self.done, self.total, self.first = what, unit, 0, None, None
        self.since = time.monotonic()

    def text(self, seconds: float, room: int = 79, *, plain: bool = False) -> str:
        """Return the bar after so many seconds of this step, in at most `room` cells."""
        what, unit = glyphs.cut(glyphs.clean(self.what), max(room // 3, 10)), self.unit
        if not self.total:
            counted = f"  {_amount(self.done, unit)} {unit}" if self.done else ""
            return glyphs.cut(f"{what}{counted}  {seconds:.0f} s", room)
        share = min(self.done / self.total, 1.0)
        size = f"{_amount(self.done, unit)} of {_amount(self.total, unit)} {unit}"
        told = f"{share:4.0%}  {size}{self._pace(seconds)}"
        cells = min(CELLS, room - glyphs.cells(what) - len(told) - 2)
        if cells < LEAST:
            return glyphs.cut(f"{what} {told}", room)
        signs = ("#", ".") if plain else ("━", "╌")
        full = int(share * cells)
        return f"{what} {signs[0] * full}{signs[1] * (cells - full)} {told}"

    def _pace(self, seconds: float) -> str:
        worked = self.done - (self.first or 0)
        if worked <= 0 or seconds <= 0 or self.total is None:
            return ""
        rate = worked / seconds
        left = max(self.total - self.done, 0) / rate
        per = f" {BYTES}" if self.unit == BYTES else ""
        return f"  {_amount(rate, self.unit)}{per}/s  {_lasting(left)} left"


@contextmanager
def watch(what: str, unit: str = BYTES) -> Iterator[Bar]:
    """Lend the bar of some work; it is drawn while the block runs."""
    bar = Bar(what, unit)
    if not lines.fits(sys.stderr):
        yield bar
        return
    ended = threading.Event()
    drawing = threading.Thread(target=_draw, args=(bar, ended), daemon=True)
    drawing.start()
    try:
        yield bar
    finally:
        ended.set()
        drawing.join()


def _draw(bar: Bar, ended: threading.Event) -> None:
    """Draw the bar until the work ends, then remove it."""
    if ended.wait(AFTER_S):
        return
    encoding = getattr(sys.stderr, "encoding", None) or "utf-8"
    plain = not _carries(encoding)
    shown = 0
    while True:
        room = lines.screen(sys.stderr).columns - 1
        text = bar.text(time.monotonic() - bar.since, room, plain=plain)
        text = text.encode(encoding, "replace").decode(encoding)
        width = glyphs.cells(text)
        print(f"\r{text}{' ' * (shown - width)}", end="", file=sys.stderr, flush=True)
        shown = width
        if ended.wait(EVERY_S):
            print(f"\r{' ' * shown}\r", end="", file=sys.stderr, flush=True)
            return


def _carries(encoding: str) -> bool:
    try:
        "━╌".encode(encoding)
    except UnicodeEncodeError:
        return False
    return True


def _amount(number: float, unit: str) -> str:
    return f"{number / 1e6:,.1f}" if unit == BYTES else f"{number:,.0f}"


def _lasting(seconds: float) -> str:
    """Return a time in words for people."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min {rest:02} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
