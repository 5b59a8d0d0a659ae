"""What a llama.cpp server says of its window: the plain server and the router.

A probe is a generator: it yields what to ask and is sent the answer, so that the sync and the
async resolver share it. Source of the shapes: recorded answers of builds b10434 and b11669
(docs/design/window.md). It knows no HTTP client and makes no number up.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final
from urllib.parse import quote, urlsplit, urlunsplit

from ullage.core.window import Claim
from ullage.transport import Answer, Ask, shown

Asking = Generator[Ask, Answer, "Found"]

HTTP_OK: Final = 200
HTTP_LOADING: Final = 503


@dataclass(frozen=True, slots=True)
class Found:
    """What a probe found: claims, whether it was this kind of server, and a complaint if not.

    `counts` is the URL at which the server counts a chat request, "" where it offers none;
    `passing` means that asking again soon may help (a model is loading).
    """

    claims: tuple[Claim, ...] = ()
    recognised: bool = False
    complaint: str = ""
    counts: str = ""
    passing: bool = False


def root(base_url: str) -> str:
    """Return the server's root for a chat base URL: `/v1` stripped, sub-paths kept."""
    parts = urlsplit(base_url)
    path = parts.path.rstrip("/").removesuffix("/v1")
    return urlunsplit((parts.scheme, parts.netloc, path.rstrip("/"), "", ""))


def probe(base_url: str, model: str | None, api_key: str | None, now: float) -> Asking:
    """Ask a server for the window of `model`; returns what was found, never raises."""
    base = root(base_url)

    def ask(path: str) -> Ask:
        return Ask(base + path, api_key=api_key)

    answer = yield ask("/props")
    props = answer.json()
    if not _is_props(props):
        return Found(complaint=_complaint(base, answer), passing=_loading(answer))
    if props.get("role") == "router":
        return (yield from _router(base, model, api_key, now))
    listing = (yield ask("/v1/models")).json()
    return _found(props, listing, base, now)


def _router(base: str, model: str | None, api_key: str | None, now: float) -> Asking:
    """Ask a router for one child. A cold child is loaded only when its preset says nothing."""
    if not model:
        return Found((), True, f"{shown(base)} is a router: name the model to learn its window")
    query = f"{base}/props?model={quote(model, safe='')}"
    warm = yield Ask(query + "&autoload=false", api_key=api_key)
    props = warm.json()
    if warm.status != HTTP_OK or not _is_props(props):
        listing = (yield Ask(base + "/models", api_key=api_key)).json()
        preset = _preset(listing, model)
        if preset is not None:
            note = "preset of a child that is not loaded"
            claim = Claim("allocated", preset, "probe", shown(base), now, 0.8, note)
            return Found((claim,), True, counts=_counts(base))
        cold = yield Ask(query, api_key=api_key)
        props = cold.json()
        if cold.status != HTTP_OK or not _is_props(props):
            return Found((), True, _complaint(base, cold), passing=_loading(cold))
    return _found(props, None, base, now)


def _found(props: Mapping[str, Any], listing: Any, base: str, now: float) -> Found:
    """Return the allocated claim of a server, and beside it the trained one of its listing.

    The trained length alone is no window: a server that names no other gives no claim.
    """
    settings = props.get("default_generation_settings")
    metas = [meta for card in _cards(listing) if isinstance(meta := card.get("meta"), Mapping)]
    carriers = [settings, *metas] if isinstance(settings, Mapping) else metas
    window = next((n for c in carriers if (n := _tokens(c.get("n_ctx")))), None)
    where = shown(base)
    if window is None:
        return Found((), True, f"{where} names no window (no n_ctx over 0)", _counts(base))
    slots = _tokens(props.get("total_slots")) or 1
    shared = slots > 1
    note = f"{slots} slots; if they share one pool, each can have less" if shared else ""
    claims = [Claim("allocated", window, "probe", where, now, 0.6 if shared else 1.0, note)]
    for meta in metas:
        trained = _tokens(meta.get("n_ctx_train"))
        if trained is not None:
            claims.append(Claim("trained", trained, "probe", where, now))
    return Found(tuple(claims), True, counts=_counts(base))


def _preset(listing: Any, model: str) -> int | None:
    """Return the window of one slot that a router's child would be started with, or None."""
    for card in _cards(listing):
        status = card.get("status")
        if card.get("id") != model or not isinstance(status, Mapping):
            continue
        args = status.get("args")
        flags = _flags(args) if isinstance(args, Sequence) and not isinstance(args, str) else {}
        size = _number(flags, "--ctx-size", "-c")
        slots = _number(flags, "--parallel", "-np") or 1
        if size:
            return _rounded(size // slots)
    return None


def _rounded(size: int) -> int:
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


def _cards(listing: Any) -> list[Mapping[str, Any]]:
    data = listing.get("data") if isinstance(listing, Mapping) else None
    return [c for c in data if isinstance(c, Mapping)] if isinstance(data, list) else []


def _is_props(props: Any) -> bool:
    return isinstance(props, Mapping) and "default_generation_settings" in props


def _tokens(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _counts(base: str) -> str:
    return f"{base}/v1/chat/completions/input_tokens"


def _loading(answer: Answer) -> bool:
    return answer.status == HTTP_LOADING


def _complaint(base: str, answer: Answer) -> str:
    base = shown(base)
    if answer.fault:
        return f"{base} gave no answer ({answer.fault})"
    if _loading(answer):
        return f"{base} is still loading its model (503); ask again when it is ready"
    return f"{base} does not tell its window (HTTP {answer.status}, no llama.cpp properties)"
