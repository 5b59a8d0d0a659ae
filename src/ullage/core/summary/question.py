"""Requests to a summariser and its answers: the interface for a caller's own function."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ullage.core.dialects.usage import Usage


@dataclass(frozen=True, slots=True)
class SummaryRequest:
    """A request to a summariser: `system` and `prompt` are all of it, `max_tokens` its bound.

    `quoted` is the data inside the prompt, and `dropped` the number of messages in it (all of them
    above level 0). It is piece number `piece` of `pieces` at `level` (0: messages, above: records),
    at try number `attempt`.
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
    """The answer of a summariser; `cut` if `max_tokens` stopped it."""

    text: str
    usage: Usage | None = None
    cut: bool = False
