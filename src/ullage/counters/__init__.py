"""Exact token counts of text, offline, for the vocabularies that ship in packages.

`vocabulary(model)` tells which vocabulary a model has, `Vocabularies.counter(name)` counts with
it; `band(family)` tells how far off the stand-in is where it cannot. `ullage.counters.append`
counts text that grows, and text that may be too long. Framing and calibration are
`ullage.core.tokens.counting`'s.
"""

from ullage.counters.models import Vocabulary, vocabulary
from ullage.counters.vocabularies import Vocabularies

__all__ = ["Vocabularies", "Vocabulary", "vocabulary"]
