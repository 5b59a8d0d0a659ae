"""Probes Ollama for the window of a loaded model, or the window that its parameters request.

`/api/ps` has the allocated window of loaded models only. `/api/show` has the parameters and the
trained length, which is no window. It knows nothing of requests, which may set another `num_ctx`.
Source of the shapes: ollama api/types.go and docs/context-length.mdx of 2026-08.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from ullage.core.tokens.claim import Claim
from ullage.windows.probes.cards import below, mappings, payload, tokens
from ullage.windows.probes.found import HTTP_OK, Asking, Card, Found, Target

CUTS: Final = "/v1 cannot set num_ctx and cuts longer prompts silently"


def probe(target: Target) -> Asking:
    """Ask for the loaded models, then for the model's own numbers. Loads nothing."""
    loaded = below(payload((yield target.ask("/api/ps"))), "models")
    if not isinstance(loaded, list):
        return Found()
    running = _running(mappings(loaded), target.model)
    model = target.model or below(running, "model") or below(running, "name")
    if not isinstance(model, str):
        return target.report_unlisted()
    answer = yield target.ask("/api/show", {"model": model})
    show = payload(answer)
    trained = _read_trained(below(show, "model_info"))
    claim = _claim_allocated(target, running, _num_ctx(below(show, "parameters")), trained)
    if claim is not None:
        beside = () if trained is None else (target.claim("trained", trained),)
        return Found((claim, *beside), recognised=True)
    if running is None and answer.status != HTTP_OK:
        return target.silent(f"does not know the model {model!r} (HTTP {answer.status})")
    state = "has not loaded" if running is None else "names no window for"
    known = "" if trained is None else f"; trained for {trained:,}, which is not what it gets"
    why = f"{state} {model!r} and its parameters set no num_ctx{known}"
    return target.silent(why, passing=running is None)


def _claim_allocated(
    target: Target, running: Card | None, num_ctx: int | None, trained: int | None
) -> Claim | None:
    """Return the window of the loaded model, or the one that its parameters request."""
    window = tokens(below(running, "context_length"))
    if window is not None:
        return target.claim("allocated", window, note=CUTS)
    if num_ctx is None:
        return None
    state = "loaded, window not told" if running is not None else "not loaded"
    note = f"num_ctx of the model's parameters ({state}); {CUTS}"
    return target.claim("allocated", min(num_ctx, trained or num_ctx), 0.7, note)


def _running(loaded: Sequence[Card], model: str | None) -> Card | None:
    """Return the loaded model of this name, with or without `:latest`; if None, the only one."""
    if model is None:
        return loaded[0] if len(loaded) == 1 else None
    names = {model, f"{model}:latest", model.removesuffix(":latest")}
    return next((c for c in loaded if c.get("name") in names or c.get("model") in names), None)


def _read_trained(info: Any) -> int | None:
    """Return `model_info["<arch>.context_length"]`."""
    arch = below(info, "general.architecture")
    if isinstance(arch, str):
        return tokens(below(info, f"{arch}.context_length"))
    return None


_NUM_CTX: Final = re.compile(r"^\s*num_ctx\s+\"?([0-9]{1,9})\"?\s*$", re.MULTILINE)


def _num_ctx(parameters: Any) -> int | None:
    """Return the `num_ctx` in the parameters, which are lines of a name and a value."""
    lines = parameters if isinstance(parameters, str) else ""
    found = _NUM_CTX.findall(lines)
    return tokens(int(found[-1])) if found else None
