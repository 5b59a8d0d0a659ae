"""Templates, and the numbers of charts. Every text is escaped and never mark-up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from statistics import median
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from ullage.core.compaction.policy import known_policies
from ullage.core.tokens.gauge import short
from ullage.live.values import LiveRequest, SessionDetail
from ullage.pages import forms
from ullage.pages.boxes import lay_out
from ullage.pages.inks import INKS, OTHER
from ullage.pages.static import Assets

SHOWN: Final = 200
"""Most rows of a table of requests."""


class Drawer:
    """Draws templates over the same base. `what` describes the data that is shown."""

    def __init__(self, assets: Assets, what: str) -> None:
        self._what = what
        self._assets = assets
        self._jinja = Environment(
            loader=PackageLoader("ullage.pages"),
            autoescape=select_autoescape(default=True, default_for_string=True),
            undefined=StrictUndefined,
            finalize=forms.finish,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._jinja.filters.update(forms.FILTERS, k=_shorten)
        self._jinja.globals |= {
            "asset": assets.get,
            "judge": forms.judge,
            "policies": [name for name in known_policies() if name not in ("client", "off")],
            "ink": lambda kind: INKS.get(kind, OTHER),
            "shown": SHOWN,
            "tiles": lambda rows: lay_out(rows, deep=True),
        }

    def draw(self, template: str, *, fragment: bool = False, **values: Any) -> str:
        """Return a whole page, or only its content if `fragment` is set."""
        base = "fragment.html" if fragment else "base.html"
        return self._jinja.get_template(template).render(what=self._what, base=base, **values)

    def draw_alone(self, template: str, **values: Any) -> str:
        """Return a page as one file that loads nothing."""
        style = self._assets.get("ullage.css").data.decode()
        return self._jinja.get_template(template).render(base="alone.html", style=style, **values)

    def draw_receipt(self, found: SessionDetail) -> str:
        """Return a picture of a conversation to share: its content, cost and losses."""
        told = found.to_dict()
        points = _list_points(found.requests)
        return self._jinja.get_template("receipt.svg").render(points=points, **told)

    def judge_counts(self, found: SessionDetail) -> tuple[float, int] | None:
        """Return the median error of our counts, as a share, and the number of requests.

        The result is None if no request was both counted and reported.
        """
        both = [
            abs(one.counted - one.tokens) / one.tokens
            for one in found.requests
            if one.counted is not None and one.tokens and one.usage is not None
        ]
        return (median(both), len(both)) if both else None

    def chart(self, found: SessionDetail) -> dict[str, Any]:
        """Return the data of a conversation's chart, column by column."""
        requests = found.requests
        paid = [one.dollars or 0.0 for one in requests]
        priced = any(one.dollars is not None for one in requests)
        return {
            "number": list(range(1, len(requests) + 1)),
            "tokens": [one.tokens for one in requests],
            "cached": [one.cache_read for one in requests],
            "window": [one.window for one in requests],
            "dollars": [round(sum_, 6) for sum_ in accumulate(paid)] if priced else [],
            "compacted": [n for n, one in enumerate(requests, 1) if one.compacted],
            "lost": [n for n, one in enumerate(requests, 1) if one.note],
        }


def _shorten(tokens: int | None) -> str:
    return "\u2014" if tokens is None else short(tokens)


def _list_points(requests: Sequence[LiveRequest]) -> list[tuple[float, float, bool]]:
    """Return the sizes of requests as points in a box of 100 by 100; compacted ones are marked."""
    return list(_draw_points([one for one in requests if one.tokens is not None]))


def _draw_points(known: Sequence[LiveRequest]) -> Iterator[tuple[float, float, bool]]:
    most = max((max(one.tokens or 0, one.window or 0) for one in known), default=1) or 1
    for number, one in enumerate(known):
        x = 100 * number / max(1, len(known) - 1)
        yield round(x, 2), round(100 - 100 * (one.tokens or 0) / most, 2), one.compacted
