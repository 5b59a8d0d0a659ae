"""A tool's description of its results."""

from __future__ import annotations

from typing import Literal

Trait = Literal["again", "once", "state"]
"""A tool's description of its results: they can be fetched again; only once; or each tells the
state, so that the newest replaces those before it."""
