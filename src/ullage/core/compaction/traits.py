"""What a tool says of its results."""

from __future__ import annotations

from typing import Literal

Trait = Literal["again", "once", "state"]
"""What a tool says of its results: they can be had again; only once; or each tells the state, so
that the newest takes the place of those before it."""
