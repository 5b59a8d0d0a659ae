"""Probes an OpenAI-compatible `/v1/models`: vLLM, SGLang, and any server by known keys.

Only the keys of an allow list may give a window; a plain `max_tokens`, `n_ctx_train` and
`default_max_tokens` never do. A claim names the key that matched. It knows no server with an API of
its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from ullage.core.tokens.claim import SMALLEST, Claim, Kind
from ullage.windows.probes.cards import at, payload, pick, tokens
from ullage.windows.probes.found import Asking, Card, Found, Target

KEYS: Final[Mapping[Kind, Sequence[str]]] = {
    "input": (
        "max_input_tokens",
        "max_prompt_tokens",
        "max_prompt_length",
        "inputTokenLimit",
        "limits.max_input_tokens",
        "capabilities.limits.max_prompt_tokens",
        "token_limits.max_input_token_length",
    ),
    "allocated": (
        "loaded_context_length",
        "meta.n_ctx",
        "loaded_instances[].config.context_length",
    ),
    "total": (
        "max_model_len",
        "context_length",
        "context_window",
        "context_size",
        "contextLength",
        "max_context_length",
        "max_context_window_tokens",
        "metadata.context_length",
        "model_spec.availableContextTokens",
        "limits.max_context_length",
        "token_limits.context_window",
    ),
    "output": (
        "max_output_tokens",
        "max_completion_tokens",
        "max_output_length",
        "outputTokenLimit",
        "top_provider.max_completion_tokens",
    ),
}
"""The allow list on the window page: the meaning of each key in a model's card."""

GUESSED: Final = 0.8
"""Confidence in a number with a known key from an unknown server."""


def claims(target: Target, card: Card, place: str = "/v1/models") -> tuple[Claim, ...]:
    """Return the claims of a model's card for every matching key; empty without a bound."""
    found = tuple(_claims(target, card, place))
    return found if any(c.kind != "output" for c in found) else ()


def _claims(target: Target, card: Card, place: str) -> Iterator[Claim]:
    for kind, keys in KEYS.items():
        for key in keys:
            for value in at(card, key):
                number = tokens(value)
                if number and (number >= SMALLEST or kind in ("allocated", "output")):
                    yield target.claim(kind, number, GUESSED, f"{key} of {place}")


def generic(target: Target) -> Found:
    """Return the result of the allow list for the model's card, without more requests."""
    card = pick(target.listed, target.model)
    found = claims(target, card) if card is not None else ()
    return Found(found, recognised=bool(found))


def is_settled(found: Found) -> bool:
    """Tell whether claims of a card need no second opinion.

    A total may be the trained length of a server that tells more at `/props`, unless the key is
    vLLM's.
    """
    sure = ("allocated", "input")
    return any(c.kind in sure or c.note.startswith("max_model_len") for c in found.claims)


def vllm(target: Target) -> Asking:
    """Read vLLM's list. A LoRA card has `max_model_len` null; then its parent's holds."""
    yield from ()  # the list that identified the server has everything
    found = _claim_launched(target, pick(target.listed, target.model) or _base(target))
    return replace(found, counts=target.base)


def sglang(target: Target) -> Asking:
    """Read SGLang's list, and its server's prompt limit. SGLang accepts any model name."""
    card = pick(target.listed, target.model) or pick(target.listed, None)
    found = _claim_launched(target, card)
    for path in ("/server_info", "/get_server_info"):  # the second one is the older name
        info = payload((yield target.ask(path)))
        if isinstance(info, Mapping):
            limit = next((n for v in _limits(info) if (n := tokens(v))), None)
            if limit is None:
                break
            claim = target.claim_enforced(limit, f"max_req_input_len of {path}")
            return Found((*found.claims, claim), recognised=True)
    return found


def _limits(info: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the values at the places of the prompt limit in different SGLang versions."""
    yield from at(info, "max_req_input_len")
    yield from at(info, "scheduler_info.max_req_input_len")
    yield from at(info, "internal_states[].max_req_input_len")


def _base(target: Target) -> Card | None:
    """Return the only card that is not an adapter, if no model was named."""
    bases = [c for c in target.listed if not c.get("parent")]
    return pick(bases, None) if target.model is None else None


def _claim_launched(target: Target, card: Card | None) -> Found:
    """Return the claim with the server's launch setting, its `max_model_len`."""
    if card is None:
        return target.report_unlisted()
    parent = card.get("parent")
    family = [card, *(c for c in target.listed if parent and c.get("id") == parent)]
    number = next((n for c in family if (n := tokens(c.get("max_model_len")))), None)
    if number is None:
        return target.silent("names no window (no max_model_len over 0)")
    claim = target.claim("allocated", number, note="max_model_len of /v1/models")
    return Found((claim,), recognised=True)
