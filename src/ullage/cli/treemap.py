"""The request as a map: every row a tile as large as its share, its items tiles within."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ullage.cli.markup import classify, escape
from ullage.cli.picture import INKS, OTHER, Report

SHAPE: Final = 1.6
"""How wide the map is for its height: 2.6 on a desk, 0.8 on a phone."""


@dataclass(frozen=True, slots=True)
class Box:
    """A part of the map, in percent of it."""

    x: float
    y: float
    width: float
    height: float

    def split(self, weights: Sequence[float]) -> list[Box]:
        """Return one box a weight, as square as halving gets them; weights fall and are positive.

        Halving the list where the weights balance keeps the order and needs no search.
        """
        if len(weights) <= 1:
            return [self] * len(weights)
        whole, passed, cut = sum(weights), 0.0, 0
        while cut < len(weights) - 1 and (cut == 0 or passed + weights[cut] / 2 < whole / 2):
            passed += weights[cut]
            cut += 1
        share = passed / whole
        if self.width * SHAPE >= self.height:
            wide = self.width * share
            first = Box(self.x, self.y, wide, self.height)
            rest = Box(self.x + wide, self.y, self.width - wide, self.height)
        else:
            high = self.height * share
            first = Box(self.x, self.y, self.width, high)
            rest = Box(self.x, self.y + high, self.width, self.height - high)
        return [*first.split(weights[:cut]), *rest.split(weights[cut:])]


def draw_map(report: Report) -> str:
    """Return the request as a map, "" where nothing is in it."""
    rows = sorted((r for r in report["rows"] if r["tokens"] > 0), key=lambda row: -row["tokens"])
    if not rows:
        return ""
    tiles = []
    boxes = Box(0, 0, 100, 100).split([row["tokens"] for row in rows])
    for row, box in zip(rows, boxes, strict=True):
        parts = _parts(row)
        for (name, tokens), place in zip(
            parts, box.split([tokens for _, tokens in parts]), strict=True
        ):
            tiles.append(_tile(row["id"], name, tokens, place))
    return (
        "<section class='card' aria-labelledby='h-map'><h2 id='h-map'>The request as a map</h2>"
        f"<ul class='map'>{''.join(tiles)}</ul></section>"
    )


def _parts(row: Mapping[str, Any]) -> list[tuple[str, int]]:
    """Return a row's items and what they leave of it, largest first; the row where it has none."""
    items = sorted((i for i in row["items"] if i["tokens"] > 0), key=lambda i: -i["tokens"])[:30]
    known = sum(item["tokens"] for item in items)
    if not items or known > row["tokens"]:
        return [(row["name"], row["tokens"])]
    parts = [(f"{row['name']}: {item['name']}", item["tokens"]) for item in items]
    if known < row["tokens"]:
        parts.append((f"{row['name']}: other", row["tokens"] - known))
    return sorted(parts, key=lambda part: -part[1])


def _tile(kind: str, name: str, tokens: int, box: Box) -> str:
    said = escape(name)
    where = f"left:{box.x:.2f}%;top:{box.y:.2f}%;width:{box.width:.2f}%;height:{box.height:.2f}%"
    return (
        f"<li style='{where}' title='{said}: {tokens:,} tokens'><div class='tile {classify(kind)}'>"
        f"<span>{said}<br><b>{tokens:,}</b></span>"
        f"<i aria-hidden='true'>{INKS.get(kind, OTHER).letter}</i></div></li>"
    )
