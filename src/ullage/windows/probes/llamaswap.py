"""Probes llama-swap for the window of a running server, without starting another one.

`/props?model=ID` and `/upstream/ID/...` start a model and stop the running one. So only a ready
model is asked; the next chat starts the others. It knows no server's command line. Source of the
shapes: llama-swap internal/server/api.go of 2026.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final
from urllib.parse import quote

from ullage.core.tokens.claim import Claim
from ullage.windows.probes import llamacpp, openai_compatible
from ullage.windows.probes.cards import below, cards, mappings, payload, pick
from ullage.windows.probes.found import Asking, Card, Found, Target

OWNER: Final = "llama-swap"


def is_llamaswap(card: Card) -> bool:
    """Tell whether a model's card comes from llama-swap."""
    meta = card.get("meta")
    return card.get("owned_by") == OWNER or (isinstance(meta, Mapping) and "llamaswap" in meta)


def probe(target: Target) -> Asking:
    """Ask for the running models, and a running server for its window; start or stop nothing."""
    answer = payload((yield target.ask("/running")))
    running = below(answer, "running")
    if not isinstance(running, list) and not any(is_llamaswap(c) for c in target.listed):
        return Found()
    ready = [r for r in mappings(running) if r.get("state") == "ready"]
    model = target.model
    if model is None and len(ready) == 1:
        model = ready[0].get("model")
    if not isinstance(model, str):
        return target.report_unlisted()
    written = _read_configured(target, pick(target.listed, model))
    if all(r.get("model") != model for r in ready):
        if written:
            return Found(written, recognised=True)
        why = f"does not run {model!r}: its window is known once a chat has started it"
        return target.silent(why, passing=True)
    upstream = replace(target, base=f"{target.base}/upstream/{quote(model)}", model=None, listed=())
    found = yield from _upstream(upstream)
    claims = (*found.claims, *written)
    if not claims:
        return target.silent(f"runs {model!r}, which tells no window", passing=found.passing)
    return replace(found, claims=claims, recognised=True)


def _upstream(upstream: Target) -> Asking:
    """Ask a running server: llama.cpp by its properties, any other by its list."""
    answer = yield upstream.ask("/props")
    found = yield from llamacpp.read(upstream, answer)
    if found.claims or found.passing:
        return found
    listed = cards(payload((yield upstream.ask("/v1/models"))))
    return openai_compatible.generic(replace(upstream, listed=listed))


def _read_configured(target: Target, card: Card | None) -> tuple[Claim, ...]:
    """Return the claims in the operator's configuration of a model."""
    meta: Any = below(card, "meta")
    own = below(meta, "llamaswap")
    places = [c for c in (card, own) if isinstance(c, Mapping)]
    return tuple(
        claim
        for place in places
        for claim in openai_compatible.claims(target, place, "llama-swap's configuration")
    )
