"""Exact token counts of text, offline, for the vocabularies that ship in packages.

`vocabulary(model)` tells which vocabulary a model has, `Vocabularies.counter(name)` counts with
it. Framing, bands and calibration are `ullage.core.counting`'s.
"""

from ullage.counters.models import Vocabulary, vocabulary
from ullage.counters.vocabularies import Vocabularies

__all__ = ["Vocabularies", "Vocabulary", "vocabulary"]
