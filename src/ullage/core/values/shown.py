"""How results are shown: one line at a prompt, a small table in a notebook.

This module knows no result.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any, Final

LONGEST: Final = 120
"""Characters of one line."""


def line(name: str, *said: Any, **fields: Any) -> str:
    """Return `Name(a, b=1)` in at most `LONGEST` characters; fields that are None are left out."""
    words = [str(word) for word in said if word not in (None, "")]
    words += [f"{key}={value!r}" for key, value in fields.items() if value is not None]
    text = " ".join(f"{name}({', '.join(words)})".split())
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 4]}...)"


def table(caption: str, rows: Mapping[str, Any]) -> str:
    """Return an HTML table with a row for each field that is not None; everything is escaped."""
    cells = [
        f'<tr><th style="text-align:left">{escape(name)}</th>'
        f'<td style="text-align:left">{escape(_number(value))}</td></tr>'
        for name, value in rows.items()
        if value is not None
    ]
    return f"<table><caption>{escape(caption)}</caption>{''.join(cells)}</table>"


def _number(value: Any) -> str:
    return f"{value:,}" if type(value) is int else str(value)
