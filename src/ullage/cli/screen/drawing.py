"""Draws texts as rows of a terminal: colours, code, diffs, Markdown, no other control.

The texts come from models, tools and files. They are cleaned before rich sees them, rich's own
mark-up is off, and every piece from rich is checked once more. The module writes nowhere.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from rich.console import Console, RenderableType
from rich.segment import Segment
from rich.style import Style
from rich.syntax import Syntax
from rich.text import Text
from rich.theme import Theme

from ullage.cli import lines

NARROWEST: Final = 20
"""Fewest columns to draw for; a narrower terminal cuts the rows itself."""

LARGEST_CODE: Final = 20_000
"""Most characters of code that are coloured; lexers are slow with more."""

THEME: Final = "ansi_dark"
"""A theme of the terminal's own sixteen colours, so that its settings decide how they look."""

STYLES: Final = Theme({"markdown.code": "cyan", "markdown.code_block": "none"})
"""Styles for code on the terminal's own background."""

DIFF: Final[Mapping[str, str]] = MappingProxyType({"+": "green", "-": "red", "@": "cyan"})
"""First characters of a diff's lines, with their colours; the same as in questions to a person."""


@dataclass(frozen=True, slots=True)
class Canvas:
    """The area to draw on: `columns` of a terminal, with or without colours."""

    columns: int
    colour: bool = True

    def draw(self, *shown: RenderableType) -> str:
        """Return rows without control sequences except colours, each with a line end."""
        width = max(self.columns, NARROWEST)
        console = Console(
            file=io.StringIO(),
            force_terminal=True,
            color_system="256" if self.colour else None,
            no_color=not self.colour,
            width=width,
            markup=False,
            highlight=False,
            emoji=False,
            legacy_windows=False,
            theme=STYLES,
            _environ={},
        )
        rows = []
        for each in shown:
            for row in console.render_lines(each, pad=False):
                rows.append(self._write(console, _trim(list(row))))
        return "".join(f"{row}\n" for row in rows)

    def _write(self, console: Console, row: Iterable[Segment]) -> str:
        made = []
        for segment in row:
            text = "" if segment.control else clean(segment.text)
            style = segment.style
            if not text or style is None or not style:
                made.append(text)
                continue
            # a link of rich is a control sequence and would hide its target
            bare = Style.combine([style, Style(link=None)]) if style.link is None else Style()
            made.append(bare.render(text, color_system=console._color_system))  # noqa: SLF001 - rich gives it by no other name
        return "".join(made)


def _trim(row: list[Segment]) -> Iterator[Segment]:
    """Yield a row without the spaces at its end."""
    while row and not row[-1].text.strip(" "):
        row.pop()
    yield from row[:-1]
    if row:
        yield Segment(row[-1].text.rstrip(" "), row[-1].style, row[-1].control)


def has_colours() -> bool:
    """Tell whether colours are wanted: not if NO_COLOR is set (no-color.org)."""
    return not os.environ.get("NO_COLOR")


def is_plain_text() -> bool:
    """Tell whether the terminal's encoding only takes ASCII."""
    encoding = getattr(sys.stdout, "encoding", None) or "ascii"
    try:
        "⠋●·".encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return True
    return False


def clean(text: str) -> str:
    """Return foreign text with control characters made visible."""
    if text.isascii() and text.isprintable():
        return text
    return "\n".join(map(_clean_line, text.replace("\r\n", "\n").split("\n")))


def _clean_line(line: str) -> str:
    line = line.expandtabs(4)
    return line if line.isascii() and line.isprintable() else lines.visible(line)


def make_text(text: str, style: str = "") -> Text:
    """Return foreign text for rich, without reading mark-up in it."""
    return Text(clean(text), style=style, overflow="fold", no_wrap=False)


def make_diff(text: str) -> Text:
    """Return a unified diff, its lines coloured by their first character."""
    made = Text(overflow="fold")
    for line in clean(text).split("\n"):
        made.append(f"{line}\n", style=DIFF.get(line[:1], ""))
    made.right_crop(1)
    return made


def make_code(code: str, language: str) -> RenderableType:
    """Return code in the colours of its language, or without colours if it is long."""
    code = clean(code)
    if len(code) > LARGEST_CODE or not language:
        return Text(code, overflow="fold")
    return Syntax(code, language, theme=THEME, background_color="default", word_wrap=True)
