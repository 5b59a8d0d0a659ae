"""Exact token counts of text, offline, for the vocabularies that ship in packages.

`vocabulary(model)` returns the vocabulary of a model, and `Vocabularies.counter(name)` counts with
it. If that is not possible, `band(family)` tells the error of the stand-in.
`ullage.counters.append` counts text that grows, and text that may be too long. Framing and
calibration are in `ullage.core.tokens.counting`.
"""

from ullage.counters.models import Vocabulary, vocabulary
from ullage.counters.vocabularies import Vocabularies

__all__ = ["Vocabularies", "Vocabulary", "vocabulary"]
