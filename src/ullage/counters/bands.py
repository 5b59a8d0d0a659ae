"""How many tokens other vocabularies need per token of o200k_base: the band of each family.

The numbers were measured once; nothing is counted here. They do not know your text: a conversation
in one language or one format may lie outside; see docs/design/counting.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ullage.core.tokens.counting import UNKNOWN_VOCABULARY, Scale

# Source: the table of ratios in docs/counters.md. `best` is the ratio for a typical mix of agents'
# texts. The edges cover single pieces of that mix (p5 to p95) and 20 of 24 kinds of text. Claude's
# vocabulary is not published: its ratios come from a reconstruction, so 5 % are added.
_BANDS: Final[Mapping[str, Scale]] = {
    "claude-3": Scale(0.97, 1.17, 1.82),
    "claude-4.7": Scale(1.09, 1.47, 2.06),
    "deepseek-v3": Scale(0.96, 1.04, 1.25),
    "gemma3": Scale(0.86, 1.20, 1.41),
    "glm-4": Scale(0.97, 1.02, 1.30),
    "glm-4.7": Scale(0.93, 1.02, 1.30),
    "llama3": Scale(0.97, 1.00, 1.24),
    "minimax": Scale(0.92, 1.00, 1.15),
    "mistral-v3": Scale(1.09, 1.30, 2.29),
    "qwen3": Scale(0.94, 1.11, 1.52),
    "qwen3.5": Scale(0.89, 1.15, 1.36),
    "tekken": Scale(1.01, 1.15, 1.54),
}


def band(family: str | None) -> Scale:
    """Return the ratio of a family's own count to o200k_base's; the widest band if unknown.

    `family` is that of `ullage.counters.vocabulary(model)`.
    """
    return _BANDS.get(family, UNKNOWN_VOCABULARY) if family else UNKNOWN_VOCABULARY
