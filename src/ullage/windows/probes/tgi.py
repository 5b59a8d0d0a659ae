"""Probes Text Generation Inference for its limits of the prompt, and of prompt and answer together.

One server serves one model, whatever name a request gives. Source of the shapes: TGI router/src.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ullage.windows.probes.cards import payload, tokens
from ullage.windows.probes.found import Asking, Found, Target

_INPUT: Final = ("max_input_tokens", "max_input_length")
"""The second is the name before version 2."""


def probe(target: Target) -> Asking:
    """Ask for the launch parameters."""
    info = payload((yield target.ask("/info")))
    if not isinstance(info, Mapping) or not {"max_total_tokens", *_INPUT} & info.keys():
        return Found()
    claims = []
    for key in _INPUT:
        limit = tokens(info.get(key))
        if limit is not None:
            claims.append(target.claim_enforced(limit, f"{key} of /info"))
    total = tokens(info.get("max_total_tokens"))
    if total is not None:
        claims.append(target.claim("allocated", total, note="max_total_tokens of /info"))
    if not claims:
        return target.silent("names no window (no max_input_tokens or max_total_tokens over 0)")
    return Found(tuple(claims), recognised=True)
