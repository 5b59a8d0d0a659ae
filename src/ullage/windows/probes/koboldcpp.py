"""Probes KoboldCpp for its context size at launch.

It emulates llama.cpp's `/props`, with `n_ctx` at the top level, unlike llama.cpp. The per-request
`max_context_length` is not known here. Source of the shapes: koboldcpp.py of 2026.
"""

from __future__ import annotations

from collections.abc import Mapping

from ullage.transport import HttpResponse
from ullage.windows.probes.cards import payload, tokens
from ullage.windows.probes.found import Asking, Found, Target

_PATH = "/api/extra/true_max_context_length"


def emulates(answer: HttpResponse) -> bool:
    """Tell whether an answer to `/props` has KoboldCpp's mark."""
    props = payload(answer)
    return isinstance(props, Mapping) and "n_ctx" in props


def probe(target: Target) -> Asking:
    """Ask for the true context size: `{"value": 8192}`."""
    answer = payload((yield target.ask(_PATH)))
    if not isinstance(answer, Mapping) or "value" not in answer:
        return Found()
    window = tokens(answer["value"])
    if window is None:
        return target.silent(f"names no window (no value over 0 at {_PATH})")
    note = "longer prompts are cut silently"
    return Found((target.claim("allocated", window, note=note),), recognised=True)
