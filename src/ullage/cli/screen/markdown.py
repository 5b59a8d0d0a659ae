"""Draws a model's Markdown block by block as it comes, hiding nothing of it.

HTML, entities, references and images are shown as they were written, links with their targets. The
module does not know terminals or sessions.
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
"""Most characters of a block that is read as Markdown; a longer one is shown as text."""

LONGEST_LINE: Final = 10_000
"""Most characters of a line that is read as Markdown."""

LEAST_COLUMN: Final = 5
"""Fewest terminal columns for a table column; with less room, the rows become text."""

FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})(.*)$")
"""A line that begins or ends a block of code (CommonMark 0.31, section 4.5)."""

DEEPEST: Final = 60
"""Most levels of nested blocks; deeper ones are shown as text."""

LEAST_ROOM: Final = 12
"""Fewest columns that quotes and lists must leave for their text."""

INDENTS: Final[Mapping[str, int]] = MappingProxyType({"blockquote_open": 4, "list_item_open": 4})
"""Most columns that a block takes from its content."""

PARSER: Final = (
    MarkdownIt("commonmark", {"html": False, "maxNesting": DEEPEST})
    .enable(["strikethrough", "table"])
    .disable(["entity", "image", "reference", "html_block", "html_inline"])
)
"""`&#x202e;` stays encoded: decoded after the cleaning, it would reverse a line."""


class _Title(Heading):
    """A left-aligned heading of any level."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.justify = "left"
        yield Text("#" * int(self.tag[1:]) + " ", style=f"markdown.{self.tag}") + self.text


class _Code(CodeBlock):
    """Code without a background, so that copied text has no extra spaces."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield make_code(str(self.text).rstrip(), self.lexer_name)


class _Table(TableElement):
    """A table that cuts nothing: long words continue on the next row."""

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
    """Markdown in which every character is visible."""

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
        """Tell whether this width leaves room for the text in the deepest block."""
        taken = deepest = 0
        for token in self.parsed:
            size = INDENTS.get(token.type.replace("_close", "_open"), 0)
            taken += size * token.nesting
            deepest = max(deepest, taken)
            if token.level >= DEEPEST - 4:  # deeper parts were not read
                return False
        return not deepest or columns - deepest >= LEAST_ROOM


def make_markdown(text: str, columns: int = 80) -> RenderableType:
    """Return a block as Markdown, or as plain text if it cannot be drawn."""
    if len(text) <= LARGEST_BLOCK and max(map(len, text.split("\n"))) <= LONGEST_LINE:
        made = SafeMarkdown(text)
        if made.fits(columns):
            return made
    return Text(clean(text), overflow="fold")


@dataclass(slots=True)
class Blocks:
    """Text that comes in pieces, cut into complete blocks of Markdown at empty lines.

    Fenced code stays together, and so do indented lines after an empty line. `rest` is the
    incomplete part.
    """

    rest: str = ""
    _seen: int = 0
    _fence: str = ""
    _gap: bool = False
    _begun: bool = field(default=False)

    def add(self, text: str) -> Iterator[str]:
        """Take a piece; yield the blocks that it completes."""
        new = len(self.rest)  # the old text has no line end after `_seen`
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
        """Return the rest and begin anew."""
        rest = self.rest.strip("\n")
        self.rest, self._seen, self._fence, self._gap, self._begun = "", 0, "", False, False
        return rest if rest.strip() else ""

    def _begins(self, line: str) -> bool:
        """Tell whether a line begins a block, so that everything before it is complete."""
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
