"""What the tools answer: plain values, whose types are the output schemas that hosts are told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class WindowResult:
    """The window of a model: null is unknown, never a guess."""

    known: bool
    input_tokens: int | None
    total_tokens: int | None
    output_tokens: int | None
    kind: str | None
    source: str | None
    confidence: float
    claims: list[dict[str, Any]]
    model: str | None
    warnings: list[str]
    answered: int
    working: dict[str, Any] | None
    hint: str | None
    changes: list[str]


@dataclass(frozen=True)
class CountResult:
    """A size in tokens with its band, and what was counted: messages or text."""

    tokens: int
    low: int
    high: int
    basis: str
    form: str


@dataclass(frozen=True)
class PassageResult:
    """A passage that was found; `reference` is what recall takes."""

    reference: str
    offset: int
    score: float
    text: str
    session: str = ""


@dataclass(frozen=True)
class SearchResult:
    """Passages, the best one first."""

    hits: list[PassageResult]


@dataclass(frozen=True)
class RecallResult:
    """A part of a text; `after` is the offset of the rest, null at the end."""

    text: str
    offset: int
    total: int
    after: int | None


@dataclass(frozen=True)
class ChangedMessage:
    """A message that would go (`after` is null) or shrink, in tokens."""

    position: int
    role: str
    before: int
    after: int | None
    strategy: str
    begins: str


@dataclass(frozen=True)
class CompactResult:
    """What a compaction would do; nothing was done."""

    before: CountResult
    after: CountResult
    messages_before: int
    messages_after: int
    changed: bool
    reached: bool
    reason: str | None
    strategy: str
    policy: str
    changes: list[ChangedMessage]
    inserts: list[str]
