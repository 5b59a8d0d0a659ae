"""Texts of a report as HTML: escaped, bounded, with hidden and control characters made visible."""

from __future__ import annotations

import html
from typing import Final

from ullage.cli.glyphs import clean
from ullage.pages.inks import INKS

LONGEST: Final = 300


def escape(said: object) -> str:
    """Return a text of the report as HTML, with hidden and control characters as escapes."""
    shown = clean(said)
    return html.escape(shown if len(shown) <= LONGEST else shown[:LONGEST] + "…")


def classify(name: str) -> str:
    """Return the class that colours a row."""
    return f"k-{name}" if name in INKS else "k-other"
