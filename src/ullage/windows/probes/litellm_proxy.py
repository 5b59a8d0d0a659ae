"""Probes a LiteLLM proxy for a routed model: the numbers of its own table, or the operator's.

Several deployments may serve one name: each makes its claims, and the smallest holds. It knows
nothing of the servers that the proxy uses. Source of the shapes: LiteLLM's `/model/info`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ullage.core.tokens.claim import SMALLEST, Claim
from ullage.windows.probes.cards import below, cards, payload, tokens
from ullage.windows.probes.found import Asking, Card, Found, Target

CREATED: Final = 1677610602
"""The creation time that LiteLLM gives every model in its list."""

_NOTE: Final = "LiteLLM's table or its operator's entry"
_TRUST: Final = 0.8


def probe(target: Target) -> Asking:
    """Ask for the deployments and their limits."""
    deployments = cards(payload((yield target.ask("/model/info"))))
    if not any("model_info" in d and "model_name" in d for d in deployments):
        return Found()
    names = {d.get("model_name") for d in deployments}
    model = target.model if target.model is not None or len(names) > 1 else names.pop()
    mine = [d for d in deployments if model is not None and d.get("model_name") == model]
    if not mine:
        return target.report_unlisted()
    claims = tuple(c for d in mine for c in _claims(target, d))
    if all(c.kind == "output" for c in claims):
        return target.silent(f"names no window for {model!r} (no max_input_tokens)")
    return Found(claims, recognised=True)


def _claims(target: Target, deployment: Card) -> Iterator[Claim]:
    """Yield the limits of one deployment; its plain `max_tokens` is not one."""
    info = deployment.get("model_info")
    window = tokens(below(info, "max_input_tokens"))
    if window is not None and window >= SMALLEST:
        yield target.claim("input", window, _TRUST, _NOTE)
    answer = tokens(below(info, "max_output_tokens"))
    if answer is not None:
        yield target.claim("output", answer, _TRUST, _NOTE)
