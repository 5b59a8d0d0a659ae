"""Parts of a whole as boxes, made by halving: nearly square, in the order of their weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

SHAPE: Final = 1.6
"""Width of the map for its height: 2.6 on a desk, 0.8 on a phone."""


@dataclass(frozen=True, slots=True)
class Box:
    """A part of the map, in percent of it."""

    x: float
    y: float
    width: float
    height: float

    def split(self, weights: Sequence[float]) -> list[Box]:
        """Return one box for each weight, nearly square; weights are positive and falling.

        The list is halved where the weights balance, which keeps the order and needs no search.
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


@dataclass(frozen=True, slots=True)
class Tile:
    """One tile of a map; `message` is the first message that it is about, or None."""

    kind: str
    name: str
    tokens: int
    box: Box
    message: int | None = None


def lay_out(rows: Sequence[Mapping[str, Any]], *, deep: bool = False) -> list[Tile]:
    """Return the rows of a context report as tiles: items within rows, the largest first.

    With `deep`, the largest calls and results of a tool get their own tiles.
    """
    held = sorted((row for row in rows if row["tokens"] > 0), key=lambda row: -row["tokens"])
    boxes = Box(0, 0, 100, 100).split([row["tokens"] for row in held])
    tiles = []
    for row, box in zip(held, boxes, strict=True):
        parts = _list_entries(row) if deep else list_parts(row)
        places = box.split([part[1] for part in parts])
        tiles += [
            Tile(row["id"], name, tokens, place, message)
            for (name, tokens, message), place in zip(parts, places, strict=True)
        ]
    return tiles


def list_parts(row: Mapping[str, Any]) -> list[tuple[str, int, int | None]]:
    """Return a row's items and its remaining part, largest first; without items, the row itself."""
    items = sorted((i for i in row["items"] if i["tokens"] > 0), key=lambda i: -i["tokens"])[:30]
    known = sum(item["tokens"] for item in items)
    if not items or known > row["tokens"]:
        return [(row["name"], row["tokens"], None)]
    parts = [
        (f"{row['name']}: {item['name']}", item["tokens"], _find_message(item)) for item in items
    ]
    if known < row["tokens"]:
        parts.append((f"{row['name']}: other", row["tokens"] - known, None))
    return sorted(parts, key=lambda part: -part[1])


def _list_entries(row: Mapping[str, Any]) -> list[tuple[str, int, int | None]]:
    """Return a row's parts; an item that names its calls is split into them."""
    items = {f"{row['name']}: {item['name']}": item for item in row["items"]}
    parts: list[tuple[str, int, int | None]] = []
    for name, tokens, message in list_parts(row):
        entries = items.get(name, {}).get("entries") or ()
        known = sum(entry["tokens"] for entry in entries)
        if not entries or known > tokens or min(entry["tokens"] for entry in entries) <= 0:
            parts.append((name, tokens, message))
            continue
        parts += [(entry["name"], entry["tokens"], entry["message"]) for entry in entries]
        if known < tokens:
            parts.append((f"{name}: other", tokens - known, None))
    return sorted(parts, key=lambda part: -part[1])


def _find_message(item: Mapping[str, Any]) -> int | None:
    entries = item.get("entries") or ()
    return entries[0]["message"] if entries else None
