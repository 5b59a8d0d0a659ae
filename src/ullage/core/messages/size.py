"""A number of tokens with the band that contains the true value."""

from __future__ import annotations

from typing import NamedTuple


class Size(NamedTuple):
    """A number of tokens: lower edge, best value, upper edge."""

    low: int
    best: int
    high: int
