"""The size of an image if no rule is published for the model, learned from server reports.

A report covers all images since the previous one: what is left after the text is subtracted. The
learned value has one size per image and an upper edge, in the counter's own tokens, with the area
that they were seen for: the mean of a report's images, and the largest of all reports. For a larger
image the upper edge grows at most with its area.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ullage.core.messages.media import UNKNOWN_IMAGE, Band, ImageRule
from ullage.core.messages.transcript import Media

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ullage.core.messages.transcript import Message
    from ullage.core.tokens.counting import Measure

UNKNOWN_AREA: Final = 4096 * 4096
"""Pixels assumed for an image with unknown dimensions: more than models look at."""

AGREED: Final = 2
"""Reports that must agree before an image size is kept beyond the process."""

MARGIN, AGREED_MARGIN = 1.5, 1.25
"""Factors for the upper edge over the largest size seen, after one report and after more. The text
around images and their shape vary."""

MOVED: Final = 0.2
"""A report must differ by this share before the value of an image changes."""

STEP: Final = 16
"""Tokens to which values are rounded: each change makes sizes be measured again."""


class SeenImage(NamedTuple):
    """The size of an image: best value and upper edge in counter tokens, their area in pixels.

    `seen` is how many reports agreed, at most `AGREED`.
    """

    best: int
    most: int
    area: int
    seen: int = 1

    @property
    def is_sane(self) -> bool:
        """Tell whether it can come from reports: a value from a file may be anything."""
        return 0 < self.best <= self.most <= UNKNOWN_IMAGE.unseen[2] and self.area > 0 < self.seen


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedImage(ImageRule):
    """An image takes as much as earlier images of the same model; the lower edge is unchanged."""

    seen: SeenImage

    def size(self, media: Media) -> Band:
        """Return the tokens of an image: low, best, high."""
        low, _, highest = UNKNOWN_IMAGE.unseen
        seen = self.seen
        high = seen.most * (AGREED_MARGIN if seen.seen >= AGREED else MARGIN)
        high *= max(find_area(media) / seen.area, 1.0)
        return min(low, seen.best), seen.best, max(min(ceil(high), highest), seen.best)


def find_area(media: Media) -> int:
    """Return the area of an image in pixels, a large one if its dimensions are unknown."""
    return max((media.width or 0) * (media.height or 0), 0) or UNKNOWN_AREA


def make_rule(seen: SeenImage | None, rule: ImageRule) -> ImageRule:
    """Return a rule from the learned size; a published rule stays."""
    if seen is None or not is_learnable(rule):
        return rule
    return LearnedImage("learned/" + "/".join(map(str, seen)), seen=seen)


def is_learnable(rule: ImageRule) -> bool:
    """Tell whether reports may teach the size: there is no published rule for the model."""
    return rule == UNKNOWN_IMAGE or isinstance(rule, LearnedImage)


def read_image(
    measured: Measure, came: Sequence[Message], rule: ImageRule, reported: int
) -> SeenImage | None:
    """Return the size of the images since the last report, or None if it cannot be computed.

    `measured` is the measure of the reported request, made before the report.
    """
    sizes = [(find_area(m), rule.size(m)) for m in _list_images(came)]
    if not sizes:
        return None
    count, scale = measured.count(), measured.scale
    low, best, _ = (sum(edges) for edges in zip(*(size for _, size in sizes), strict=True))
    spare = reported - (count.low - scale.low * low)
    left = reported - (count.tokens - scale.best * best)
    of = len(sizes) * scale.best
    most = _round(spare / of)
    area = ceil(sum(area for area, _ in sizes) / len(sizes))
    seen = SeenImage(min(_round(left / of), most), most, area)
    return seen if seen.is_sane else None


def find_doubt(messages: Iterable[Message], rule: ImageRule) -> tuple[int, int]:
    """Return the doubt in counter tokens: below the best values of images, and above their edges.

    A server may use any size for an image without a published rule, whatever earlier ones took.
    """
    if not is_learnable(rule):
        return 0, 0
    sizes = [rule.size(media) for media in _list_images(messages)]
    highest = UNKNOWN_IMAGE.unseen[2]
    return sum(best - low for low, best, _ in sizes), sum(highest - high for *_, high in sizes)


def _list_images(messages: Iterable[Message]) -> list[Media]:
    parts = (part for message in messages for part in message.parts if part.kind == "image")
    return [part.media or Media("image") for part in parts]


def _round(tokens: float) -> int:
    return max(ceil(tokens / STEP), 1) * STEP


def learn_image(held: SeenImage | None, new: SeenImage) -> SeenImage:
    """Return the learned image size after one more report.

    A report with less than half of the known uncertainty replaces the known size. A report with
    more than twice of it teaches nothing. Values that agree stay, so that results based on them
    stay too.
    """
    if held is None:
        return new
    known, told = held.most - held.best + STEP, new.most - new.best + STEP
    if 2 * told < known:
        return new
    if told > 2 * known:
        return held
    off = abs(new.best - held.best)
    agrees = off <= max(MOVED * held.best, STEP)
    best = held.best if agrees else _round((held.best + new.best) / 2)
    seen = min(held.seen + agrees, AGREED)
    return SeenImage(best, max(held.most, new.best), max(held.area, new.area), seen)


def restore_image(held: Sequence[Any] | None) -> SeenImage | None:
    """Read a recorded image size, or None if it cannot come from a report."""
    seen = None if held is None else SeenImage(*map(int, held))
    return seen if seen is not None and seen.is_sane else None
