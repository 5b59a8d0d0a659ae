"""A summariser over HTTP: any OpenAI- or Anthropic-compatible server writes the summaries.

It carries requests that `core.summary` made to a server and brings the answers back; what is asked
and whether an answer is any good is decided there. It holds no conversation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypedDict, Unpack

from ullage.core.dialects import registry as dialects
from ullage.core.errors import ConfigurationError, ContextTooLargeError, ProviderError
from ullage.core.summary.request import Answer
from ullage.core.tokens.usage import Usage
from ullage.core.values.pickling import Unpicklable
from ullage.providers import addresses
from ullage.runtime import Runtime, default
from ullage.transport import Ask, Timeouts, Transport, redacted, shown
from ullage.windows import Question

if TYPE_CHECKING:
    from ullage import transport
    from ullage.core.summary.request import SummaryRequest
    from ullage.core.tokens.window import Window

TIMEOUT_S: Final = 120.0
"""A local model on two cores took 95 s for one summary of 1,400 tokens (Qwen2.5-Coder 0.5B)."""

CUT: Final = frozenset({"length", "max_tokens", "model_context_window_exceeded"})
"""Reasons to stop that mean an unfinished answer: OpenAI's, Anthropic's."""

SHOWN: Final = 300
"""Characters of a server's error that are quoted."""


class Limits(TypedDict, total=False):
    """What bounds a summarizer's requests, and where it finds its window; all may be left out.

    `max_tokens` of an answer, `timeout_s` for a byte of it, `parallel` requests at once.
    """

    max_tokens: int | None
    timeout_s: float
    parallel: int
    runtime: Runtime | None


class Summarizer(Unpicklable):
    """Ask one model for summaries; give it as `summarizer=` to a guard.

    ::

        small = ullage.Summarizer("qwen3-4b", base_url="http://127.0.0.1:8080/v1")
        guard = ullage.Guard("qwen3-32b", base_url=..., summarizer=small)

    Called with a SummaryRequest it returns an `Answer`; `acall` is its async twin. The model gets
    no tools and temperature 0. `dialect` is openai_chat (`/chat/completions`) or anthropic
    (`/messages`); `window` is the operator's word in tokens, else the server is asked; `max_tokens`
    is the most that an answer may take; `parallel` says how many requests an async driver may have
    under way at once. Raises ConfigurationError for a missing model or base URL.
    """

    instead = "make one in the other process from the same arguments"

    def __init__(
        self,
        model: str,
        *,
        base_url: str,
        dialect: str = "openai_chat",
        api_key: str | None = None,
        window: int | None = None,
        **limits: Unpack[Limits],
    ) -> None:
        unknown = limits.keys() - Limits.__optional_keys__
        if unknown:
            known = ", ".join(sorted(Limits.__optional_keys__))
            raise TypeError(f"no option {min(unknown)!r}: there are {known}")
        max_tokens, parallel = limits.get("max_tokens"), limits.get("parallel", 4)
        timeout_s, runtime = limits.get("timeout_s", TIMEOUT_S), limits.get("runtime")
        if not model:
            raise ConfigurationError(
                "a summarizer needs a model: the id by which its server knows it"
            )
        if not base_url:
            raise ConfigurationError(
                f"the summarizer {model} needs a base_url, such as http://127.0.0.1:8080/v1"
            )
        self.dialect = dialects.named(dialect)
        if self.dialect in ("openai_responses", "ollama_chat"):
            raise ConfigurationError(
                f"a summarizer speaks openai_chat or anthropic, not {self.dialect}: take "
                "openai_chat, which servers of that dialect speak too"
            )
        _positive("max_tokens", max_tokens)
        _positive("timeout_s", timeout_s)
        _positive("parallel", parallel)
        self.model = model
        self.parallel = parallel
        self._max_tokens = max_tokens
        self._question = Question(model, base_url, api_key, window)
        self._url = addresses.chat(base_url, self.dialect)
        self._runtime = runtime if runtime is not None else default()
        self._transport = Transport(Timeouts(read_s=timeout_s))
        self._found: Window | None = None

    def __repr__(self) -> str:
        return f"Summarizer({self.model!r}, base_url={shown(self._question.base_url or '')!r})"

    @property
    def secrets(self) -> tuple[str, ...]:
        """What no message may quote."""
        return Ask(self._url, api_key=self._question.api_key).secrets()

    @property
    def window(self) -> int | None:
        """What a request and its answer may take together, in tokens; None where nobody knows.

        The server is asked once; the first use blocks (`awindow` does not).
        """
        if self._found is None:
            self._found = self._runtime.windows.window(self._question)
        return _total(self._found)

    async def awindow(self) -> int | None:
        """Do as `window`, without blocking the event loop."""
        if self._found is None:
            self._found = await self._runtime.windows.awindow(self._question)
        return _total(self._found)

    def __call__(self, request: SummaryRequest) -> Answer:
        """Return the model's answer.

        Raises ContextTooLargeError for a request over the window, before it is sent, and
        ProviderError where the server cannot be reached, refuses, or answers nonsense.
        """
        ask = self._ask(request, self.window)
        return self._answer(self._transport.ask(ask))

    async def acall(self, request: SummaryRequest) -> Answer:
        """Do as a call, without blocking the event loop."""
        ask = self._ask(request, await self.awindow())
        return self._answer(await self._transport.aask(ask))

    def _ask(self, request: SummaryRequest, window: int | None) -> Ask:
        said = {"role": "user", "content": request.prompt}
        most = self._most(request, window)
        body: dict[str, Any] = {"model": self.model, "temperature": 0, "max_tokens": most}
        if self.dialect == "anthropic":
            body |= {"system": request.system, "messages": [said]}
            version = (("anthropic-version", addresses.VERSION),)
            return Ask(self._url, body, self._question.api_key, "x-api-key", version)
        body["messages"] = [{"role": "system", "content": request.system}, said]
        return Ask(self._url, body, self._question.api_key)

    def _most(self, request: SummaryRequest, window: int | None) -> int:
        """Return what the answer may take: asked for, allowed, and left by the prompt."""
        most = min(request.max_tokens, self._max_tokens or request.max_tokens)
        output = self._found.output_tokens if self._found is not None else None
        most = min(most, output or most)
        if window is None:
            return most
        meter = self._runtime.meter(self._question, self.dialect)
        tokens = sum(meter.counter.count(text) for text in (request.system, request.prompt))
        if tokens >= window:
            raise ContextTooLargeError(
                f"a request for a summary takes {tokens:,} tokens, and the window of {self.model} "
                f"has {window:,}: give a smaller piece, or a summarizer with a larger window",
                tokens=tokens,
                bound=window,
            )
        return max(min(most, window - tokens), 1)

    def _answer(self, heard: transport.Answer) -> Answer:
        where = f"the summarizer {self.model} at {shown(self._url)}"
        if heard.fault:
            raise ProviderError(f"{where} cannot be asked: {heard.fault}")
        if heard.status != _OK:
            words = redacted(heard.body.decode("utf-8", "replace"), self.secrets)
            raise ProviderError(f"{where} answered {heard.status}: {words[:SHOWN]}")
        body = heard.json()
        found = _READERS[self.dialect](body) if isinstance(body, Mapping) else None
        if found is None:
            raise ProviderError(
                f"{where} answered without a message: is {self.dialect} the dialect of this server?"
            )
        text, stopped = found
        return Answer(text, Usage.from_report(body, dialect=self.dialect), stopped in CUT)


_OK: Final = 200


def _total(window: Window) -> int | None:
    return window.total_tokens or window.input_tokens


def _positive(name: str, value: float | None) -> None:
    if value is not None and not value > 0:
        raise ConfigurationError(f"{name} is {value}, it must be more than 0")


def _chat(body: Mapping[str, Any]) -> tuple[str, object] | None:
    choices = body.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, Mapping) else None
    if not isinstance(choice, Mapping) or not isinstance(message, Mapping):
        return None
    text = message.get("content")
    return text if isinstance(text, str) else "", choice.get("finish_reason")


def _anthropic(body: Mapping[str, Any]) -> tuple[str, object] | None:
    blocks = body.get("content")
    if not isinstance(blocks, list):
        return None
    texts = [b.get("text") for b in blocks if isinstance(b, Mapping) and b.get("type") == "text"]
    return "".join(t for t in texts if isinstance(t, str)), body.get("stop_reason")


_READERS: Final[Mapping[str, Callable[[Mapping[str, Any]], tuple[str, object] | None]]] = {
    "openai_chat": _chat,
    "anthropic": _anthropic,
}
