"""The tools by which a model reaches what was left out, for whoever reads its calls."""

from __future__ import annotations

from typing import Final

RECALL: Final = "ullage_recall"
SEARCH: Final = "ullage_search"

NOTHING: Final = "Nothing that was left out of this conversation has these words."
"""The answer of a search that finds nothing."""
