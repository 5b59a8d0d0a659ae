"""Reads one bound from the bundled table, without loading the resolver.

A shell prompt uses it. `rows` knows the form of the table, and `aliases` the ids of a model; a test
checks that the bounds are the same.
"""

from __future__ import annotations

import os
import zlib
from typing import Final

MAKER: Final = "anthropic"
"""The default provider: it makes Claude Code's models."""

FILE: Final = os.path.join(os.path.dirname(__file__), "table.gz")


def find_bound(model: str, provider: str = MAKER) -> int | None:
    """Return the most input tokens of exactly this id at a provider, or None without a row."""
    if not model or "\n" in model or "\t" in model:
        return None
    try:
        with open(FILE, "rb") as file:
            text = "\n" + zlib.decompress(file.read(), 31).decode("ascii")
    except (OSError, ValueError, zlib.error):
        return None
    _, _, rest = text.partition(f"\n[{provider}]\n")
    rows = "\n" + rest.partition("\n[")[0] + "\n"
    start = rows.find(f"\n{model}\t") + 1
    if not start:
        return None
    _, total, most, *_ = (rows[start : rows.index("\n", start)] + "\t\t").split("\t")
    limits = [int(text) for text in (total, most) if text.isdigit()]
    return min(limits, default=None)
