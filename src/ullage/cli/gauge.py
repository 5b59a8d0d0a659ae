"""The gauge on the last line of a terminal while an answer streams above it.

It knows terminals (ECMA-48 sequences, DECSTBM for the region that scrolls) and no model.
"""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from typing import TextIO

from ullage.cli import picture


def fits(stream: TextIO) -> bool:
    """Tell whether a stream is a terminal that can hold a line still."""
    return stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"


@dataclass(slots=True)
class Line:
    """A line that stays below the text; `show` again changes it, `end` gives the screen back.

    Does nothing where the stream is no terminal.
    """

    stream: TextIO = sys.stderr
    rows: int = 0

    def show(self, text: str) -> None:
        """Show the text on the last line."""
        if not fits(self.stream):
            return
        size = shutil.get_terminal_size()
        if size.lines < 3:
            return
        if self.rows != size.lines:
            self.rows = size.lines
            # A line of room, the region above the last line, and back to where the text goes on.
            self._write(f"\n\x1b[1A\x1b7\x1b[1;{self.rows - 1}r\x1b8")
        said = picture.cut(picture.clean(text), size.columns - 1)
        self._write(f"\x1b7\x1b[{self.rows};1H\x1b[2K{said}\x1b8")

    def end(self) -> None:
        """Clear the line and let the whole screen scroll again."""
        if self.rows:
            self._write(f"\x1b7\x1b[r\x1b[{self.rows};1H\x1b[2K\x1b8")
            self.rows = 0

    def _write(self, text: str) -> None:
        self.stream.write(text)
        self.stream.flush()
