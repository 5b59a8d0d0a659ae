"""Who writes the summaries: any callable, or `Summarizer`, which asks a server over HTTP.

Both carry requests that `core.summary` made and bring the answers back, blocking or awaiting; what
is asked and whether an answer is any good is decided there. No conversation is held here.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypedDict, Unpack, cast

from ullage.core.dialects import registry as dialects
from ullage.core.errors import ConfigurationError, ContextTooLargeError, ProviderError
from ullage.core.summary.question import Answer
from ullage.core.values.pickling import Unpicklable
from ullage.runtime import Runtime, default
from ullage.transport import HttpRequest, Timeouts, Transport, mask_url, redact
from ullage.windows import Question

if TYPE_CHECKING:
    from ullage import transport
    from ullage.core.summary.question import SummaryRequest
    from ullage.core.tokens.window import Window

Summarize = Callable[["SummaryRequest"], "str | Answer | Awaitable[str | Answer]"]
"""What a guard takes as its summarizer: a function or coroutine function, or a `Summarizer`."""

TIMEOUT_S: Final = 120.0
"""A local model on two cores took 95 s for one summary of 1,400 tokens (Qwen2.5-Coder 0.5B)."""

SHOWN: Final = 300
"""Characters of a server's error that are quoted."""


class SummarizerLimits(TypedDict, total=False):
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
        dialect: str = dialects.DEFAULT,
        api_key: str | None = None,
        window: int | None = None,
        **limits: Unpack[SummarizerLimits],
    ) -> None:
        unknown = limits.keys() - SummarizerLimits.__optional_keys__
        if unknown:
            known = ", ".join(sorted(SummarizerLimits.__optional_keys__))
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
        self.dialect = dialects.parse_name(dialect)
        _positive("max_tokens", max_tokens)
        _positive("timeout_s", timeout_s)
        _positive("parallel", parallel)
        self.model = model
        self.parallel = parallel
        self._max_tokens = max_tokens
        self._question = Question(model, base_url, api_key, window)
        self._spoken = dialects.find(self.dialect)
        self._url = self._spoken.endpoint.address(base_url, model)
        self._runtime = runtime if runtime is not None else default()
        self._transport = Transport(Timeouts(read_s=timeout_s))
        self._found: Window | None = None

    def __repr__(self) -> str:
        return f"Summarizer({self.model!r}, base_url={mask_url(self._question.base_url or '')!r})"

    @property
    def secrets(self) -> tuple[str, ...]:
        """What no message may quote."""
        return HttpRequest(self._url, api_key=self._question.api_key).secrets()

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

    def _ask(self, request: SummaryRequest, window: int | None) -> HttpRequest:
        spoken, form = self._spoken, self._spoken.make_form()
        place, endpoint = spoken.fields, spoken.endpoint
        messages = [form.user(request.prompt)]
        most = {place.limit: self._most(request, window)}
        body: dict[str, Any] = {"model": self.model, "temperature": 0}
        if place.streams_unasked:
            body["stream"] = False
        body |= most if place.inside is None else {place.inside: most}
        if place.system is None:
            messages.insert(0, {"role": "system", "content": request.system})
        else:
            body[place.system] = request.system
        body[place.messages] = messages
        body = {name: value for name, value in body.items() if name not in place.leaves_out}
        return HttpRequest(self._url, body, self._question.api_key, endpoint.auth, endpoint.headers)

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

    def _answer(self, heard: transport.HttpResponse) -> Answer:
        where = f"the summarizer {self.model} at {mask_url(self._url)}"
        if heard.fault:
            raise ProviderError(f"{where} cannot be asked: {heard.fault}")
        if heard.status != _OK:
            words = redact(heard.body.decode("utf-8", "replace"), self.secrets)
            raise ProviderError(f"{where} answered {heard.status}: {words[:SHOWN]}")
        body = heard.json()
        reader = dialects.make_reader(self.dialect)
        if isinstance(body, Mapping):
            reader.take(body)
        if not reader.begun and not reader.ended:
            raise ProviderError(
                f"{where} answered without a message: is {self.dialect} the dialect of this server?"
            )
        reply = reader.reply()
        return Answer(reply.text, reply.usage, reply.stop == "length")


_OK: Final = 200


def _total(window: Window) -> int | None:
    return window.total_tokens or window.input_tokens


def _positive(name: str, value: float | None) -> None:
    if value is not None and not value > 0:
        raise ConfigurationError(f"{name} is {value}, it must be more than 0")


# --- asking any summarizer ---------------------------------------------------------------------

PARALLEL: Final = 4
"""Requests under way at once, where the summarizer does not say (`parallel`)."""


def window_of(summarizer: Summarize | None) -> int | None:
    """Return the tokens that a request to the summarizer may take, None where it does not say."""
    found = getattr(summarizer, "window", None)
    return found if isinstance(found, int) else None


async def awindow_of(summarizer: Summarize | None) -> int | None:
    """Do as `window_of`, without blocking the event loop."""
    ask = getattr(summarizer, "awindow", None)
    return cast("int | None", await ask()) if ask is not None else window_of(summarizer)


def answers(summarizer: Summarize, requests: Sequence[SummaryRequest]) -> list[Answer | Exception]:
    """Return the answer to each request, or what it failed with, one after the other.

    Raises ConfigurationError for an async summarizer, which only the async twins can await.
    """
    return [_ask_one(summarizer, request) for request in requests]


def _ask_one(summarizer: Summarize, request: SummaryRequest) -> Answer | Exception:
    try:
        answer = summarizer(request)
    except Exception as error:  # noqa: BLE001 - returned: the caller records it
        return error
    if inspect.isawaitable(answer):
        if inspect.iscoroutine(answer):
            answer.close()
        raise ConfigurationError(
            "the summarizer is async: use the async twin (aprepare, acall, acompact), or give a "
            "plain function"
        )
    return _read_answer(answer)


async def aanswers(
    summarizer: Summarize, requests: Sequence[SummaryRequest]
) -> list[Answer | Exception]:
    """Do as `answers`, several at a time, with a summarizer that may be async."""
    import asyncio

    turn = asyncio.Semaphore(getattr(summarizer, "parallel", PARALLEL))
    ask: Callable[[SummaryRequest], Any] = getattr(summarizer, "acall", summarizer)

    async def one(request: SummaryRequest) -> Answer | Exception:
        async with turn:
            try:
                answer = ask(request)
                return _read_answer(await answer if inspect.isawaitable(answer) else answer)
            except Exception as error:  # noqa: BLE001 - returned: the caller records it
                return error

    return list(await asyncio.gather(*map(one, requests)))


def _read_answer(answer: object) -> Answer | Exception:
    if isinstance(answer, Answer):
        return answer
    if isinstance(answer, str):
        return Answer(answer)
    return TypeError(f"a summarizer returns text or an Answer, not {type(answer).__name__}")
