"""Recognises the server at a base URL and asks it for its window.

Servers are recognised by their answers, not by the path that answers: several emulate each other,
and one answers 200 to every path. The list of models comes first, because every server has one, it
changes nothing, and it usually identifies the server. A server that stops answering is not asked
again. It knows no HTTP client, no cache, and no number of its own.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, cast
from urllib.parse import urlsplit

from ullage.core.tokens.claim import Claim
from ullage.transport import HttpRequest, HttpResponse
from ullage.windows.probes import (
    koboldcpp,
    litellm_proxy,
    llamacpp,
    llamaswap,
    lmstudio,
    ollama,
    openai_compatible,
    tabbyapi,
    tgi,
)
from ullage.windows.probes.cards import cards, payload
from ullage.windows.probes.found import HTTP_LOADING, Asking, Card, Found, Probe, Target, root

REFUSALS: Final = (401, 403)


def probe(
    base_url: str, model: str | None, api_key: str | None, now: float, known: str = ""
) -> Asking:
    """Ask the server of `base_url` for the window of `model`; never raises.

    `known` is the server recognised earlier at this host (`Found.server`): it is tried first. The
    result has claims, or exactly one complaint.
    """
    target = Target(root(base_url), model, api_key, now)
    found, silence, refusal = yield from _ask_until_silent(_recognise(target, base_url, known))
    if found.claims:
        return replace(found, complaint="", passing=False)
    if silence is not None:
        complaint = f"{target.where} gave no answer ({silence.fault})"
        return Found((), found.recognised, complaint, server=found.server, is_silent=True)
    if found.complaint:
        return found
    why = f" (HTTP {refusal}: it wants a key, or another one)" if refusal else _STRANGE
    return Found(complaint=f"{target.where} does not tell its window{why}")


_STRANGE: Final = ": it is no server known here, and its list of models names no limit"


def _ask_until_silent(
    asking: Asking,
) -> Generator[HttpRequest, HttpResponse, tuple[Found, HttpResponse | None, int]]:
    """Pass on requests until the server stops answering; then send no more.

    Return the result, the answer that never came, and the status of a refused key (or 0).
    """
    silence: HttpResponse | None = None
    refusal = 0
    try:
        what = next(asking)
        while True:
            # After one missing answer the rest count as missing, too: each request could time out.
            answer = silence or (yield what)
            silence = answer if answer.fault else None
            if answer.status in REFUSALS:
                refusal = answer.status
            what = asking.send(answer)
    except StopIteration as done:
        # A generator's return type is lost on the way through its exception.
        return cast("Found", done.value), silence, refusal


def _recognise(target: Target, base_url: str, known: str) -> Asking:
    """Ask for the list of models, then the server that it suggests, then other candidates."""
    listed, answer = yield from _list(target, base_url)
    if answer.status in REFUSALS:
        return Found()
    if answer.status == HTTP_LOADING:
        return target.loading()
    target = replace(target, listed=listed)
    pointed = known if known in PROBES else _guess_server(listed)
    generic = openai_compatible.generic(target)
    if pointed == "llama.cpp":
        claims = _keep_allocated(generic.claims)
        generic = Found(claims, recognised=bool(claims))
    for name in _order(pointed, listed, generic):
        found = yield from PROBES[name](target)
        if found.recognised or found.passing:
            return found if found.server else replace(found, server=name)
    if generic.claims or not listed:
        return replace(generic, server=OTHER if generic.claims else "")
    return _nothing(target)


def _list(
    target: Target, base_url: str
) -> Generator[HttpRequest, HttpResponse, tuple[list[Card], HttpResponse]]:
    """Ask for the list of models, and at a second place if the first one has none."""
    answer = yield target.ask("/v1/models")
    listed = cards(payload(answer))
    other = _other_list(base_url)
    if not listed and other and answer.status not in (*REFUSALS, HTTP_LOADING):
        listed = cards(payload((yield HttpRequest(other, api_key=target.api_key))))
    return listed, answer


def _keep_allocated(claims: Sequence[Claim]) -> tuple[Claim, ...]:
    """Return the claims that hold on llama.cpp; newer builds also list the trained length."""
    return tuple(claim for claim in claims if claim.kind == "allocated")


def catalogue(
    base_url: str, api_key: str | None, now: float
) -> Generator[HttpRequest, HttpResponse, tuple[dict[str, tuple[Claim, ...]], str]]:
    """Ask a server for its models; return the claims in its list by model, and a complaint or "".

    No model is requested by itself, because that may load it, so many have no claims.
    """
    target = Target(root(base_url), None, api_key, now)
    listed, answer = yield from _list(target, base_url)
    held: dict[str, tuple[Claim, ...]] = {}
    for card in listed:
        name, claims = card.get("id"), openai_compatible.claims(target, card)
        if isinstance(name, str) and name:
            held[name] = _keep_allocated(claims) if _guess_server(listed) == "llama.cpp" else claims
    if held:
        return held, ""
    why = answer.fault or f"HTTP {answer.status}"
    return held, f"{target.where} gave no list of models ({why})"


def _other_list(base_url: str) -> str:
    """Return the place of the list if the path of the chat's base URL does not end in /v1."""
    parts = urlsplit(base_url)
    path = parts.path.rstrip("/")
    if not path or path.endswith("/v1"):
        return ""
    return parts._replace(path=f"{path}/models", query="", fragment="").geturl()


def _guess_server(listed: Sequence[Card]) -> str:
    """Return the server that a list of models suggests, or ""."""
    if any(llamaswap.is_llamaswap(c) for c in listed):
        return "llama-swap"
    for card in listed:
        owner = card.get("owned_by")
        if isinstance(owner, str) and owner.lower() in _OWNERS:
            return _OWNERS[owner.lower()]
    if any(c.get("created") == litellm_proxy.CREATED for c in listed):
        return "litellm"
    return ""


def _order(pointed: str, listed: Sequence[Card], generic: Found) -> Iterator[str]:
    """Yield the servers to try: the suggested one, then others, fewer if the list has claims."""
    if pointed:
        yield pointed
    if not listed:
        rest: Sequence[str] = _WITHOUT_LIST
    elif openai_compatible.is_settled(generic):
        rest = ()
    elif generic.claims:
        rest = ("llama.cpp",)
    else:
        rest = _WITH_LIST
    yield from (name for name in rest if name != pointed)


def _nothing(target: Target) -> Found:
    """Return the result for an unknown server whose list has no limit for the model."""
    if target.model is not None and all(c.get("id") != target.model for c in target.listed):
        return replace(target.report_unlisted(), recognised=False)
    return Found()


def _properties(target: Target) -> Asking:
    """Ask for llama.cpp's properties; two other servers answer there and are recognised."""
    answer = yield target.ask("/props")
    if lmstudio.speaks(answer):
        found = yield from lmstudio.probe(target)
        return replace(found, server="lmstudio")
    if koboldcpp.emulates(answer):
        found = yield from koboldcpp.probe(target)
        if found.recognised:
            return replace(found, server="koboldcpp")
    return (yield from llamacpp.read(target, answer))


PROBES: Final[Mapping[str, Probe]] = {
    "llama-swap": llamaswap.probe,
    "llama.cpp": _properties,
    "ollama": ollama.probe,
    "lmstudio": lmstudio.probe,
    "vllm": openai_compatible.vllm,
    "sglang": openai_compatible.sglang,
    "koboldcpp": koboldcpp.probe,
    "tgi": tgi.probe,
    "tabbyapi": tabbyapi.probe,
    "litellm": litellm_proxy.probe,
}
"""The known servers, by the name in `Found.server`."""

OTHER: Final = "openai-compatible"
"""The value of `Found.server` if only the server's list of models is understood."""

_OWNERS: Final[Mapping[str, str]] = {
    "llamacpp": "llama.cpp",
    "llama-swap": "llama-swap",
    "library": "ollama",
    "organization_owner": "lmstudio",
    "vllm": "vllm",
    "sglang": "sglang",
    "koboldcpp": "koboldcpp",
    "tabbyapi": "tabbyapi",
}
"""Values of `owned_by` in the servers' lists. A hint, not a proof: the next response decides."""

_WITH_LIST: Final = ("llama.cpp", "ollama", "tgi", "litellm")
"""Servers whose list may not identify them (LM Studio is recognised by its answer to /props)."""

_WITHOUT_LIST: Final = (
    "llama-swap", "llama.cpp", "ollama", "koboldcpp", "tgi", "tabbyapi", "litellm"
)  # fmt: skip
"""llama-swap comes before /props, which it would forward."""
