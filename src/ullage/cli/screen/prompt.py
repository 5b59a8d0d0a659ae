"""The input line: pastes into it, questions above it, its appearance."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ullage.cli.attaching import find_image

if TYPE_CHECKING:
    from prompt_toolkit.buffer import Buffer

LONGEST_PASTE: Final = 1_000
"""Most characters of a pasted line that is treated as typed."""


def insert_paste(
    buffer: Buffer, data: str, pastes: dict[str, str], images: dict[str, Path]
) -> None:
    """Insert pasted text: a short line as it is, else a label for it."""
    text = data.replace("\r\n", "\n").replace("\r", "\n")
    image = find_image(text)
    if image is not None:
        label = _name_label(f"[image {image.name}", images)
        images[label] = image
    elif "\n" in text.rstrip("\n") or len(text) > LONGEST_PASTE:
        text = text.rstrip("\n")
        rows = text.count("\n") + 1
        size = f"{rows:,} lines" if rows > 1 else f"{len(text):,} characters"
        label = _name_label(f"[pasted {size}", pastes)
        pastes[label] = text
    else:
        label = text.rstrip("\n")
    buffer.insert_text(label)


def _name_label(begin: str, taken: Mapping[str, object]) -> str:
    """Return a new, unique label for the line."""
    label, number = f"{begin}]", 1
    while label in taken:
        number += 1
        label = f"{begin}, {number}]"
    return label


def erase_label(buffer: Buffer, labels: list[str]) -> bool:
    """Erase the label of a paste before the cursor; tell whether there was one."""
    before = buffer.document.text_before_cursor
    label = next((label for label in labels if before.endswith(label)), None)
    if label is None:
        return False
    buffer.delete_before_cursor(len(label))
    return True


@dataclass(slots=True)
class LineQuestion:
    """A question to a person instead of the next message: one line answers it.

    The text typed before is no answer: it comes back afterwards.
    """

    buffer: Buffer
    text: str = ""
    _answer: asyncio.Future[str | None] | None = None
    _kept: str = field(default="")

    @property
    def is_open(self) -> bool:
        """True while somebody waits for an answer."""
        return self._answer is not None and not self._answer.done()

    async def put(self, text: str) -> str | None:
        """Ask, and return the line that answers, or None if no answer comes."""
        self.text, self._kept = text, self.buffer.text
        self.buffer.reset()
        self._answer = asyncio.get_running_loop().create_future()
        try:
            return await self._answer
        finally:
            self._answer = None
            self.text = ""
            self.buffer.text = self._kept
            self.buffer.cursor_position = len(self._kept)

    def answer(self, line: str | None) -> None:
        """Give the answer."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(line)
