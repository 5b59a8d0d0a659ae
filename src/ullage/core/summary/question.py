"""What a summariser is asked, and what it answers: what a function of the caller meets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ullage.core.dialects.usage import Usage


@dataclass(frozen=True, slots=True)
class SummaryRequest:
    """What a summariser is asked: `system` and `prompt` are all of it, `max_tokens` its bound.

    `quoted` is the data inside the prompt and `dropped` how many messages it stands for (all of
    them above level 0). It is piece number `piece` of `pieces` at `level` (0: messages, above:
    records), asked for the `attempt`-th time.
    """

    system: str
    prompt: str
    quoted: str
    max_tokens: int
    dropped: int
    level: int = 0
    piece: int = 1
    pieces: int = 1
    attempt: int = 1


@dataclass(frozen=True, slots=True)
class Answer:
    """What a summariser said; `cut` where it was stopped by `max_tokens`."""

    text: str
    usage: Usage | None = None
    cut: bool = False
