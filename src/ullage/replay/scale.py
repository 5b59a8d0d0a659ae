"""Counts the sizes of a recorded session as its server counted them.

The reports in a session show the tokens of its messages, and of the rest: most programs do not save
tools and system prompt. The count is then treated as exact, so that the comparison shows the
policies and not the error of an estimate. It knows no policy.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from typing import TYPE_CHECKING, Final, NamedTuple

from ullage.core.dialects.registry import DEFAULT
from ullage.core.tokens.counting import Measure, Meter, Scale, measure
from ullage.runtime import Runtime

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ullage.core.messages.size import Size
    from ullage.core.messages.transcript import DialectName, Transcript
    from ullage.replay.history import RecordedHistory
    from ullage.windows import Question

SPREAD: Final = 2_000
"""Counted tokens that must lie between two reports to compute a ratio."""

SANE: Final = (0.3, 5.0)
"""Plausible ratios of reported to counted tokens (`core.tokens.calibration`)."""


class Sizes(NamedTuple):
    """Sizes of a history's messages: sums before each, in counted tokens; and the meter.

    `fixed` is the size of everything except the messages, in counted tokens.
    """

    best: list[int]
    high: list[int]
    fixed: Size
    meter: Meter

    def count(self, raw: float) -> int:
        """Return the model's tokens for counted ones, including those outside the messages."""
        return round(raw * self.meter.scale.best) + self._extra

    def count_high(self, raw: float) -> int:
        """Return the upper edge of the same."""
        return ceil(raw * self.meter.scale.high) + self._extra

    @property
    def _extra(self) -> int:
        return sum(round(own - self.meter.scale.best * raw) for raw, own in self.meter.outside)


class ReplayRuntime(Runtime):
    """A runtime with the meter of the current session, which asks nobody."""

    set_meter: Meter | None = None

    def meter(self, question: Question, dialect: DialectName = DEFAULT) -> Meter:
        """Return the meter of the replayed session."""
        return self.set_meter or super().meter(question, dialect)


def measure_history(
    history: RecordedHistory, read: Transcript, meter: Meter, system: str | None
) -> Sizes:
    """Return the sizes of a history, scaled to its server's reports."""
    measured = measure(read, meter, system=system, tools=history.tools or None)
    best, high = [0], [0]
    for size in measured.sizes:
        best.append(best[-1] + size.best)
        high.append(high[-1] + size.high)
    scale, beside = _fit(history, measured, meter, best)
    basis = meter.basis if meter.basis == "exact" else "calibrated"
    outside = () if beside is None else ((measured.fixed.best, beside),)
    exact = replace(meter, scale=Scale(scale, scale, scale), basis=basis, outside=outside)
    return Sizes(best, high, measured.fixed, exact)


def _fit(
    history: RecordedHistory, measured: Measure, meter: Meter, best: Sequence[int]
) -> tuple[float, float | None]:
    """Return the ratio of reported to counted tokens, and the tokens outside the messages."""
    told = [
        (turn.usage.prompt_tokens, best[turn.stop])
        for turn in history.turns
        if turn.grown and turn.usage is not None and turn.usage.prompt_tokens
    ]
    ratio = meter.scale.best
    if not told:
        return ratio, None
    (first, at), (last, then) = told[0], told[-1]
    if then - at >= SPREAD:
        found = (last - first) / (then - at)
        ratio = found if SANE[0] <= found <= SANE[1] else ratio
    return ratio, max(first - ratio * at, ratio * measured.fixed.best)
