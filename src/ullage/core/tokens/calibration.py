"""What reported usage teaches about a server whose vocabulary is not at hand.

A server's prompt is taken as two parts: the messages, with a ratio of reported to counted tokens,
and what stands outside them (system text, tools, the template's opening). The first report of a
conversation tells both together, each later one what came since. Both are weighed by what they can
tell, as a Kalman filter does: words of one conversation are off the ratio by some share. A report
behind images of which nothing is published tells what they take (`core.tokens.images`), and not
the ratio. It keeps no readings and knows no server.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from ullage.core.tokens.counting import Scale
from ullage.core.tokens.images import SeenImage, learn_image
from ullage.core.values.frozen import list_fields, replace

SANE: Final = (0.3, 5.0)
"""Ratios of reported to counted tokens that a real vocabulary can have: the averages of single
kinds of text ran from 0.75 to 3.63 (docs/design/counting.md). Others report something else."""

MOST: Final = 10**9
"""Tokens beyond which nothing is a size."""

STEADY: Final = 8
"""Readings after which a learned ratio is trusted most, and moves slowest."""

WIDEST, NARROWEST, WORST = 0.15, 0.05, 0.9
"""Half-width of the band around a ratio after no and after many readings, and at most:
sessions of 40 chunks counted by one ratio were off by at most 6.4 % at p95 over twelve families."""

ENOUGH: Final = 200
"""Counted tokens of messages below which a report teaches no ratio yet, as long as none is known: a
template's few tokens a message would be read as the vocabulary's otherwise."""

LIKELY: Final = (0.5, 2.5)
"""Ratios of a whole request from which one is guessed. Beyond them something stands outside that is
not counted, or tools that the server leaves out."""

LONG: Final = 2_000
"""Counted tokens of messages that outweigh what stands outside: any ratio of a vocabulary is a
guess from there on."""

LOST: Final = 0.5
"""The mean error, and the last one, beyond which all is learned anew: the first report was false,
or the server is another."""

STRAY: Final = 0.15
"""By what share the words of a conversation, or what came in a turn, are off the ratio (standard
deviation): kinds of text differ as much (docs/design/counting.md)."""

JITTER: Final = 20.0
"""Tokens by which a report is off besides: what a template puts around messages."""

UNKNOWN: Final = 0.4
"""How far off the first guess of a ratio may be: a share of it, or of 1 for a smaller one."""

HIDDEN: Final = 1000.0
"""Tokens that a server may put in front of all messages, beside what is counted there."""

DRIFT: Final = 0.01
"""By what share a ratio may have moved between two reports: texts, or the server, change."""

ODD: Final = 2.0
"""Standard deviations beyond which a report counts for no more than one that is as far off."""

OTHERS: Final = 3
"""Sets of tools and system text beside the last one of which it is kept what they take."""

KNOWN: Final = 0.15
"""The share up to which a ratio is known well enough to count by, if no report told all of it."""


@dataclass(frozen=True, slots=True)
class ReportedSize:
    """One report: prompt tokens as reported, and what was counted for messages and the rest.

    `before` are the reported tokens and the counted ones of the messages of the report before, of
    which this is the same conversation, beside the same rest; None for a first one. `image` is what
    an image took, where some came that no published rule sizes.
    """

    reported: int
    content: int
    fixed: int
    before: tuple[int, int] | None = None
    image: SeenImage | None = None


class Outside(NamedTuple):
    """What stands outside the messages: its counted tokens, and those it was learned to take.

    `seen` is how many single requests taught it; one alone may be off like any other.
    """

    counted: int
    tokens: float
    seen: int = 1


class Variances(NamedTuple):
    """What is not known yet: variances of the ratio and of what stands outside, and of both."""

    ratio: float
    both: float
    outside: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """The ratio learned so far, the mean error of the last predictions, and how many there were.

    `outside` holds for one set of tools and system text, `others` for the sets met last beside it;
    as long as the ratio is not known well they may be less than nothing. `error` is a share of the
    reported size. With no reading `seen`, the ratio is a guess. `image` is what images took.
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

        It never gets narrower than three times the mean error.
        """
        width = max(WIDEST - (WIDEST - NARROWEST) * self.seen / STEADY, NARROWEST, 3 * self.error)
        width = min(width, WORST)
        return Scale(self.ratio * (1 - width), self.ratio, self.ratio * (1 + width))

    @property
    def is_sane(self) -> bool:
        """Whether reports can have taught it: one from a log or a file may say anything."""
        outside, spread = self.outside or Outside(0, 0.0), self.spread or Variances(0.0, 0.0, 0.0)
        numbers = (self.error, self.seen, spread.ratio, spread.outside)
        return (
            _is_sane(self.ratio)
            and all(abs(each.tokens) <= MOST for each in (outside, *self.others))
            and all(0 <= number <= MOST**2 for number in numbers)
            and spread.both**2 <= spread.ratio * spread.outside * 1.01
        )

    def is_of_others(self, fixed: int) -> bool:
        """Tell whether what stands outside was learned of other tools, or not at all."""
        return self.outside is None or self.outside.counted != fixed

    @property
    def is_known(self) -> bool:
        """Whether the ratio is known well enough to count by."""
        return self.spread is not None and self.spread.ratio <= (KNOWN * self.ratio) ** 2

    def to_dict(self) -> dict[str, Any]:
        """Return plain data that JSON can carry; `last` is for ullages that want it there."""
        return {**list_fields(self), "last": None}

    def predict(self, content: int, fixed: int) -> float:
        """Return the tokens that a request of these counts is expected to be reported with."""
        rest = dict(self.counted_outside).get(fixed, self.ratio * fixed)
        return self.ratio * content + rest

    @property
    def counted_outside(self) -> tuple[tuple[int, float], ...]:
        """What sets of tools take, by what is counted of them: no less than nothing."""
        sets = [each for each in self.others if each.seen > 1]
        if self.outside is not None:
            sets.append(self.outside)
        return tuple([(each.counted, max(each.tokens, 0.0)) for each in sets])


Taught = tuple["Calibration | None", "Calibration | None"]
"""What was known before a reading, and what is behind it."""


def learn(held: Calibration | None, reading: ReportedSize) -> Calibration | None:
    """Return what is known after one more reading; one that cannot be true teaches nothing.

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
    """Tell whether a vocabulary can have made a reading, whatever stands outside."""
    if not 0 < reading.reported <= MOST:
        return False
    if reading.before is None:
        return reading.content > 0 and reading.reported >= SANE[0] * reading.content
    reported, content = reading.before
    grown = reading.content - content
    return grown > 0 and (grown < ENOUGH or _is_sane((reading.reported - reported) / grown))


def _make_ready(known: Calibration, reading: ReportedSize) -> Calibration:
    """Return a calibration before it learns: the server may have moved, or has other tools.

    Who goes on with other tools is learned of anew; a single request with others is not.
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
    """Return what was learned with other tools beside what is known with those before.

    Who goes on with them has them from now on; else they are kept for the next request with them.
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
    """Return a spread with what is known of the ratio after, and of what stands outside before."""
    if before is None or after is None:
        return after
    return Variances(after.ratio, before.both * (after.ratio / before.ratio) ** 0.5, before.outside)


def _follow(known: Calibration, reading: ReportedSize) -> Calibration:
    """Return a calibration that moved towards a reading, by what each part of it may be off."""
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
