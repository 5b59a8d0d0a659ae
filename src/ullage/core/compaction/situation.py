"""The input of a strategy: a measured transcript, a target, and the messages that must stay.

All sizes are upper edges in the counter's own tokens. This module knows no strategy and no window.
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
"""The mark at a cut in the middle of a text."""


class Keep(NamedTuple):
    """The limit of newest messages that stay; `whole` keeps a unit that the limit cuts through."""

    messages: int
    whole: bool = False

    def is_full(self, before: int, after: int) -> bool:
        """Tell whether a unit is beyond the limit; takes the message counts without and with it."""
        return (before if self.whole else after - 1) >= self.messages


@dataclass(frozen=True, slots=True)
class Situation:
    """A transcript over its target.

    `sizes` has one upper edge per message, `fixed` is the upper edge of everything outside the
    list. `pins` are positions that must stay verbatim. Strategies leave the newest units alone,
    within both `tail` (tokens) and `keep` (messages, None for any number); the newest unit always
    stays. `block` is the room for the block of facts, in tokens. `traits` describes the results of
    tools, by name. `name_of` names a removed text, None if nothing keeps it. `earlier` has the
    texts of parts, by message and part, that this plan has edited already. `verbatim` are the
    caller's pins: even the task is not shortened if it is one of them. `parallel` are messages
    whose results are passed on as JSON strings (`tokens.parallel`). `seen` has the tokens of the
    images in a result, by part: they go with its text.
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
        """The upper edge of the total."""
        return self.fixed + sum(self.sizes)

    @property
    def is_stuck(self) -> bool:
        """Tell whether the messages that must stay are alone over the target."""
        return self.fixed + sum(self.sizes[i] for i in self.pins) > self.target

    def count_seen(self, message: int, part: int) -> int:
        """Return the tokens of media that go with a result when it is edited for the first time."""
        if (message, part) not in self.seen or (message, part) in self.earlier:
            return 0
        seen = self.seen[message, part].items()
        return sum(size for place, size in seen if (message, place) not in self.earlier)

    def count(self, text: str, message: int = -1) -> int:
        """Return the tokens of a text, in the form in which that message passes it on."""
        return self.counter.count(parallel.escape(text) if message in self.parallel else text)

    def tokens(self, message: int, part: int, call: int = -1) -> int:
        """Return the tokens of one part's text, or of one call's arguments."""
        if message in self.parallel:
            return parallel.count_escaped(self.transcript.messages[message], part, self.counter)
        return texts.piece(self.transcript.messages[message], self.counter, part, call)

    def referring(self, mark: str, text: str) -> str:
        """Return the mark for a removed text, with its name if it can be read back."""
        if self.name_of is None:
            return mark
        return f"{mark.removesuffix(']')}; recall {self.name_of(text)}]"

    def border(self) -> int:
        """Return the number of units before the protected tail."""
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

    A text that fits is returned unchanged. If not even the `mark` between them fits, only the mark
    is returned. `named` is added to the mark.
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
"""Each try scales the kept text by the ratio of the room to the size, so a few tries are enough.
The bound is for texts with a very uneven density of tokens."""
