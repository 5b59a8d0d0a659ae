"""The results of the tools: plain values; their types are the output schemas that hosts see."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class WindowResult:
    """The window of a model: null means unknown; it never holds a guess."""

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
    """A size in tokens with its band, and the form of the input: messages or text."""

    tokens: int
    low: int
    high: int
    basis: str
    form: str


@dataclass(frozen=True)
class PassageResult:
    """A matching passage; pass its `reference` to recall."""

    reference: str
    offset: int
    score: float
    text: str
    session: str = ""


@dataclass(frozen=True)
class SearchResult:
    """Passages, best first."""

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
    """A message that would be removed (`after` is null) or shrunk, in tokens."""

    position: int
    role: str
    before: int
    after: int | None
    strategy: str
    begins: str


@dataclass(frozen=True)
class CompactResult:
    """The effect that a compaction would have; nothing was changed."""

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
