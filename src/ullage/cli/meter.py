"""Draws how full a window is, as one line within a width, for status lines and prompts.

The module reads only a `Fullness`. Text of a session file is shown as plain text and never controls
a terminal, a prompt or tmux. It loads little code, since it runs at every prompt.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from ullage.cli.glyphs import cells, clean, cut
from ullage.core.values.fullness import Fullness

TIERS: Final = (("overflow", 1.0), ("critical", 0.9), ("warning", 0.8), ("advisory", 0.7))
"""Lower edges, the same as in `core.tokens.gauge.STANDARD`, which is too slow to load for a
prompt."""

COLOURS: Final[Mapping[str, str]] = {
    "none": "green",
    "advisory": "yellow",
    "warning": "yellow",
    "critical": "red",
    "overflow": "red",
}
CODES: Final[Mapping[str, int]] = {"green": 32, "yellow": 33, "red": 31}

PLACES: Final = ("plain", "claude", "tmux", "bash", "zsh", "fish")
"""Places for a line; each has its own colours and special characters."""

LONGEST: Final = 80
"""Most characters of a name in a line."""

CELLS: Final = 8
EIGHTHS: Final = " ▏▎▍▌▋▊▉█"
FIELD: Final = re.compile(r"\{(\w+)\}")


class Style(NamedTuple):
    """The style of a line: its width in cells, its place, coloured or not."""

    width: int = 80
    place: str = "plain"
    coloured: bool = False
    plain: bool = False


def name_tier(ratio: float | None) -> str:
    """Return the tier of a share of the window; `unavailable` without a share."""
    if ratio is None:
        return "unavailable"
    return next((name for name, edge in TIERS if ratio >= edge), "none")


def shorten(tokens: int) -> str:
    """Return a number of tokens in three digits or so, such as 950, 9.5k, 124k, 1M."""
    if tokens < 1000:
        return str(tokens)
    unit, letter = (1_000_000, "M") if tokens >= 999_500 else (1000, "k")
    part = tokens / unit
    text = f"{part:.1f}" if part < 9.95 else f"{part:.0f}"
    return text.removesuffix(".0") + letter


def list_facts(one: Fullness, *, plain: bool = False) -> dict[str, str]:
    """Return the fields of a template as text: `?` for unknown values, empty for missing ones.

    Texts of files are cleaned and cut.
    """
    ratio, left = one.ratio, None

    def name(text: object) -> str:
        shown = " ".join(clean(str(text or "")[:LONGEST], ascii=plain).split())
        return cut(shown, LONGEST, ".." if plain else "…")

    if one.compacts_at is not None and one.tokens is not None:
        left = max(one.compacts_at - one.tokens, 0)
    share = None
    if one.tokens and one.cached is not None and one.cached <= one.tokens:
        share = one.cached / one.tokens
    return {
        "bar": _draw_bar(ratio, plain=plain),
        "percent": "?" if ratio is None else f"{_percent(ratio)}%",
        "used": "?" if one.tokens is None else shorten(one.tokens),
        "window": "?" if one.window is None else shorten(one.window),
        "origin": name(one.origin) or "window unknown",
        "left": "" if left is None else shorten(left),
        "cost": "" if one.dollars is None else f"${one.dollars:,.2f}",
        "cache": "" if share is None else f"{_percent(share)}%",
        "model": name(one.model),
        "session": name(one.session),
        "source": name(one.source),
        "tier": name_tier(ratio),
        "reason": name(one.reason),
    }


def _percent(share: float) -> int:
    """Return whole percent; 100 and 0 are used only if they are exact."""
    if 0 < share < 1:
        return min(max(round(share * 100), 1), 99)
    return round(share * 100)


def _draw_bar(ratio: float | None, *, plain: bool) -> str:
    if ratio is None:
        return ""
    parts = round(min(max(ratio, 0.0), 1.0) * CELLS * 8)
    if plain:
        full = parts // 8
        return f"[{'#' * full}{'-' * (CELLS - full)}]"
    full, rest = divmod(parts, 8)
    return "▕" + ("█" * full + EIGHTHS[rest] * (rest > 0)).ljust(CELLS) + "▏"


def draw(one: Fullness, style: Style, template: str | None = None) -> str:
    """Return the line, by a template or with as many facts as fit, the first ones first."""
    facts = list_facts(one, plain=style.plain)
    if template is not None:
        text = FIELD.sub(lambda match: facts[match[1]], template)
        head, rest = cut(text, style.width, ".." if style.plain else "…"), ""
    else:
        head, rest = _fit(_list_parts(one, facts), style, plain=style.plain)
    return _colour(_escape(head, style.place), facts["tier"], style) + _escape(rest, style.place)


def _list_parts(one: Fullness, facts: Mapping[str, str]) -> list[list[str]]:
    """Return the parts of the line, each in several forms from longest to shortest."""
    if one.ratio is None and one.tokens is None:
        why = f" ({facts['reason']})" if facts["reason"] else ""
        known = f" ?/{facts['window']} ({facts['origin']})" if one.window else " unknown"
        return [[f"ctx{known}{why}", f"ctx{known}"]]
    said = f"({facts['origin']})"
    if one.window is None and one.share is None:
        return [[f"ctx {facts['used']} {said}"], *_list_extras(facts)]
    counts = f" {facts['used']}/{facts['window']}" if one.tokens is not None else ""
    base = f"{facts['percent']}{counts} {said}"
    return [[f"ctx {facts['bar']} {base}", f"ctx {base}"], *_list_extras(facts)]


def _list_extras(facts: Mapping[str, str]) -> list[list[str]]:
    extras = [
        f"{facts['left']} to compaction" if facts["left"] else "",
        facts["cost"],
        f"cache {facts['cache']}" if facts["cache"] else "",
    ]
    return [[extra] for extra in extras if extra]


def _fit(parts: list[list[str]], style: Style, *, plain: bool) -> tuple[str, str]:
    """Return the first part, and as many other parts as fit."""
    mark, dot = ("..", " - ") if plain else ("…", " · ")
    head = next((form for form in parts[0] if cells(form) <= style.width), parts[0][-1])
    head, rest = cut(head, style.width, mark), ""
    for part in parts[1:]:
        if cells(head) + cells(rest) + len(dot) + cells(part[0]) > style.width:
            break
        rest += dot + part[0]
    return head, rest


def _escape(text: str, place: str) -> str:
    """Return text escaped for its place."""
    if place == "tmux":
        return text.replace("#", "##")
    return text.replace("%", "%%") if place == "zsh" else text


def _colour(text: str, tier: str, style: Style) -> str:
    colour = COLOURS.get(tier)
    if not style.coloured or colour is None:
        return text
    if style.place == "tmux":
        return f"#[fg={colour}]{text}#[default]"
    if style.place == "zsh":
        return f"%F{{{colour}}}{text}%f"
    # Characters without width stand between \1 and \2 in a prompt of readline.
    hide, show = ("\x01", "\x02") if style.place == "bash" else ("", "")
    return f"{hide}\x1b[{CODES[colour]}m{show}{text}{hide}\x1b[0m{show}"


def to_dict(one: Fullness) -> dict[str, Any]:
    """Return the known data, for programs; unknown values are null."""
    ratio = one.ratio
    rounded = None if ratio is None else round(ratio, 4)
    return {**one._asdict(), "ratio": rounded, "tier": name_tier(ratio)}
