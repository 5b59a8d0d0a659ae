"""The request as a map: each row is a tile as large as its share, divided into its items."""

from __future__ import annotations

from ullage.cli.markup import classify, escape
from ullage.cli.picture import Report
from ullage.pages.boxes import Tile, lay_out
from ullage.pages.inks import INKS, OTHER


def draw_map(report: Report) -> str:
    """Return the request as a map, or "" for an empty one."""
    tiles = "".join(map(_draw_tile, lay_out(report["rows"])))
    if not tiles:
        return ""
    return (
        "<section class='card' aria-labelledby='h-map'><h2 id='h-map'>The request as a map</h2>"
        f"<ul class='map'>{tiles}</ul></section>"
    )


def _draw_tile(tile: Tile) -> str:
    said, box = escape(tile.name), tile.box
    where = f"left:{box.x:.2f}%;top:{box.y:.2f}%;width:{box.width:.2f}%;height:{box.height:.2f}%"
    return (
        f"<li style='{where}' title='{said}: {tile.tokens:,} tokens'>"
        f"<div class='tile {classify(tile.kind)}'>"
        f"<span>{said}<br><b>{tile.tokens:,}</b></span>"
        f"<i aria-hidden='true'>{INKS.get(tile.kind, OTHER).letter}</i></div></li>"
    )
