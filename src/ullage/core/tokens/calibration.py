"""What reported usage teaches about a server whose vocabulary is not at hand.

A server's prompt is taken as two parts, each with a ratio of reported to counted tokens of its
own: the messages, and what stands outside them (system text, tools, the template's opening). Two
reports of one growing conversation tell the parts apart. It keeps no readings and knows no server.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any, Final, NamedTuple

from ullage.core.tokens.counting import Scale
from ullage.core.values.frozen import list_fields

SANE: Final = (0.3, 5.0)
"""Ratios of reported to counted tokens that a real vocabulary can have: the averages of single
kinds of text ran from 0.75 to 3.63 (docs/design/counting.md). Others report something else."""

STEADY: Final = 8
"""Readings after which a learned ratio is trusted most, and moves slowest."""

WIDEST, NARROWEST, WORST = 0.15, 0.05, 0.9
"""Half-width of the band around a ratio after no and after many readings, and at most:
sessions of 40 chunks counted by one ratio were off by at most 6.4 % at p95 over twelve families."""

ENOUGH: Final = 200
"""Counted tokens that must lie between two reports for their difference to teach a ratio: a
template's few tokens a message would be read as the vocabulary's otherwise."""

SLOPE_PACE: Final = 0.5
"""How far a ratio follows the next one taken between two reports: it is an average over all that
came since the first. Simulated conversations of 14 calls, 10 % of noise, 1,500 tokens of overhead:
what stayed after a compaction was off by 2.6 %; with the slow pace and a moving base by 9.9 %."""


@dataclass(frozen=True, slots=True)
class ReportedSize:
    """One report: prompt tokens as reported, and what was counted for messages and the rest."""

    reported: int
    content: int
    fixed: int


class Outside(NamedTuple):
    """What stands outside the messages: its counted tokens, and those it was learned to take."""

    counted: int
    tokens: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """The ratio learned so far, the mean error of the last predictions, and how many there were.

    `outside` is None as long as messages and the rest have not been told apart; it holds for one
    set of tools and system text. `error` is a share of the reported size. `last` is the reading
    that the next one is compared with; with no reading `seen`, there is a `last` alone.
    """

    ratio: float
    outside: Outside | None = None
    error: float = 0.0
    seen: int = 0
    last: ReportedSize | None = None

    @property
    def scale(self) -> Scale:
        """The band: 15 % wide on each side at first, 5 % after many good predictions.

        It never gets narrower than three times the mean error.
        """
        width = max(WIDEST - (WIDEST - NARROWEST) * self.seen / STEADY, NARROWEST, 3 * self.error)
        width = min(width, WORST)
        return Scale(self.ratio * (1 - width), self.ratio, self.ratio * (1 + width))

    @property
    def is_sane(self) -> bool:
        """Whether reports can have taught it: one from a log or a file may say anything."""
        outside = 0.0 if self.outside is None else self.outside.tokens
        return _sane(self.ratio) and 0 <= self.error < inf and 0 <= outside < inf

    def to_dict(self) -> dict[str, Any]:
        """Return plain data that JSON can carry."""
        last = None if self.last is None else list_fields(self.last)
        return {**list_fields(self), "last": last}

    def predict(self, content: int, fixed: int) -> float:
        """Return the tokens that a request of these counts is expected to be reported with."""
        outside = self.outside
        rest = self.ratio * fixed
        if outside is not None and outside.counted == fixed:
            rest = outside.tokens
        return self.ratio * content + rest


def learn(held: Calibration | None, reading: ReportedSize) -> Calibration | None:
    """Return what is known after one more reading; one that cannot be true teaches nothing.

    Never pass a reading of a truncated, aborted or server-edited call.
    """
    counted = reading.content + reading.fixed
    whole = reading.reported / counted if counted else 0.0
    base = held.last if held is not None else None
    slope = _slope(base, reading)
    if slope is None and not _sane(whole):
        # What stands outside may outweigh the first messages, or be left out by the server (tools
        # that its template has no place for): then the next reading can tell.
        telling = whole > SANE[1] or reading.fixed > reading.reported > 0
        return Calibration(1.0, last=reading) if held is None and telling else held
    if slope is None and reading.content < ENOUGH and not (held is not None and held.seen):
        # So few tokens are mostly framing and what stands outside: no ratio of a vocabulary.
        return Calibration(1.0, last=reading)
    held = held or Calibration(whole)
    seen = held.seen + 1
    pace = 1 / min(seen, STEADY)
    missed = abs(held.predict(reading.content, reading.fixed) / reading.reported - 1)
    error = _towards(held.error, missed, pace) if held.seen else 0.0
    if slope is None:
        ratio = whole if held.outside is None else held.ratio
        last = reading if base is None or _apart(base, reading) else base
        return Calibration(_towards(held.ratio, ratio, pace), held.outside, error, seen, last)
    # Until now the ratio was that of the whole: it says nothing of the messages alone. The base
    # stays, as more between two readings tells more.
    ratio = slope if held.outside is None else _towards(held.ratio, slope, SLOPE_PACE)
    outside = Outside(reading.fixed, max(reading.reported - ratio * reading.content, 0.0))
    return Calibration(ratio, outside, error, seen, base)


def _sane(ratio: float) -> bool:
    return SANE[0] <= ratio <= SANE[1]


def _apart(base: ReportedSize, reading: ReportedSize) -> bool:
    """Tell whether a reading is of another conversation than its base, as far as it shows.

    Asked where the two make no ratio: with enough between them, they do not belong together.
    """
    grown = reading.content - base.content
    return base.fixed != reading.fixed or not 0 <= grown < ENOUGH


def _towards(held: float, new: float, pace: float) -> float:
    return held + (new - held) * pace


def _slope(base: ReportedSize | None, reading: ReportedSize) -> float | None:
    """Return the ratio of what came between two reports, None where they do not tell it."""
    if base is None or base.fixed != reading.fixed:
        return None
    grown = reading.content - base.content
    if grown < ENOUGH:
        return None
    slope = (reading.reported - base.reported) / grown
    return slope if _sane(slope) else None
