"""The bottom row: how full the window is, the source of its size, mode, model, cost, session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ullage.agent import Live, Session
from ullage.agent.session import Told
from ullage.cli import glyphs
from ullage.cli.screen.feed import read_context
from ullage.core.tokens.gauge import short

GAP: Final = " | "

STYLES: Final[Mapping[str, str]] = {
    "warning": "class:toolbar.warning",
    "critical": "class:toolbar.full",
    "overflow": "class:toolbar.full",
}


@dataclass(slots=True)
class Toolbar:
    """The content of the row; `gauge` is the latest one."""

    gauge: str = "ctx=?"
    tier: str = ""
    source: str = ""
    dollars: float | None = None
    session: str = ""

    def open(self, session: Session) -> None:
        """Begin with the recorded events of a session."""
        self.gauge, self.tier, self.source, self.dollars = "ctx=?", "", "", None
        self.session = session.name
        for event in session.events():
            self.hear(event)

    def hear(self, event: Told) -> None:
        """Take the window and the price from an event."""
        if isinstance(event, Live):
            if event.type == "context_pressure":
                self.gauge = str(event.data["meter"])
                self.tier = str(event.data.get("tier", ""))
            return
        if event.type != "provider_usage":
            return
        found = read_context(event)
        tokens, window = found.get("tokens"), found.get("window")
        if isinstance(tokens, int):
            self.gauge = f"ctx={short(tokens)}"
            self.gauge += f"/{short(window)}" if isinstance(window, int) else ""
        self.tier, self.source = str(found.get("tier", "")), str(found.get("source", ""))
        if isinstance(event.data.get("dollars"), int | float):
            self.dollars = (self.dollars or 0.0) + event.data["dollars"]

    def draw(self, mode: str, model: str, columns: int) -> str:
        """Return the row; if it is too long, the least important parts are left out."""
        parts = [
            (0, self.gauge),
            (2, self.tier if self.tier not in ("", "none", "unavailable") else ""),
            (6, f"window: {self.source}" if self.source else ""),
            (1, mode),
            (3, model),
            (4, "" if self.dollars is None else f"${self.dollars:,.4f}"),
            (5, self.session),
        ]
        shown = [(rank, glyphs.clean(text)) for rank, text in parts if text]
        while len(shown) > 1 and _measure(shown) > columns - 2:
            shown.remove(max(shown))
        return glyphs.cut(f" {GAP.join(text for _, text in shown)} ", columns)

    @property
    def style(self) -> str:
        """The style of the row, by how full the window is."""
        return STYLES.get(self.tier, "class:toolbar")


def _measure(shown: Sequence[tuple[int, str]]) -> int:
    return sum(glyphs.cells(text) for _, text in shown) + len(GAP) * (len(shown) - 1)
