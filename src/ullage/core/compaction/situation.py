"""What a strategy is given to plan on: a measured transcript, a target, and what must stay.

All sizes are upper edges in the counter's own tokens. It knows no strategy and no window.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from ullage.core.tokens import parallel, texts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ullage.core.compaction.laws import Unit
    from ullage.core.compaction.traits import Trait
    from ullage.core.messages.transcript import Transcript
    from ullage.core.tokens.counting import Counter

CUT: Final = "[ullage: about "
CUT_MARK: Final = "\n" + CUT + "{tokens:,} tokens left out here{named}]\n"
"""Stands where the middle of a text was left out."""


class Keep(NamedTuple):
    """How many of the newest messages stay at most; `whole` takes a unit that this cuts through."""

    messages: int
    whole: bool = False

    def is_full(self, before: int, after: int) -> bool:
        """Tell whether a unit is beyond it, by the messages behind the unit and with it."""
        return (before if self.whole else after - 1) >= self.messages


@dataclass(frozen=True, slots=True)
class Situation:
    """A transcript over its target.

    `sizes` has one upper edge a message, `fixed` that of everything outside the list. `pins` are
    positions that must stay verbatim. Strategies leave the newest units alone, as far as both
    `tail` (tokens) and `keep` (messages, None for any number) reach; the newest unit always stays.
    `block` are the tokens that the block of facts may take. `traits` says of tools, by name, what
    their results are. `name_of` names a text that is left out, None where nothing keeps it;
    `earlier` has the texts of parts, by message and part, that this plan has edited already.
    `verbatim` are the pins of the caller: not even the task is shortened where it is one of them.
    `parallel` are messages whose results are handed on as JSON strings (`tokens.parallel`). `seen`
    are the tokens of the images in a result, by part: they go with its text.
    """

    transcript: Transcript
    units: tuple[Unit, ...]
    sizes: Sequence[int]
    fixed: int
    target: int
    pins: frozenset[int]
    tail: int
    counter: Counter
    keep: Keep | None = None
    block: int = 0
    traits: Mapping[str, Trait] = field(default_factory=dict)
    name_of: Callable[[str], str] | None = None
    earlier: Mapping[tuple[int, int], str] = field(default_factory=dict)
    verbatim: frozenset[int] = frozenset()
    parallel: frozenset[int] = frozenset()
    seen: Mapping[tuple[int, int], Mapping[int, int]] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """The upper edge of the whole."""
        return self.fixed + sum(self.sizes)

    @property
    def is_stuck(self) -> bool:
        """Whether what must stay is alone over the target."""
        return self.fixed + sum(self.sizes[i] for i in self.pins) > self.target

    def count_seen(self, message: int, part: int) -> int:
        """Return the tokens of what goes with a result that is edited for the first time."""
        if (message, part) not in self.seen or (message, part) in self.earlier:
            return 0
        seen = self.seen[message, part].items()
        return sum(size for place, size in seen if (message, place) not in self.earlier)

    def count(self, text: str, message: int = -1) -> int:
        """Return the tokens of a text, as it is handed on where it stands in that message."""
        return self.counter.count(parallel.escape(text) if message in self.parallel else text)

    def tokens(self, message: int, part: int, call: int = -1) -> int:
        """Return the tokens of one part's text, or of one call's arguments."""
        if message in self.parallel:
            return parallel.count_escaped(self.transcript.messages[message], part, self.counter)
        return texts.piece(self.transcript.messages[message], self.counter, part, call)

    def referring(self, mark: str, text: str) -> str:
        """Return the mark that stands for a text, naming it where it can be read back."""
        if self.name_of is None:
            return mark
        return f"{mark.removesuffix(']')}; recall {self.name_of(text)}]"

    def border(self) -> int:
        """Return the number of units in front of the protected tail."""
        kept = messages = 0
        border = len(self.units)
        for index in range(len(self.units) - 1, -1, -1):
            unit = self.units[index]
            kept += sum(self.sizes[unit.start : unit.stop])
            before, messages = messages, messages + unit.stop - unit.start
            full = self.keep is not None and self.keep.is_full(before, messages)
            if (kept > self.tail or full) and index < len(self.units) - 1:
                break
            border = index
        return border


def shorten(
    text: str,
    tokens: int,
    count: Callable[[str], int],
    named: str = "",
    mark: str = CUT_MARK,
) -> str:
    """Return the head and tail of `text`, about two to one, in at most `tokens` tokens.

    A text that fits is returned as it is. Where not even the `mark` between them fits, it alone
    remains; `named` is what it says besides.
    """
    tokens, whole = max(tokens, 0), count(text)
    if whole <= tokens:
        return text
    room = len(text)
    mark = mark.format(tokens=whole - tokens, named=named)
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
