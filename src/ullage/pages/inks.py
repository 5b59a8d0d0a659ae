"""The colours for the parts of the window, on terminals and pages, safe for colour-blind eyes.

Each has a letter too, so that no meaning depends on colour alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Ink:
    """The look of a kind of row: its letter, its colour in ANSI 256 and on a page."""

    letter: str
    ansi: int
    css: str


INKS: Final[Mapping[str, Ink]] = {
    "prefix": Ink("P", 30, "#117a73"),
    "system": Ink("S", 25, "#0072b2"),
    "tools": Ink("T", 74, "#56b4e9"),
    "user": Ink("U", 178, "#e69f00"),
    "assistant": Ink("A", 227, "#f0e442"),
    "reasoning": Ink("H", 175, "#cc79a7"),
    "tool_calls": Ink("C", 97, "#8566b0"),
    "tool_results": Ink("R", 166, "#d55e00"),
    "images": Ink("I", 73, "#44aa99"),
    "files": Ink("F", 62, "#4b5bc4"),
    "checkpoint": Ink("K", 89, "#882255"),
    "framing": Ink("M", 246, "#949494"),
    "unattributed": Ink("?", 240, "#5c5c5c"),
}
"""After the palettes of Okabe and Ito (2008) and of Paul Tol, made for colour-blind readers."""

OTHER: Final = Ink("x", 246, "#949494")
LIGHT_INKS: Final = frozenset({74, 175, 178, 227, 73, 246, 166})
"""Backgrounds that need black letters."""

DARK: Final[Mapping[str, str]] = {
    "system": "#3a94d0",
    "files": "#7d8be8",
    "checkpoint": "#c4669a",
    "unattributed": "#7d7d7d",
    "prefix": "#4f9a94",
}
"""Lighter inks for a dark page, so that their contrast is at least 3:1."""


def write_inks() -> str:
    """Return the colours as classes of a style sheet; `--on` is the colour of letters on them."""
    light, dark = [], []
    for name, ink in (*INKS.items(), ("other", OTHER)):
        front = "#111" if ink.ansi in LIGHT_INKS else "#fff"
        light.append(f".k-{name}{{--c:{ink.css};--on:{front}}}")
        if name in DARK:
            dark.append(f".k-{name}{{--c:{DARK[name]};--on:#111}}")
    return f"{''.join(light)}\n@media(prefers-color-scheme:dark){{{''.join(dark)}}}"
