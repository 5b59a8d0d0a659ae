"""One bound from the bundled table, without loading what resolves windows.

For a line that is drawn at every prompt. `rows` knows the form of the table, and `aliases` under
which ids a model stands; a test holds this to the same bounds.
"""

from __future__ import annotations

import os
import zlib
from typing import Final

MAKER: Final = "anthropic"
"""Whose rows are read where nobody is named: Claude Code's models are its."""

FILE: Final = os.path.join(os.path.dirname(__file__), "table.gz")


def find_bound(model: str, provider: str = MAKER) -> int | None:
    """Return the most input in tokens of exactly this id at a provider, None without a row."""
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
