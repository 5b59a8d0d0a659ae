"""Writes a conversation as cells of a terminal: its text is never mark-up or a control sequence."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from rich.text import Text

from ullage.core.tokens.gauge import STANDARD, short
from ullage.core.values.visible import clean
from ullage.live.values import LiveSession

UNKNOWN: Final = "\u2014"
EIGHTHS: Final = " \u258f\u258e\u258d\u258c\u258b\u258a\u2589\u2588"
STYLES: Final[Mapping[str, str]] = {
    "none": "cyan",
    "advisory": "cyan",
    "warning": "yellow",
    "critical": "bold red",
    "overflow": "bold white on red",
    "unavailable": "dim",
}
SIGNS: Final[Mapping[str, str]] = {"warning": "!", "critical": "!!", "overflow": "X"}
"""Signs, so that no meaning depends on colour alone."""


class TopColumn(NamedTuple):
    """A column: head, width, writer, sort order, and the terminal width from which it shows."""

    name: str
    width: int
    write: Callable[[LiveSession], Text]
    order: Callable[[LiveSession], float]
    least: int = 0


def find_tier(row: LiveSession) -> str:
    """Return the tier of a row: its own, else the one for its share of the window."""
    if row.tier not in ("", "unavailable"):
        return row.tier
    share = find_share(row)
    return "unavailable" if share is None else STANDARD.tier(share)


def find_share(row: LiveSession) -> float | None:
    """Return the share of the window that is used, or None if unknown."""
    return None if row.used is None or not row.window else row.used / row.window


def draw_gauge(share: float | None, width: int, tier: str) -> Text:
    """Return a bar in steps of an eighth, followed by the share."""
    if share is None:
        return Text(UNKNOWN.rjust(width), style="dim")
    room = max(1, width - 6)
    eighths = round(min(1.0, max(0.0, share)) * room * 8)
    whole, part = divmod(eighths, 8)
    bar = EIGHTHS[8] * whole + (EIGHTHS[part] if part and whole < room else "")
    text = Text(bar.ljust(room), style=STYLES.get(tier, ""))
    return text.append(f"{share:5.0%}{SIGNS.get(tier, ''):>1.1}")


def draw_text(text: object, style: str = "") -> Text:
    """Return foreign text safely: control characters are shown, and mark-up has no effect."""
    return Text(clean(" ".join(str(text).split())), style=style, overflow="ellipsis", no_wrap=True)


def draw_number(value: float | None, form: Callable[[Any], str] = str) -> Text:
    """Return a number at the right, or a dash if it is unknown."""
    return Text(UNKNOWN if value is None else form(value), justify="right")


def draw_age(at: float) -> str:
    """Return how long ago something was, in at most four cells."""
    if not at:
        return UNKNOWN
    passed = max(0.0, time.time() - at)
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if passed >= size:
            return f"{passed / size:.0f}{unit}"
    return f"{passed:.0f}s"


def _rank(value: float | None) -> float:
    return float("-inf") if value is None else value


COLUMNS: Final[Sequence[TopColumn]] = (
    TopColumn("source", 7, lambda r: draw_text(r.source), lambda _: 0.0, 100),
    TopColumn(
        "window",
        18,
        lambda r: draw_gauge(find_share(r), 18, find_tier(r)),
        lambda r: _rank(find_share(r)),
    ),
    TopColumn("tokens", 7, lambda r: draw_number(r.used, short), lambda r: _rank(r.used), 60),
    TopColumn("of", 7, lambda r: draw_number(r.window, short), lambda r: _rank(r.window), 80),
    TopColumn(
        "left",
        5,
        lambda r: draw_number(r.left),
        lambda r: -_rank(r.left) if r.left is not None else float("-inf"),
        72,
    ),
    TopColumn("growth", 7, lambda r: draw_number(r.growth, short), lambda r: _rank(r.growth), 110),
    TopColumn(
        "cost",
        8,
        lambda r: draw_number(r.dollars, lambda d: f"${d:,.2f}"),
        lambda r: _rank(r.dollars),
        88,
    ),
    TopColumn(
        "cache",
        5,
        lambda r: draw_number(r.cached, lambda c: f"{c:.0%}"),
        lambda r: _rank(r.cached),
        96,
    ),
    TopColumn("comp", 4, lambda r: draw_number(r.compactions), lambda r: r.compactions, 118),
    TopColumn("age", 4, lambda r: Text(draw_age(r.at), justify="right"), lambda r: r.at),
    TopColumn("model", 20, lambda r: draw_text(r.model), lambda _: 0.0, 140),
    TopColumn("project", 24, lambda r: draw_text(r.project), lambda _: 0.0, 170),
    TopColumn("begun with", 60, lambda r: draw_text(r.title or r.id), lambda _: 0.0),
)


def choose_columns(width: int) -> list[TopColumn]:
    """Return the columns that fit a terminal of this width; the last one takes the rest."""
    return [column for column in COLUMNS if width >= column.least]


def matches(row: LiveSession, words: Sequence[str]) -> bool:
    """Tell whether a row contains all words."""
    facts = (row.source, row.id, row.title, row.project, row.model, row.upstream, row.state)
    text = " ".join((*facts, find_tier(row))).casefold()
    return all(word in text for word in words)
