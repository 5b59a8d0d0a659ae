"""A few shapes as SVG: bars, lines and words on a white card. It knows nothing of what is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Final

WIDTH: Final = 720
INK, FAINT, CARD = "#1f2933", "#5b6673", "#ffffff"
BLUE, ORANGE, GREEN, RED, GREY = "#2563a8", "#b4540a", "#2e7d32", "#b3261e", "#c3cad2"

Points = Sequence[tuple[float, float]]
Size = tuple[float, float]


@dataclass
class Picture:
    """One picture; `title` is what it says, for those who do not see it."""

    title: str
    height: int
    parts: list[str] = field(default_factory=list)

    def bar(self, x: float, y: float, size: Size, colour: str, fill: str = "") -> None:
        """Draw a rectangle of this width and height; `fill` is "none" for a hollow one."""
        self.parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(size[0], 0.5):.1f}" height="{size[1]:.1f}" '
            f'rx="2" fill="{fill or colour}" stroke="{colour}"/>'
        )

    def line(self, points: Points, colour: str, *, dashed: bool = False) -> None:
        """Draw a line through points."""
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        self.parts.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>'
        )

    def word(self, x: float, y: float, text: str, colour: str = INK, anchor: str = "start") -> None:
        """Write a line of text with its baseline at `y`."""
        head = f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" text-anchor="{anchor}">'
        self.parts.append(f"{head}{escape(text)}</text>")

    def save(self, path: Path) -> None:
        """Write the picture."""
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {self.height}" '
            'role="img" font-family="system-ui, sans-serif" font-size="13">\n'
            f"<title>{escape(self.title)}</title>\n"
            f'<rect width="{WIDTH}" height="{self.height}" rx="8" fill="{CARD}"/>\n'
        )
        path.write_text(head + "\n".join(self.parts) + "\n</svg>\n", "utf-8")
