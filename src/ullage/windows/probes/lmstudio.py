"""Probes LM Studio for the context length of a loaded model.

`max_context_length` is the model's trained length, not the length it was loaded with. It knows both
forms of the list (`/api/v1` and the older `/api/v0`). Source of the shapes: lmstudio-ai/docs of
2026.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ullage.transport import HttpResponse
from ullage.windows.probes.cards import below, cards, mappings, payload, tokens
from ullage.windows.probes.found import Asking, Card, Found, Target


@dataclass(frozen=True, slots=True)
class _Instance:
    """One loaded copy of a model: `name` is the copy's own, `window` None if unknown."""

    name: object
    window: int | None
    trained: int | None
    parallel: int = 1


def speaks(answer: HttpResponse) -> bool:
    """Tell whether LM Studio refused an unknown path: it answers HTTP 200 with an error."""
    error = below(payload(answer), "error")
    return isinstance(error, str) and error.startswith("Unexpected endpoint or method")


def probe(target: Target) -> Asking:
    """Ask for the loaded instances. Loads nothing."""
    models = mappings(below(payload((yield target.ask("/api/v1/models"))), "models"))
    if any("loaded_instances" in model for model in models):
        return _read(target, [(m.get("key"), list(_instances(m))) for m in models])
    older = cards(payload((yield target.ask("/api/v0/models"))))
    if any("state" in card for card in older):
        return _read(target, [(c.get("id"), list(_list_loaded(c))) for c in older])
    return Found()


def _instances(model: Card) -> Iterator[_Instance]:
    trained = tokens(model.get("max_context_length"))
    for instance in mappings(model.get("loaded_instances")):
        config = instance.get("config")
        window = tokens(below(config, "context_length"))
        parallel = tokens(below(config, "parallel")) or 1
        yield _Instance(instance.get("id"), window, trained, parallel)


def _list_loaded(card: Card) -> Iterator[_Instance]:
    if card.get("state") == "loaded":
        trained = tokens(card.get("max_context_length"))
        yield _Instance(card.get("id"), tokens(card.get("loaded_context_length")), trained)


def _read(target: Target, models: list[tuple[object, list[_Instance]]]) -> Found:
    """Return the claims of the copy that serves the model; the smallest of several."""
    model = target.model
    copies = [i for _, loaded in models for i in loaded]
    if model is None:
        if len(copies) != 1:
            return target.report_unlisted()
        meant = copies
    else:
        of_key = [i for key, loaded in models if key == model for i in loaded]
        meant = [i for i in copies if i.name == model] or of_key
        if not meant and all(key != model for key, _ in models):
            return target.report_unlisted()
    if not meant:
        why = f"has not loaded {model!r}: its window is known once it is"
        return target.silent(why, passing=True)
    told = [(i.window, i) for i in meant if i.window is not None]
    if not told:
        return target.silent("names no window (no context_length over 0 of the loaded model)")
    window, instance = min(told, key=lambda pair: pair[0])
    shared = instance.parallel > 1
    note = f"{instance.parallel} requests in parallel may share it" if shared else ""
    claims = [target.claim("allocated", window, 0.6 if shared else 1.0, note)]
    if instance.trained is not None:
        claims.append(target.claim("trained", instance.trained))
    return Found(tuple(claims), recognised=True)
