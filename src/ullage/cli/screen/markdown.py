"""Markdown of a model, block by block as it comes: nothing that it says is hidden.

HTML, entities, references and images are shown as they stand, links with where they lead. It
knows no terminal and no session.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, Final

from markdown_it import MarkdownIt
from rich import box
from rich.markdown import CodeBlock, Heading, Markdown, TableElement
from rich.table import Table
from rich.text import Text

from ullage.cli.screen.drawing import clean, make_code

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

LARGEST_BLOCK: Final = 100_000
"""Characters of one block that are read as Markdown; more is shown as text."""

LONGEST_LINE: Final = 10_000
"""Characters of one line that are read as Markdown."""

LEAST_COLUMN: Final = 5
"""Columns of a terminal for a column of a table; where there are fewer its rows are text."""

FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})(.*)$")
"""A line that begins or ends a block of code (CommonMark 0.31, section 4.5)."""

DEEPEST: Final = 60
"""Levels of blocks within blocks that are read; what is deeper is shown as text."""

LEAST_ROOM: Final = 12
"""Columns that quotes and lists leave to the text in them, at the least."""

INDENTS: Final[Mapping[str, int]] = MappingProxyType({"blockquote_open": 4, "list_item_open": 4})
"""Columns that a block takes from those in it, at most."""

PARSER: Final = (
    MarkdownIt("commonmark", {"html": False, "maxNesting": DEEPEST})
    .enable(["strikethrough", "table"])
    .disable(["entity", "image", "reference", "html_block", "html_inline"])
)
"""`&#x202e;` stays what it is: decoded behind the cleaning, it would turn a line around."""


class _Title(Heading):
    """A heading at the left, whatever its level."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.justify = "left"
        yield Text("#" * int(self.tag[1:]) + " ", style=f"markdown.{self.tag}") + self.text


class _Code(CodeBlock):
    """Code without a background, so that what is copied has no spaces at its ends."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield make_code(str(self.text).rstrip(), self.lexer_name)


class _Table(TableElement):
    """A table that leaves out nothing: long words go on in the next row."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        heads = self.header.row.cells if self.header and self.header.row else []
        rows = [
            [cell.content for cell in row.cells] for row in (self.body.rows if self.body else [])
        ]
        if len(heads) * LEAST_COLUMN > options.max_width:
            for cells in ([cell.content for cell in heads], *rows):
                yield Text(" | ", overflow="fold").join(cells)
            return
        table = Table(box=box.SIMPLE, pad_edge=False, collapse_padding=True, show_edge=False)
        for head in heads:
            table.add_column(head.content, justify=head.content.justify or "left", overflow="fold")
        for cells in rows:
            table.add_row(*cells)
        yield table


class SafeMarkdown(Markdown):
    """Markdown whose every character is seen."""

    elements: ClassVar = {
        **Markdown.elements,
        "heading_open": _Title,
        "fence": _Code,
        "code_block": _Code,
        "table_open": _Table,
    }

    def __init__(self, text: str) -> None:
        super().__init__("", hyperlinks=False)
        self.markup = clean(text)
        self.parsed = PARSER.parse(self.markup)

    def fits(self, columns: int) -> bool:
        """Tell whether so many columns leave room for the text in the deepest block."""
        taken = deepest = 0
        for token in self.parsed:
            size = INDENTS.get(token.type.replace("_close", "_open"), 0)
            taken += size * token.nesting
            deepest = max(deepest, taken)
            if token.level >= DEEPEST - 4:  # what is deeper was not read
                return False
        return not deepest or columns - deepest >= LEAST_ROOM


def make_markdown(text: str, columns: int = 80) -> RenderableType:
    """Return a block as Markdown, or as the text that it is where it cannot be drawn so."""
    if len(text) <= LARGEST_BLOCK and max(map(len, text.split("\n"))) <= LONGEST_LINE:
        made = SafeMarkdown(text)
        if made.fits(columns):
            return made
    return Text(clean(text), overflow="fold")


@dataclass(slots=True)
class Blocks:
    """A text that comes in pieces, cut where a block of Markdown is whole: at an empty line.

    Code between fences stays together, and so does what is indented below an empty line. `rest` is
    what is not whole yet.
    """

    rest: str = ""
    _seen: int = 0
    _fence: str = ""
    _gap: bool = False
    _begun: bool = field(default=False)

    def add(self, text: str) -> Iterator[str]:
        """Take a piece; yield the blocks that are whole by it."""
        new = len(self.rest)  # what was there before has no line end behind `_seen`
        self.rest += text
        while (end := self.rest.find("\n", max(new, self._seen))) >= 0:
            line = self.rest[self._seen : end]
            if self._begins(line):
                block, self.rest = self.rest[: self._seen], self.rest[self._seen :]
                end, new = end - self._seen, 0
                self._begun = False
                if block.strip():
                    yield block.strip("\n")
            self._note(line)
            self._seen = end + 1

    def end(self) -> str:
        """Return what is left, and begin anew."""
        rest = self.rest.strip("\n")
        self.rest, self._seen, self._fence, self._gap, self._begun = "", 0, "", False, False
        return rest if rest.strip() else ""

    def _begins(self, line: str) -> bool:
        """Tell whether a line begins a block, so that all before it is whole."""
        if self._fence or not line.strip() or line[:1] in " \t":
            return False
        return self._begun and self._gap

    def _note(self, line: str) -> None:
        self._gap = not line.strip() and not self._fence
        self._begun = self._begun or bool(line.strip())
        found = FENCE.match(line)
        if found is None:
            return
        if not self._fence:
            self._fence = found[1]
        elif found[1].startswith(self._fence) and not found[2].strip():
            self._fence = ""
