"""What an image takes where no rule is published for the model: learned from what servers report.

A report tells what all images took that came since the one before: what is left of it when the text
is counted. It is kept as one value an image and an upper edge, in the counter's own tokens, beside
the area it was seen for: the mean of a report's images, as the value is, and the largest of all
reports. A larger image takes at most as much more as its area is larger.
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
"""Pixels taken for an image whose dimensions do not show: more than models look at."""

AGREED: Final = 2
"""Reports that must agree before what an image takes is kept beyond the process."""

MARGIN, AGREED_MARGIN = 1.5, 1.25
"""How many times the most that was seen an image may take, after one report and after more: what
stands around it differs, and its shape does."""

MOVED: Final = 0.2
"""The share by which a report must be off before the value of an image moves."""

STEP: Final = 16
"""Tokens to which values are rounded: sizes are worked out anew where they change."""


class SeenImage(NamedTuple):
    """What an image took: best value and upper edge in counter tokens, their area in pixels.

    `seen` is how many reports agreed, at most `AGREED`.
    """

    best: int
    most: int
    area: int
    seen: int = 1

    @property
    def is_sane(self) -> bool:
        """Whether reports can have taught it: one from a file may say anything."""
        return 0 < self.best <= self.most <= UNKNOWN_IMAGE.unseen[2] and self.area > 0 < self.seen


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedImage(ImageRule):
    """An image takes what others of the same model took; the lower edge stays what it was."""

    seen: SeenImage

    def size(self, media: Media) -> Band:
        """Return the tokens of an image: low, best, high."""
        low, _, highest = UNKNOWN_IMAGE.unseen
        seen = self.seen
        high = seen.most * (AGREED_MARGIN if seen.seen >= AGREED else MARGIN)
        high *= max(find_area(media) / seen.area, 1.0)
        return min(low, seen.best), seen.best, max(min(ceil(high), highest), seen.best)


def find_area(media: Media) -> int:
    """Return the area of an image in pixels, a large one where its dimensions do not show."""
    return max((media.width or 0) * (media.height or 0), 0) or UNKNOWN_AREA


def make_rule(seen: SeenImage | None, rule: ImageRule) -> ImageRule:
    """Return a rule by what was seen; one that is published stays."""
    if seen is None or not is_learnable(rule):
        return rule
    return LearnedImage("learned/" + "/".join(map(str, seen)), seen=seen)


def is_learnable(rule: ImageRule) -> bool:
    """Tell whether reports may teach what an image takes: nothing is published for the model."""
    return rule == UNKNOWN_IMAGE or isinstance(rule, LearnedImage)


def read_image(
    measured: Measure, came: Sequence[Message], rule: ImageRule, reported: int
) -> SeenImage | None:
    """Return what the images took that came since the last report; None where it does not show.

    `measured` is of the request that the report is of, before it.
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
    """Return by how many counter tokens images may be below their best value, and above their edge.

    A server may take anything for an image of which nothing is published, whatever others took.
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
    """Return what is known of images after one more report.

    One that says twice as much as what is known takes its place; one that says half as much
    teaches nothing. Values that agree stay, so that what rests on them does, too.
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
    """Read what was written down of images; None for what no report can have taught."""
    seen = None if held is None else SeenImage(*map(int, held))
    return seen if seen is not None and seen.is_sane else None
