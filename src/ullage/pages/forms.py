"""How pages write numbers and texts: in words for people, never as mark-up of a model.

The module does not know the pages.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from ullage.core.tokens.gauge import STANDARD
from ullage.core.values.visible import clean_lines

MINUTE: Final = 60
HOUR: Final = 3_600
DAY: Final = 86_400


def finish(value: Any) -> Any:
    """Return the output of a template: cleaned text, nothing for None."""
    if value is None:
        return ""
    return clean_lines(value) if type(value) is str else value


def count(number: int | None) -> str:
    """Return a number in full, or an em dash if it is unknown."""
    return "\u2014" if number is None else f"{number:,}"


def short(number: int | None) -> str:
    """Return a number in three digits: 940, 12.4k, 131k, 1.05M."""
    if number is None:
        return "\u2014"
    if abs(number) < 1_000:
        return str(number)
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if abs(number) >= size * (0.9995 if unit == "M" else 1):
            shown = number / size
            digits = 2 if shown < 10 and unit == "M" else 1 if shown < 100 else 0
            return f"{shown:.{digits}f}{unit}"
    return str(number)


def percent(part: float | None, whole: float | None = 1.0) -> str:
    """Return a share in per cent, or an em dash if it is unknown."""
    if part is None or not whole:
        return "\u2014"
    return f"{100 * part / whole:.0f}\u202f%"


def dollars(amount: float | None) -> str:
    """Return an amount of money, or an em dash if no price is known."""
    if amount is None:
        return "\u2014"
    return f"${amount:,.2f}" if abs(amount) >= 1 or not amount else f"${amount:,.4f}"


def ago(at: float, now: float | None = None) -> str:
    """Return how long ago a time was, in words."""
    if not at:
        return "\u2014"
    passed = max(0.0, (time.time() if now is None else now) - at)
    for unit, size in (("d", DAY), ("h", HOUR), ("min", MINUTE)):
        if passed >= size:
            return f"{passed / size:.0f}\u202f{unit} ago"
    return "now" if passed < 5 else f"{passed:.0f}\u202fs ago"


def moment(at: float) -> str:
    """Return a time of day with its date, in UTC."""
    if not at:
        return "\u2014"
    try:
        return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OSError, OverflowError, ValueError):
        return "\u2014"


def judge(tokens: int | None, window: int | None, tier: str) -> str:
    """Return the tier of a size: the given one, else the one for its share of the window."""
    if tier not in ("", "unavailable"):
        return tier
    if tokens is None or not window:
        return "unavailable"
    return STANDARD.tier(tokens / window)


TIERS: Final[Mapping[str, str]] = {"none": "room left", "unavailable": "unknown"}
"""Words for tiers whose names say little."""


def name_tier(tier: str) -> str:
    """Return a tier in words for people."""
    return TIERS.get(tier, tier)


def share(part: float | None) -> str:
    """Return a share in per cent with one decimal, or an em dash if it is unknown."""
    return "\u2014" if part is None else f"{part:.1%}"


FILTERS: Final[Mapping[str, Any]] = {
    "share": share,
    "count": count,
    "short": short,
    "percent": percent,
    "tier": name_tier,
    "dollars": dollars,
    "ago": ago,
    "moment": moment,
}
