"""Names of the tools that let a model reach dropped text, for code that reads its calls."""

from __future__ import annotations

from typing import Final

RECALL: Final = "ullage_recall"
SEARCH: Final = "ullage_search"

NOTHING: Final = "Nothing that was left out of this conversation has these words."
"""The answer of a search without hits."""
