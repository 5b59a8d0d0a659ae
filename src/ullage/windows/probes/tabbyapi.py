"""Probes TabbyAPI for the sequence length of the loaded model.

It knows only the loaded model; a chat may load another one, with another length. Source of the
shapes: tabbyAPI endpoints of 2026.
"""

from __future__ import annotations

from collections.abc import Mapping

from ullage.windows.probes.cards import below, payload, tokens
from ullage.windows.probes.found import Asking, Found, Target


def probe(target: Target) -> Asking:
    """Ask for the loaded model."""
    card = payload((yield target.ask("/v1/model")))
    parameters = below(card, "parameters")
    if not isinstance(parameters, Mapping) or "max_seq_len" not in parameters:
        return Found()
    window = tokens(parameters["max_seq_len"])
    if window is None:
        return target.silent("names no window (no max_seq_len over 0)")
    loaded = below(card, "id")
    same = target.model in (None, loaded)
    note = "" if same else f"of the loaded model, which is called {str(loaded)[:80]!r}"
    return Found((target.claim("allocated", window, 1.0 if same else 0.6, note),), recognised=True)
