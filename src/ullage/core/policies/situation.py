"""What a strategy is given to plan on: a measured transcript, a target, and what must stay.

All sizes are upper edges in the counter's own tokens. It knows no strategy and no window.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ullage.core.edits import Edit
    from ullage.core.laws import Unit
    from ullage.core.transcript import Transcript

CUT_MARK: Final = "\n[ullage: about {tokens:,} tokens left out here]\n"
"""Stands where the middle of a text was left out."""


@dataclass(frozen=True, slots=True)
class Situation:
    """A transcript over its target.

    `sizes` has one upper edge a message, `fixed` that of everything outside the list. `pins` are
    positions that must stay verbatim; `tail` is how many tokens of the newest units strategies
    leave alone (the newest unit always stays). `count` counts a text. `knowledge` are positions of
    messages that go before any of the conversation does.
    """

    transcript: Transcript
    units: tuple[Unit, ...]
    sizes: Sequence[int]
    fixed: int
    target: int
    pins: frozenset[int]
    tail: int
    count: Callable[[str], int]
    knowledge: frozenset[int] = frozenset()

    @property
    def total(self) -> int:
        """The upper edge of the whole."""
        return self.fixed + sum(self.sizes)

    def border(self) -> int:
        """Return the number of units in front of the protected tail."""
        kept = 0
        border = len(self.units)
        for index in range(len(self.units) - 1, -1, -1):
            unit = self.units[index]
            kept += sum(self.sizes[unit.start : unit.stop])
            if kept > self.tail and index < len(self.units) - 1:
                break
            border = index
        return border


class Strategy(Protocol):
    """Plan edits that bring a situation to its target, or as near to it as it can."""

    def __call__(self, situation: Situation) -> list[Edit]:
        """Return the edits; none when there is nothing that it may do."""
        ...


def shorten(text: str, tokens: int, count: Callable[[str], int]) -> str:
    """Return the head and tail of `text`, about two to one, in at most `tokens` tokens.

    A text that fits is returned as it is. Where not even the mark fits, the mark alone remains.
    """
    tokens, whole = max(tokens, 0), count(text)
    if whole <= tokens:
        return text
    room = len(text)
    mark = CUT_MARK.format(tokens=whole - tokens)
    for _ in range(_TRIES):
        room = min(room - 1, room * max(tokens - count(mark), 0) // whole)
        if room <= 0:
            return mark
        head = text[: room * 2 // 3]
        short = head + mark + text[len(text) - (room - len(head)) :]
        whole = count(short)
        if whole <= tokens:
            return short
    return mark


_TRIES: Final = 24
"""Each try scales the kept text by the ratio of what fits to what there is, so that a handful is
enough; the bound is for texts whose density of tokens is very uneven."""
