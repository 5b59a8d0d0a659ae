"""Draws how a window fills: one column for each turn, redrawn in place on a terminal.

It gets sizes in tokens and knows no model and no guard. No meaning depends on colour: a refused
turn is a cross, a compaction a mark below its column.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Final

from ullage.cli import glyphs, lines

ROWS: Final = 6
"""Rows of the picture for the window; a row has eight steps."""

AXIS: Final = 9
"""Cells left of the columns, for a size in tokens and the axis."""

BLOCKS: Final = " ▁▂▃▄▅▆▇█"
REFUSED, COMPACTED, EDGE, CORNER, FLOOR = "✗▾┤└─"
PLAIN: Final = str.maketrans("▁▂▃▄▅▆▇█✗▾┤└─", "..::||##xv|+-")
"""Replacements for terminals without such characters."""

UP_AND_CLEAR: Final = "\x1b[{}F\x1b[J"
"""Moves up so many lines and clears from there (ECMA-48: CPL, ED)."""


@dataclass(frozen=True, slots=True)
class TurnFill:
    """One turn: the tokens that were sent, or None if it was refused."""

    tokens: int | None
    compacted: bool = False


@dataclass(slots=True)
class Chart:
    """The columns of a conversation in a window of so many tokens, under a title."""

    title: str
    window: int
    columns: list[TurnFill] = field(default_factory=list)
    _drawn: int = 0

    def add(self, column: TurnFill, news: str = "") -> None:
        """Add a turn; on a terminal the picture is redrawn, with `news` below it."""
        self.columns.append(column)
        if not lines.fits(sys.stderr):
            return
        size = lines.screen(sys.stderr)
        rows = [glyphs.cut(row, size.columns - 1) for row in [*self.draw(size.columns), news]]
        back = UP_AND_CLEAR.format(self._drawn) if self._drawn else ""
        self._drawn = len(rows)
        print(back + "\n".join(rows), file=sys.stderr, flush=True)

    def finish(self) -> None:
        """Show the whole picture if it was not drawn turn by turn."""
        if not self._drawn:
            print("\n".join(self.draw(80)), file=sys.stderr, flush=True)

    def draw(self, width: int) -> list[str]:
        """Return the rows of the picture in at most `width` cells: the newest turns that fit."""
        shown = self.columns[-max(1, width - AXIS - 1) :]
        rows = [self.title]
        for row in range(ROWS, 0, -1):
            size = f"{self.window:,}" if row == ROWS else "0" if row == 1 else ""
            cells = "".join(self._cell(column, row) for column in shown)
            rows.append(f"{size:>{AXIS - 2}} {EDGE}{cells}")
        marks = "".join(COMPACTED if column.compacted else FLOOR for column in shown)
        rows.append(f"{'':{AXIS - 1}}{CORNER}{marks}")
        text = "\n".join(rows)
        fit = lines.is_encodable(text, getattr(sys.stderr, "encoding", None))
        return (text if fit else text.translate(PLAIN)).split("\n")

    def _cell(self, column: TurnFill, row: int) -> str:
        """Return what a turn shows in a row; row 1 is the lowest."""
        if column.tokens is None:
            return REFUSED if row == ROWS else " "
        steps = -(-column.tokens * ROWS * 8 // self.window)  # any tokens show at least one step
        return BLOCKS[min(8, max(0, steps - (row - 1) * 8))]
