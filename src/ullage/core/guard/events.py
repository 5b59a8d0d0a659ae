"""The events of a guard, for people, metrics and stores: values, one class per event.

Events are past: they tell what happened. They have no behaviour and do not know their listeners.
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
    """How full the window is, by a prepared request or by the report after it.

    `tier` is the tier on display: it is left only 5 points below the edge at which it was entered.
    `phase` says whether the numbers are of the prepared request or of the report.
    """

    assessment: Assessment
    tier: Tier = "unavailable"
    phase: Literal["prepared", "reported"] = "prepared"


@dataclass(frozen=True, slots=True)
class OverShare:
    """Sections of the window are over their share, the largest overrun first."""

    overruns: tuple[Overrun, ...]


@dataclass(frozen=True, slots=True)
class SummaryProgress:
    """The progress of a summary: `done` of `total` requests for it are answered."""

    done: int
    total: int


@dataclass(frozen=True, slots=True)
class Compacted:
    """A checkpoint was made."""

    checkpoint: Checkpoint
    reached: bool


@dataclass(frozen=True, slots=True)
class CompactionFault:
    """Something that a compaction left out is asked for again: it should have been kept.

    `kind` says how: a `call` that was made before, a `recall`, a `search` that finds something, or
    text that a person `said` and has to repeat. `label` describes it in a few words. `message` is
    the position of the request for it in the history.
    """

    kind: FaultKind
    label: str
    message: int


BustKind = Literal["edited", "expired", "unknown"]


@dataclass(frozen=True, slots=True)
class CacheBust:
    """A provider's cache should have been read and was lost, and no compaction was the cause.

    `kind` is the cause: the beginning of the request was `edited` (messages, system text or tools),
    the cache had `expired`, or it is `unknown`. `tokens` are processed again. A change of model is
    not reported, because each model has its own cache.
    """

    kind: BustKind
    tokens: int


@dataclass(frozen=True, slots=True)
class CompactionFailed:
    """A compaction was due and changed nothing; the history was sent as it was."""

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
    """A summarizer raised an error or returned no summary; the text explains the consequence."""


@dataclass(frozen=True, slots=True)
class WindowCramped(Notice):
    """The window is too small for what must stay, or for the work; sent once per conversation."""


@dataclass(frozen=True, slots=True)
class TruncationDetected:
    """A report shows that the server silently cut the prompt."""

    truncation: Truncation


@dataclass(frozen=True, slots=True)
class Refused:
    """A request was too large: predicted before the send, or reported by the upstream."""

    kind: ErrorKind
    phase: Literal["predicted", "upstream"]
    model: str = ""


@dataclass(frozen=True, slots=True)
class Answered:
    """A request was answered; its cost is None if no price is known."""

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
