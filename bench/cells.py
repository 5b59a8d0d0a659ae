"""Formats figures: cells and tables of the page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from statistics import median
from typing import Any

Row = Mapping[str, Any]


def middle(row: Row | None, key: str) -> float | None:
    """Return the median of a row's readings, or None if there are none."""
    values = (row or {}).get(key)
    return median(values) if values else None


def cell(row: Row | None, key: str, show: Callable[[float], str]) -> str:
    """Return a figure as text, or the reason why it is missing."""
    value = middle(row, key)
    if value is not None:
        return show(value)
    if row and "error" in row:
        return f"raised {row['error'].split(':')[0]}"
    return "cut off" if row else "-"


def ms(row: Row | None, key: str) -> str:
    """Return seconds as milliseconds."""
    return cell(row, key, lambda s: short(s * 1000))


def short(number: float) -> str:
    """Return a number rounded to its significant digits."""
    return f"{number:.2f}" if number < 1 else f"{number:,.{number < 100:d}f}"


def table(heads: list[str], rows: Iterable[list[str]]) -> str:
    """Return a Markdown table."""
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
