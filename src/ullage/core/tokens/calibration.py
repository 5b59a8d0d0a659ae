"""Calibration: learn from reported usage about a server whose vocabulary is unknown.

The model of a prompt has two parts: the messages, with a ratio of reported to counted tokens, and
the text outside them (system text, tools, the template's opening). The first report of a
conversation covers both parts together; each later one covers the new messages. As in a Kalman
filter, each report is weighed by its uncertainty. A report after images without a published rule
teaches the size of images (`core.tokens.images`), not the ratio. This module keeps no readings and
knows no server.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from ullage.core.tokens.counting import Scale
from ullage.core.tokens.images import SeenImage, learn_image
from ullage.core.values.frozen import list_fields, replace

SANE: Final = (0.3, 5.0)
"""Ratios of reported to counted tokens that a real vocabulary can have: the averages of single
kinds of text ran from 0.75 to 3.63 (docs/design/counting.md). Other ratios report something else.
"""

MOST: Final = 10**9
"""A number of tokens above this is not a size."""

STEADY: Final = 8
"""The number of readings after which a learned ratio is trusted most and changes slowest."""

WIDEST, NARROWEST, WORST = 0.15, 0.05, 0.9
"""Half-width of the band around a ratio: after no readings, after many, and the largest. Sessions
of 40 chunks counted by one ratio were off by at most 6.4 % at p95 over twelve families."""

ENOUGH: Final = 200
"""As long as no ratio is known, a report with fewer counted tokens of messages teaches none. A
template's few tokens per message would otherwise look like the vocabulary's ratio."""

LIKELY: Final = (0.5, 2.5)
"""Ratios of a whole request from which a ratio is guessed. Outside this range there is uncounted
text outside the messages, or the server leaves tools out."""

LONG: Final = 2_000
"""From this many counted tokens of messages on, text outside them matters little: any ratio of a
vocabulary is a usable guess."""

LOST: Final = 0.5
"""If the mean error and the last error exceed this, everything is learned anew: the first report
was false, or the server is another one."""

STRAY: Final = 0.15
"""Standard deviation, as a share, of the ratio of one conversation or one turn: kinds of text
differ this much (docs/design/counting.md)."""

JITTER: Final = 20.0
"""Additional error of a report in tokens: what a template puts around messages."""

UNKNOWN: Final = 0.4
"""The error of the first guess of a ratio, as a share of the ratio, or of 1 if it is smaller."""

HIDDEN: Final = 1000.0
"""Tokens that a server may put before all messages in addition to the counted text."""

DRIFT: Final = 0.01
"""The possible change of a ratio between two reports, as a share: texts or the server change."""

ODD: Final = 2.0
"""A report that is off by more standard deviations has no more weight than one that far off."""

OTHERS: Final = 3
"""The number of earlier sets of tools and system text whose sizes are kept."""

KNOWN: Final = 0.15
"""A ratio is known well enough to count by if its standard deviation is at most this share."""


@dataclass(frozen=True, slots=True)
class ReportedSize:
    """One report: prompt tokens as reported, and the counts for messages and the rest.

    `before` has the reported tokens and the counted tokens of messages of the previous report in
    the same conversation with the same rest, or None for a first report. `image` is the size of an
    image, if the new messages have images without a published rule.
    """

    reported: int
    content: int
    fixed: int
    before: tuple[int, int] | None = None
    image: SeenImage | None = None


class Outside(NamedTuple):
    """The text outside the messages: its counted tokens, and its learned tokens.

    `seen` is the number of single requests that it was learned from; one may be wrong.
    """

    counted: int
    tokens: float
    seen: int = 1


class Variances(NamedTuple):
    """The uncertainty: variance of the ratio, covariance, variance of the outside text."""

    ratio: float
    both: float
    outside: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """The learned ratio, the mean error of the last predictions, and their number.

    `outside` holds for one set of tools and system text, `others` for the sets seen before. They
    may be negative as long as the ratio is not known well. `error` is a share of the reported size.
    If `seen` is 0, the ratio is a guess. `image` is the learned size of images.
    """

    ratio: float
    outside: Outside | None = None
    error: float = 0.0
    seen: int = 0
    spread: Variances | None = None
    others: tuple[Outside, ...] = ()
    image: SeenImage | None = None

    @property
    def scale(self) -> Scale:
        """The band: 15 % wide on each side at first, 5 % after many good predictions.

        It is never narrower than three times the mean error, and at most 90 % wide.
        """
        width = max(WIDEST - (WIDEST - NARROWEST) * self.seen / STEADY, NARROWEST, 3 * self.error)
        width = min(width, WORST)
        return Scale(self.ratio * (1 - width), self.ratio, self.ratio * (1 + width))

    @property
    def is_sane(self) -> bool:
        """Tell whether it can come from reports: a value from a log or a file may be anything."""
        outside, spread = self.outside or Outside(0, 0.0), self.spread or Variances(0.0, 0.0, 0.0)
        numbers = (self.error, self.seen, spread.ratio, spread.outside)
        return (
            _is_sane(self.ratio)
            and all(abs(each.tokens) <= MOST for each in (outside, *self.others))
            and all(0 <= number <= MOST**2 for number in numbers)
            and spread.both**2 <= spread.ratio * spread.outside * 1.01
        )

    def is_of_others(self, fixed: int) -> bool:
        """Tell whether the outside text was learned for other tools, or not at all."""
        return self.outside is None or self.outside.counted != fixed

    @property
    def is_known(self) -> bool:
        """Tell whether the ratio is known well enough to count by."""
        return self.spread is not None and self.spread.ratio <= (KNOWN * self.ratio) ** 2

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON; `last` is for versions of ullage that expect it."""
        return {**list_fields(self), "last": None}

    def predict(self, content: int, fixed: int) -> float:
        """Return the predicted reported tokens of a request with these counts."""
        rest = dict(self.counted_outside).get(fixed, self.ratio * fixed)
        return self.ratio * content + rest

    @property
    def counted_outside(self) -> tuple[tuple[int, float], ...]:
        """The learned tokens of sets of tools, by their counted tokens; never negative."""
        sets = [each for each in self.others if each.seen > 1]
        if self.outside is not None:
            sets.append(self.outside)
        return tuple([(each.counted, max(each.tokens, 0.0)) for each in sets])


Taught = tuple["Calibration | None", "Calibration | None"]
"""The calibration before a reading and after it."""


def learn(held: Calibration | None, reading: ReportedSize) -> Calibration | None:
    """Return the calibration after one more reading; an impossible reading teaches nothing.

    Never pass a reading of a truncated, aborted or server-edited call.
    """
    if reading.image is not None:
        known = held or Calibration(1.0)
        image = learn_image(known.image, reading.image)
        return known if image == known.image else replace(known, image=image)
    counted = reading.content + reading.fixed
    whole = reading.reported / counted if counted else 0.0
    if not _is_possible(reading):
        return held
    most = LIKELY[1] if reading.content < LONG else SANE[1]
    told = reading.before is None and reading.content >= ENOUGH and LIKELY[0] <= whole <= most
    known = held or Calibration(1.0)
    if not known.seen and known.spread is None:
        known = replace(known, ratio=whole if told else 1.0)
    expected = known.predict(reading.content, reading.fixed)
    missed = abs(expected / reading.reported - 1)
    if missed > LOST < known.error:
        anew = learn(None, replace(reading, before=None))
        return anew and replace(anew, image=known.image)
    made = _follow(_make_ready(known, reading), reading)
    if known.outside is not None and known.is_of_others(reading.fixed):
        made = _tell_apart(known, made, goes_on=reading.before is not None)
    seen = known.seen + (known.seen > 0 or told or made.is_known)
    error = known.error + (missed - known.error) / min(seen, STEADY) if known.seen else 0.0
    return replace(made, seen=seen, error=error)


def _is_possible(reading: ReportedSize) -> bool:
    """Tell whether a vocabulary can have produced a reading, whatever is outside the messages."""
    if not 0 < reading.reported <= MOST:
        return False
    if reading.before is None:
        return reading.content > 0 and reading.reported >= SANE[0] * reading.content
    reported, content = reading.before
    grown = reading.content - content
    return grown > 0 and (grown < ENOUGH or _is_sane((reading.reported - reported) / grown))


def _make_ready(known: Calibration, reading: ReportedSize) -> Calibration:
    """Return a calibration before it learns: the server may have changed, or has other tools.

    A conversation that continues with other tools is learned anew. A single request is not.
    """
    ratio, spread = known.ratio, known.spread
    if spread is None:
        spread = Variances((max(ratio, 1.0) * UNKNOWN) ** 2, 0.0, 0.0)
    spread = spread._replace(ratio=spread.ratio + (ratio * DRIFT) ** 2)
    if not known.is_of_others(reading.fixed):
        return replace(known, spread=spread)
    rest, wide = ratio * reading.fixed, HIDDEN + ratio * reading.fixed
    over = reading.reported - ratio * reading.content - rest
    learned = {each.counted: each.tokens for each in known.others}
    if reading.before is not None:
        rest, wide = rest + over, STRAY * ratio * reading.content
    elif reading.fixed in learned:
        rest = learned[reading.fixed]
        wide, over = STRAY * ratio * reading.content, 0.0
    outside, wide = Outside(reading.fixed, rest), max(wide, over)
    return replace(known, outside=outside, spread=Variances(spread.ratio, 0.0, wide**2))


def _tell_apart(known: Calibration, made: Calibration, *, goes_on: bool) -> Calibration:
    """Return the calibration with other tools merged into the one with the earlier tools.

    If the conversation continues with them, they are the current set. Otherwise they are kept for
    the next request with the same tools.
    """
    held, new = known.outside, made.outside
    assert held is not None and new is not None  # noqa: PT018, S101 - it was asked, and made ready
    rest = [each for each in known.others if each.counted not in (held.counted, new.counted)]
    if goes_on:
        return replace(made, others=(held, *rest)[:OTHERS])
    seen = sum(each.seen for each in known.others if each.counted == new.counted)
    others = (new._replace(seen=seen + 1), *rest)[:OTHERS]
    return replace(made, outside=held, spread=_forget(known.spread, made.spread), others=others)


def _forget(before: Variances | None, after: Variances | None) -> Variances | None:
    """Return a spread with the new knowledge of the ratio and the old one of the outside text."""
    if before is None or after is None:
        return after
    return Variances(after.ratio, before.both * (after.ratio / before.ratio) ** 0.5, before.outside)


def _follow(known: Calibration, reading: ReportedSize) -> Calibration:
    """Return a calibration moved towards a reading, by the uncertainty of each part."""
    outside, spread = known.outside, known.spread
    assert outside is not None and spread is not None  # noqa: PT018, S101 - it was made ready
    reported, content = reading.before or (0, 0)
    came, first = reading.content - content, float(reading.before is None)
    missed = reading.reported - reported - known.ratio * came - first * outside.tokens
    ratio = spread.ratio * came + first * spread.both
    rest = spread.both * came + first * spread.outside
    noise = (STRAY * known.ratio * came) ** 2 + JITTER**2
    wide = max(came * ratio + first * rest + noise, (missed / ODD) ** 2)
    return replace(
        known,
        ratio=min(max(known.ratio + ratio / wide * missed, SANE[0]), SANE[1]),
        outside=outside._replace(tokens=outside.tokens + rest / wide * missed),
        spread=Variances(
            spread.ratio - ratio * ratio / wide,
            spread.both - ratio * rest / wide,
            spread.outside - rest * rest / wide,
        ),
    )


def _is_sane(ratio: float) -> bool:
    return SANE[0] <= ratio <= SANE[1]
