"""What a guard tells people, metrics and stores: values, one class an event.

Events are past: they say what happened. They carry no behaviour and do not know their listeners.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from ullage.core.compaction.checkpoint import Checkpoint
    from ullage.core.compaction.faults import FaultKind
    from ullage.core.compaction.mending import Repair
    from ullage.core.dialects.usage import Usage
    from ullage.core.errors import ErrorKind
    from ullage.core.tokens.budget import Overrun
    from ullage.core.tokens.cost import Cost
    from ullage.core.tokens.gauge import Assessment, Tier
    from ullage.core.tokens.truncation import Truncation


@dataclass(frozen=True, slots=True)
class ContextPressure:
    """How full the window is with what is about to be sent, or was just reported.

    `tier` is the one on display: it is left 5 points below the edge at which it was entered.
    `phase` tells a prepared request from what was reported of it.
    """

    assessment: Assessment
    tier: Tier = "unavailable"
    phase: Literal["prepared", "reported"] = "prepared"


@dataclass(frozen=True, slots=True)
class OverShare:
    """Sections of the window hold more than their share, the largest overrun first."""

    overruns: tuple[Overrun, ...]


@dataclass(frozen=True, slots=True)
class SummaryProgress:
    """How far a summary is: `done` of `total` requests for it are answered."""

    done: int
    total: int


@dataclass(frozen=True, slots=True)
class Compacted:
    """A checkpoint was made."""

    checkpoint: Checkpoint
    reached: bool


@dataclass(frozen=True, slots=True)
class CompactionFault:
    """Something is asked for again that a compaction left out: it should have been kept.

    `kind` says how: a `call` that was made before, a `recall`, a `search` that finds something, or
    what a person `said` and has to say again. `label` is what it is about, in a few words, and
    `message` the position in the history of whoever asks.
    """

    kind: FaultKind
    label: str
    message: int


BustKind = Literal["edited", "expired", "unknown"]


@dataclass(frozen=True, slots=True)
class CacheBust:
    """A provider's cache was lost that should have been read; no compaction was the cause.

    `kind` says why: the beginning of the request was `edited` (messages, system text or tools), the
    cache had `expired`, or `unknown`. `tokens` are processed again. Another model has a cache of
    its own.
    """

    kind: BustKind
    tokens: int


@dataclass(frozen=True, slots=True)
class CompactionFailed:
    """A compaction was due and changed nothing; the history went on as it was."""

    reason: str
    strategy: str = ""
    trigger: str = ""


@dataclass(frozen=True, slots=True)
class Repaired:
    """A history that arrived broken was repaired."""

    repairs: tuple[Repair, ...]


@dataclass(frozen=True, slots=True)
class Notice:
    """A sentence for people."""

    text: str


@dataclass(frozen=True, slots=True)
class SummaryFailed(Notice):
    """A summarizer raised, or gave no summary; what follows from it is said."""


@dataclass(frozen=True, slots=True)
class WindowCramped(Notice):
    """The window is too small for what must stay, or for the work; told once a conversation."""


@dataclass(frozen=True, slots=True)
class TruncationDetected:
    """A report shows that the server cut the prompt without a word."""

    truncation: Truncation


@dataclass(frozen=True, slots=True)
class Refused:
    """A request was too large: predicted before the send, or said by the upstream."""

    kind: ErrorKind
    phase: Literal["predicted", "upstream"]
    model: str = ""


@dataclass(frozen=True, slots=True)
class Answered:
    """A request was answered; its cost is None where no price is known."""

    usage: Usage
    cost: Cost | None = None
    model: str = ""


@dataclass(frozen=True, slots=True)
class RecoveryExhausted:
    """An overflow could not be recovered from; the provider's own error follows."""

    reason: str


Event = (
    ContextPressure
    | OverShare
    | SummaryProgress
    | Compacted
    | CompactionFailed
    | CompactionFault
    | CacheBust
    | Repaired
    | Notice
    | TruncationDetected
    | Refused
    | Answered
    | RecoveryExhausted
)
