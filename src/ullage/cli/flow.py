"""An answer on its way to stdout: unchanged into a pipe, wrapped at words on a terminal.

The cursor only moves forward: no line is overwritten, and no character is left out except spaces at
a line break. The module does not know models.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Final

import wcwidth

from ullage.cli import lines

FENCES: Final = ("```", "~~~")
"""The marks that begin and end a block of code (CommonMark 0.31, section 4.5)."""

INDENT: Final = 4
"""Fewest spaces at the beginning of a line of code."""

TAB: Final = 8

HEAD: Final = 16
"""Characters at the beginning of a line that decide what kind of line it is."""


@dataclass(slots=True)
class Flow:
    """Writes a text in pieces to stdout; `open` tells that its last line has no end.

    On a terminal, a word that does not fit goes to the next row. Code, tables and words longer than
    a row are left to the terminal, so that text copied from it is unchanged. The width is the
    terminal's current one for each word.
    """

    open: bool = False
    _columns: int = 0
    _raw: str = ""
    _out: list[str] = field(default_factory=list)
    _column: int = 0
    _head: str = ""
    _fence: str = ""
    _gap: str = ""
    _word: str = ""
    _loose: bool = False

    def write(self, text: str) -> None:
        """Write a piece; its end may be held back until the word is complete."""
        if not text:
            return
        self.open = True
        if not lines.is_terminal(sys.stdout):
            lines.out(text, end="")
            self.open = not text.endswith("\n")
            return
        self._measure()
        clusters = list(wcwidth.iter_graphemes(self._raw + text))
        if clusters[-1] == "\n":  # nothing can make it longer
            clusters.append("")
        self._raw = clusters[-1]
        self._take(clusters)
        self._send()

    def end(self) -> None:
        """Write the text held back, and end the line."""
        if self._raw:
            clusters, self._raw = [self._raw, ""], ""
            self._measure()
            self._take(clusters)
        self._place()
        self._send()
        if self.open:
            lines.out("")
        self._begin_line()
        self._fence = ""
        self.open = False

    def _measure(self) -> None:
        columns = lines.screen(sys.stdout).columns
        if columns < self._columns:  # a terminal that reflows leaves the cursor there
            self._column %= columns
        self._columns = columns

    def _take(self, clusters: list[str]) -> None:
        """Take all but the last cluster, which may be incomplete."""
        for place in range(len(clusters) - 1):
            cluster = clusters[place]
            if cluster in ("\n", "\r\n"):
                self._end_line()
            elif cluster in (" ", "\t"):
                self._space(cluster)
            else:
                self._add(lines.show_cluster(cluster, clusters[place + 1]))
            if len(self._head) < HEAD:
                self._head += cluster.strip("\r\n")

    def _send(self) -> None:
        text, self._out = "".join(self._out), []
        if text:
            lines.out(text, end="")
            self.open = not text.endswith("\n") or bool(self._word or self._raw)

    # --- words ----------------------------------------------------------------------------------

    def _add(self, shown: str) -> None:
        """Add a cluster to the word; a wide one is its own word, since lines may break at any."""
        wide = not shown.isascii() and wcwidth.width(shown) > 1
        if self._loose or self._is_kept():
            self._place()
            self._put(self._gap + shown)
            self._gap = ""
            return
        if wide:
            self._place()
        self._word += shown
        word = wcwidth.width(self._word)
        if self._column and self._column + self._wide(self._gap) + word > self._columns:
            self._break()
        if word > self._columns:
            self._place()
            self._loose = True
        elif wide:
            self._place()

    def _space(self, cluster: str) -> None:
        self._place()
        self._loose = False
        if self._is_kept() or not self._head.strip():
            self._put(cluster)
        else:
            self._gap += cluster

    def _place(self) -> None:
        """Write the word, and the gap before it."""
        if self._word:
            self._put(self._gap + self._word)
            self._gap = self._word = ""

    def _put(self, text: str) -> None:
        self._out.append(text)
        for part in wcwidth.iter_graphemes(text):
            size = self._wide(part)
            if self._column + size > self._columns:
                self._column = 0  # the terminal itself moves to the next row
            self._column += size

    def _wide(self, text: str) -> int:
        if "\t" not in text:
            return int(wcwidth.width(text))
        column = self._column
        for character in text:
            column += TAB - column % TAB if character == "\t" else 1
        return column - self._column

    # --- lines ----------------------------------------------------------------------------------

    def _break(self) -> None:
        """Go to the next row in place of the gap."""
        self._out.append("\n")
        self._column, self._gap = 0, ""

    def _end_line(self) -> None:
        self._place()
        if self._column + self._wide(self._gap) <= self._columns:
            self._out.append(self._gap)
        self._out.append("\n")
        mark = self._head.strip()
        if self._fence:
            self._fence = "" if mark.startswith(self._fence) else self._fence
        elif mark.startswith(FENCES):
            self._fence = mark[:3]
        self._begin_line()

    def _begin_line(self) -> None:
        self._column, self._head, self._gap, self._loose = 0, "", "", False

    def _is_kept(self) -> bool:
        """Tell whether the line is code or a table, whose rows are left to the terminal."""
        if self._fence or self._head.startswith(("|", "\t", " " * INDENT)):
            return True
        return self._head.lstrip(" ").startswith(FENCES)
