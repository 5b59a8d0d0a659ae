"""How the sizes of a recorded session are counted when it is replayed: as its server counted them.

The reports in a session say what its messages came to, and what stood beside them: tools and system
text are in no file of most programs. The count is then taken as exact, so that policies are
compared and not the luck of an estimate. It knows no policy.
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
"""Counted tokens between two reports from which on they tell a ratio."""

SANE: Final = (0.3, 5.0)
"""Ratios of reported to counted tokens that a vocabulary can have (`core.tokens.calibration`)."""


class Sizes(NamedTuple):
    """What the messages of a history take: sums in front of each, in counted tokens; the meter.

    `fixed` is what stands beside the messages, in counted tokens.
    """

    best: list[int]
    high: list[int]
    fixed: Size
    meter: Meter

    def count(self, raw: float) -> int:
        """Return the model's tokens for so many counted ones, those beside them among them."""
        return round(raw * self.meter.scale.best) + self._extra

    def count_high(self, raw: float) -> int:
        """Return the upper edge of the same."""
        return ceil(raw * self.meter.scale.high) + self._extra

    @property
    def _extra(self) -> int:
        return sum(round(own - self.meter.scale.best * raw) for raw, own in self.meter.outside)


class ReplayRuntime(Runtime):
    """A runtime whose meter is set for the session at hand, and that asks nobody."""

    set_meter: Meter | None = None

    def meter(self, question: Question, dialect: DialectName = DEFAULT) -> Meter:
        """Return the meter of the session that is replayed."""
        return self.set_meter or super().meter(question, dialect)


def measure_history(
    history: RecordedHistory, read: Transcript, meter: Meter, system: str | None
) -> Sizes:
    """Return the sizes of a history, scaled to what its server reported."""
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
    """Return the ratio of reported to counted tokens, and the tokens beside the messages."""
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
