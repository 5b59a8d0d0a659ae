"""Probes a llama.cpp server for its window: the plain server and the router.

Source of the shapes: recorded answers of builds b10434 and b11669 (docs/design/window.md). It
invents no number, and loads a router's child only if nothing else tells its window.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final
from urllib.parse import quote

from ullage.transport import HttpResponse
from ullage.windows.probes.cards import below, cards, payload, pick, tokens
from ullage.windows.probes.found import HTTP_LOADING, HTTP_OK, Asking, Card, Found, Target


def read(target: Target, answer: HttpResponse) -> Asking:
    """Read the answer to `GET /props`, and ask a router once more."""
    props = answer.json()
    if answer.status == HTTP_LOADING:
        return target.loading()
    if answer.status != HTTP_OK or not _is_props(props):
        return Found()
    if props.get("role") == "router":
        return (yield from _router(target))
    return _read_claims(target, props, target.listed)


def _router(target: Target) -> Asking:
    """Ask a router for one child. It loads an unloaded child only if its preset tells nothing."""
    if not target.model:
        return target.silent("is a router: name the model to learn its window")
    query = f"/props?model={quote(target.model, safe='')}"
    warm = yield target.ask(query + "&autoload=false")
    props = warm.json()
    if warm.status == HTTP_OK and _is_props(props):
        return _read_claims(target, props, ())
    listed = target.listed
    if not any("status" in card for card in listed):
        listed = cards(payload((yield target.ask("/models"))))
    preset = _preset(listed, target.model)
    if preset is not None:
        claim = target.claim("allocated", preset, 0.8, "preset of a child that is not loaded")
        return Found((claim,), recognised=True, counts=target.base)
    cold = yield target.ask(query)
    props = cold.json()
    if cold.status == HTTP_OK and _is_props(props):
        return _read_claims(target, props, ())
    if cold.status == HTTP_LOADING:
        return target.loading()
    return target.silent(f"does not tell the window of {target.model!r} (HTTP {cold.status})")


def _read_claims(target: Target, props: Card, listed: Sequence[Card]) -> Found:
    """Return a server's allocated claim, and the trained claim of its listing.

    The trained length alone is no window: without another number a server gives no claim.
    """
    metas = [meta for card in listed if isinstance(meta := card.get("meta"), Mapping)]
    carriers = [props.get("default_generation_settings"), *metas]
    window = next((n for c in carriers if (n := tokens(below(c, "n_ctx")))), None)
    if window is None:
        return target.silent("names no window (no n_ctx over 0)")
    slots = tokens(props.get("total_slots")) or 1
    shared = slots > 1
    note = f"{slots} slots; if they share one pool, each can have less" if shared else ""
    claims = [target.claim("allocated", window, 0.6 if shared else 1.0, note)]
    for meta in metas:
        trained = tokens(meta.get("n_ctx_train"))
        if trained is not None:
            claims.append(target.claim("trained", trained))
    turns = wants_turns(props.get("chat_template"))
    return Found(tuple(claims), recognised=True, counts=target.base, slots=slots, alternates=turns)


def wants_turns(template: Any) -> bool | None:
    """Tell whether a template refuses two messages of one role in a row; None without one."""
    if not isinstance(template, str) or not template:
        return None
    return bool(_TURNS.search(template))


_TURNS: Final = re.compile(r"roles? must alternate", re.IGNORECASE)
"""The error text in the templates of Gemma, Mistral, Llama 2 and others."""


def _preset(listed: Sequence[Card], model: str) -> int | None:
    """Return the window of one slot with which a router's child would start, or None."""
    args = below(below(pick(listed, model), "status"), "args")
    flags = _flags(args) if isinstance(args, list) else {}
    size = _number(flags, "--ctx-size", "-c")
    slots = _number(flags, "--parallel", "-np") or 1
    return _round_slot(size // slots) if size else None


def _round_slot(size: int) -> int:
    """Round up as the server does: a slot's window is a multiple of 256."""
    return -(-size // _STEP) * _STEP


_STEP: Final = 256


def _flags(args: Sequence[Any]) -> dict[str, str]:
    words = [str(a) for a in args]
    return {a: b for a, b in pairwise(words) if a.startswith("-")}


_NUMBER: Final = re.compile(r"[0-9]{1,12}")


def _number(flags: Mapping[str, str], *names: str) -> int | None:
    for name in names:
        if _NUMBER.fullmatch(flags.get(name, "")):
            return int(flags[name])
    return None


def _is_props(props: Any) -> bool:
    return isinstance(props, Mapping) and "default_generation_settings" in props
