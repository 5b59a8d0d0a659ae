"""The lessons about a model at its endpoint, which are saved with its conversations.

A process shares them between conversations. A conversation carries them, so that another process or
machine continues with the same numbers. This module knows no store and no clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ullage.core.tokens.calibration import NARROWEST, Calibration, Outside, Variances
from ullage.core.tokens.claim import LEARNED, Claim, acceptable
from ullage.core.tokens.images import make_rule, restore_image
from ullage.core.values.frozen import alter, list_fields, replace

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ullage.core.dialects.families import Law
    from ullage.core.tokens.counting import Meter


@dataclass(frozen=True, slots=True)
class Learned:
    """How a model counts, the laws behind its refusals, and the events about its window.

    `at` is the time of the newest lesson, in seconds since the epoch. If the model was forgotten
    after that time, these lessons are not used again.
    """

    calibration: Calibration | None = None
    laws: frozenset[Law] = frozenset()
    claims: tuple[Claim, ...] = ()
    at: float = 0.0

    def merge(self, other: Learned) -> Learned:
        """Return the lessons of both; of two calibrations, the one from more reports."""
        held = _merge_calibrations(self.calibration, other.calibration)
        laws = self.laws | other.laws
        if held is self.calibration and laws == self.laws:
            return self
        return replace(self, calibration=held, laws=laws)

    def keep_events(self, claims: Iterable[Claim], now: float) -> Learned:
        """Return these lessons with the events among the claims of a window, as of `now`."""
        heard = tuple([c for c in claims if c.source in LEARNED])
        return self if heard == self.claims else replace(self, claims=heard, at=now)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON data."""
        held = self.calibration
        return {
            "calibration": None if held is None else held.to_dict(),
            "laws": sorted(self.laws),
            "claims": [list_fields(claim) for claim in self.claims],
            "at": self.at,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Learned:
        """Read the output of `to_dict`; raises KeyError and TypeError for anything else.

        Impossible lessons are left out, because a store may be edited.
        """
        held = data["calibration"]
        claims = (Claim(**claim) for claim in data["claims"])
        return cls(
            None if held is None else read_calibration(held),
            frozenset(data["laws"]),
            tuple(c for c in claims if c.source in LEARNED and acceptable(c)),
            float(data["at"]),
        )


NOTHING: Final = Learned()


def _merge_calibrations(mine: Calibration | None, theirs: Calibration | None) -> Calibration | None:
    """Return the calibration from more reports, with image lessons from either."""
    if mine is None or theirs is None:
        return mine or theirs
    more, less = (theirs, mine) if theirs.seen > mine.seen else (mine, theirs)
    return replace(more, image=less.image) if more.image is None and less.image else more


def read_calibration(data: Mapping[str, Any]) -> Calibration | None:
    """Read a calibration from plain data; return None for an impossible one.

    A calibration with a `last` report is from a ullage that compared reports of two conversations.
    It is accepted only if it predicted well. Raises KeyError and TypeError for anything else.
    """
    outside, spread = data["outside"], data.get("spread")
    read = Calibration(
        float(data["ratio"]),
        None if outside is None else _read_outside(outside),
        float(data["error"]),
        int(data["seen"]),
        spread and Variances(*map(float, spread)),
        tuple([_read_outside(each) for each in data.get("others", ())]),
        restore_image(data.get("image")),
    )
    told = data.get("last") is None or read.error <= NARROWEST
    return read if read.is_sane and told else None


def _read_outside(held: Sequence[Any]) -> Outside:
    """Read the outside part; an earlier ullage did not write how many requests reported it."""
    counted, tokens, *seen = held
    return Outside(int(counted), float(tokens), *map(int, seen))


def calibrate_meter(meter: Meter, learned: Calibration | None) -> Meter:
    """Return a meter calibrated by reports; an exact one takes only the image lessons."""
    if learned is None:
        return meter
    image = make_rule(learned.image, meter.framing.image)
    if image is not meter.framing.image:
        meter = replace(meter, framing=replace(meter.framing, image=image))
    if meter.basis == "exact" or not learned.seen:
        return meter
    known = {"scale": learned.scale, "outside": learned.counted_outside, "basis": "calibrated"}
    return alter(meter, **known)
