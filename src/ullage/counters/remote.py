"""Counting by the server that will read the prompt: the requests, and how to read the answers.

Each kind of server has one row. Counts are kept for repeated, unchanged prompts. It knows no window
and no conversation; `ullage.windows` recognises the servers. Sources: llama.cpp's server README;
vLLM's OpenAI-compatible server page (`/tokenize`); Anthropic's "Token counting"; Gemini's
`models.countTokens`.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from threading import Lock
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlsplit

from ullage.core.dialects import registry
from ullage.transport import HttpRequest

if TYPE_CHECKING:
    from ullage.core.dialects.dialect import Dialect
    from ullage.transport import HttpResponse

MOST: Final = 1_000
"""Most counts kept; the least recently used is dropped first."""


@dataclass(frozen=True, slots=True)
class CountingServer:
    """A server that counts: its kind and its root URL."""

    server: str
    base: str
    api_key: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Prompt:
    """A request as JSON data, in its dialect; `system` is the system prompt if it is separate."""

    dialect: Dialect
    model: str
    messages: Any
    tools: Any = None
    system: Any = None

    def body(self) -> dict[str, Any]:
        """Return the fields for the dialect's own endpoint."""
        place = self.dialect.fields
        fields: dict[str, Any] = {"model": self.model, place.messages: self.messages}
        if self.system and place.system is None:
            fields[place.messages] = [{"role": "system", "content": self.system}, *self.messages]
        elif self.system:
            fields[str(place.system)] = self.system
        if self.tools:
            fields["tools"] = self.tools
        return fields


def asking(place: CountingServer, prompt: Prompt) -> HttpRequest | None:
    """Return the request that counts this prompt, or None if the server cannot count it."""
    ask = _ASKING.get(place.server)
    return ask(place, prompt) if ask is not None else None


def read_count(answer: HttpResponse) -> int | None:
    """Return the tokens in a server's answer, or None if it has no number."""
    body = answer.json()
    if answer.status != _OK or not isinstance(body, Mapping):
        return None
    found = (body.get(name) for name in ("input_tokens", "count", "totalTokens"))
    return next((n for n in found if type(n) is int and n > 0), None)


_OK: Final = 200


def _llama_cpp(place: CountingServer, prompt: Prompt) -> HttpRequest | None:
    path = prompt.dialect.endpoint.counts
    return None if path is None else HttpRequest(place.base + path, prompt.body(), place.api_key)


def _vllm(place: CountingServer, prompt: Prompt) -> HttpRequest | None:
    if prompt.dialect.name != registry.DEFAULT:
        return None
    body = {**prompt.body(), "add_generation_prompt": True}
    return HttpRequest(f"{place.base}/tokenize", body, place.api_key)


def _anthropic(place: CountingServer, prompt: Prompt) -> HttpRequest | None:
    endpoint = prompt.dialect.endpoint
    if endpoint.auth != "x-api-key" or endpoint.counts is None or not place.api_key:
        return None
    url = place.base + endpoint.counts
    return HttpRequest(url, prompt.body(), place.api_key, endpoint.auth, endpoint.headers)


def _gemini(place: CountingServer, prompt: Prompt) -> HttpRequest | None:
    """Ask for plain text only, as calls and media have other forms and counts there."""
    contents = _contents(prompt)
    if contents is None or not place.api_key or prompt.tools:
        return None
    model = prompt.model.removeprefix("models/")
    whole: dict[str, Any] = {"model": f"models/{model}", "contents": contents}
    if prompt.system:
        whole["systemInstruction"] = {"parts": [{"text": str(prompt.system)}]}
    parts = urlsplit(place.base)  # the base URL of its OpenAI dialect has another path
    url = f"{parts.scheme}://{parts.netloc}/v1beta/models/{quote(model, safe='')}:countTokens"
    return HttpRequest(url, {"generateContentRequest": whole}, place.api_key, "x-goog-api-key")


def _contents(prompt: Prompt) -> list[dict[str, Any]] | None:
    if prompt.dialect.name != registry.DEFAULT:
        return None
    contents = []
    for message in prompt.messages:
        role, text = message.get("role"), message.get("content")
        if role not in ("user", "assistant") or not isinstance(text, str) or len(message) > 2:
            return None
        name = "model" if role == "assistant" else "user"
        contents.append({"role": name, "parts": [{"text": text}]})
    return contents


_ASKING: Final[Mapping[str, Callable[[CountingServer, Prompt], HttpRequest | None]]] = (
    MappingProxyType(
        {
            "llama.cpp": _llama_cpp,
            "llama-swap": _llama_cpp,
            "vllm": _vllm,
            "anthropic": _anthropic,
            "gemini": _gemini,
        }
    )
)


class Counts:
    """Counts from servers, by the whole request. Safe to share between threads."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._kept: OrderedDict[bytes, int] = OrderedDict()
        self._lock = Lock()

    def find_count(self, ask: HttpRequest) -> int | None:
        """Return the count of an earlier equal request, or None."""
        key = _identity(ask)
        with self._lock:
            tokens = self._kept.get(key)
            if tokens is not None:
                self._kept.move_to_end(key)
            return tokens

    def keep_count(self, ask: HttpRequest, answer: HttpResponse) -> int | None:
        """Return the count of an answer, and keep it."""
        tokens = read_count(answer)
        if tokens is not None:
            with self._lock:
                self._kept[_identity(ask)] = tokens
                while len(self._kept) > self._most:
                    self._kept.popitem(last=False)
        return tokens


def _identity(ask: HttpRequest) -> bytes:
    """Return the key of a request, or b"" for one that cannot be written as JSON."""
    try:
        text = json.dumps([ask.url, ask.api_key, ask.body], default=str)
    except (TypeError, ValueError, RecursionError):
        return b""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
