"""What a guard tells people, metrics and stores: values, one class an event.

Events are past: they say what happened. They carry no behaviour and know nobody who listens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ullage.core.checkpoint import Checkpoint
    from ullage.core.gauge import Assessment
    from ullage.core.laws import Repair


@dataclass(frozen=True, slots=True)
class ContextPressure:
    """How full the window is with what is about to be sent, or was just reported."""

    assessment: Assessment


@dataclass(frozen=True, slots=True)
class Compacted:
    """A checkpoint was made."""

    checkpoint: Checkpoint
    reached: bool


@dataclass(frozen=True, slots=True)
class CompactionFailed:
    """A compaction was due and changed nothing; the history went on as it was."""

    reason: str


@dataclass(frozen=True, slots=True)
class Repaired:
    """A history that arrived broken was repaired."""

    repairs: tuple[Repair, ...]


@dataclass(frozen=True, slots=True)
class Notice:
    """A sentence for people."""

    text: str


@dataclass(frozen=True, slots=True)
class TruncationDetected:
    """The server reported far fewer prompt tokens than were sent."""

    reported: int
    counted: int


@dataclass(frozen=True, slots=True)
class RecoveryExhausted:
    """An overflow could not be recovered from; the provider's own error follows."""

    reason: str


Event = (
    ContextPressure
    | Compacted
    | CompactionFailed
    | Repaired
    | Notice
    | TruncationDetected
    | RecoveryExhausted
)
