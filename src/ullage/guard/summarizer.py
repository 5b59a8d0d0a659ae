"""Summarizers: any callable, or `Summarizer`, which asks a server over HTTP.

They send the requests that `core.summary` made and return the answers, sync or async.
`core.summary` writes the questions and checks the answers. No conversation is held here.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypedDict, Unpack, cast

from ullage.core.dialects import registry as dialects
from ullage.core.errors import ConfigurationError, ContextTooLargeError, ProviderError
from ullage.core.messages.thoughts import drop_thoughts
from ullage.core.summary.question import Answer
from ullage.core.values.pickling import Unpicklable
from ullage.core.values.progress import ignore
from ullage.runtime import Runtime, default
from ullage.threads import Threads
from ullage.transport import HttpRequest, Timeouts, Transport, mask_url, redact
from ullage.windows import Question

if TYPE_CHECKING:
    from ullage import transport
    from ullage.core.dialects.dialect import Dialect
    from ullage.core.dialects.reply import Reply
    from ullage.core.summary.question import SummaryRequest
    from ullage.core.tokens.window import Window
    from ullage.core.values.progress import Progress

Summarize = Callable[["SummaryRequest"], "str | Answer | Awaitable[str | Answer]"]
"""The type of a guard's summarizer: a function, a coroutine function, or a `Summarizer`."""

TIMEOUT_S: Final = 600.0
"""Seconds. A local model on two cores took 95 s for one summary of 1,400 tokens (Qwen2.5-Coder
0.5B), and pieces are as large as its window. OpenAI's SDKs wait ten minutes too.
"""

THOUGHT: Final = 4_096
"""Extra tokens for the answer of a reasoning model: without them it ends within its reasoning, with
no answer text.
"""

SHOWN: Final = 300
"""Most characters of a server's error that are quoted."""


class SummarizerLimits(TypedDict, total=False):
    """The limits of a summarizer's requests, and its runtime; every key may be left out.

    `max_tokens` of an answer; `timeout_s` between two bytes of it; `parallel` requests at once.
    `options` are fields of the request's body, sent unchanged; by default the temperature is 0.
    """

    max_tokens: int | None
    options: Mapping[str, Any] | None
    timeout_s: float
    parallel: int
    runtime: Runtime | None


class Summarizer(Unpicklable):
    """Ask one model for summaries; give it as `summarizer=` to a guard.

    ::

        small = ullage.Summarizer("qwen3-4b", base_url="http://127.0.0.1:8080/v1")
        guard = ullage.Guard("qwen3-32b", base_url=..., summarizer=small)

    A call with a SummaryRequest returns an `Answer`; `acall` is the async version. The model gets
    no tools, and temperature 0 unless `options` are given. `dialect` is the protocol of its server.
    `window` overrides the window in tokens; by default the server is asked. `max_tokens` limits an
    answer. `parallel` limits the requests that an async driver sends at once. Raises
    ConfigurationError for a missing model or base URL.
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
        options = limits.get("options")
        self._options = SOBER if options is None else options
        self._thinks = False
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
        """The texts that no message may quote."""
        return HttpRequest(self._url, api_key=self._question.api_key).secrets()

    @property
    def window(self) -> int | None:
        """The tokens of a request and its answer together, or None if unknown.

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

        Raises ContextTooLargeError for a request over the window, before it is sent. Raises
        ProviderError if the server cannot be reached, refuses, or sends an invalid response.
        """
        ask = self._ask(request, self.window)
        return self._answer(self._transport.ask(ask))

    async def acall(self, request: SummaryRequest) -> Answer:
        """Do as a call, without blocking the event loop."""
        ask = self._ask(request, await self.awindow())
        return self._answer(await self._transport.aask(ask))

    def _ask(self, request: SummaryRequest, window: int | None) -> HttpRequest:
        spoken, endpoint = self._spoken, self._spoken.endpoint
        body: dict[str, Any] = {"model": self.model, **self._options}
        if spoken.fields.streams_unasked:
            body["stream"] = False
        made = make_fields(spoken, request, self._most(request, window))
        inside = spoken.fields.inside
        if inside is not None:
            made[inside] = {**(body.get(inside) or {}), **made[inside]}
        body |= made
        body = {name: v for name, v in body.items() if name not in spoken.fields.leaves_out}
        return HttpRequest(self._url, body, self._question.api_key, endpoint.auth, endpoint.headers)

    def _most(self, request: SummaryRequest, window: int | None) -> int:
        """Return the most tokens for the answer: as asked for, allowed, and left by the prompt."""
        most = min(request.max_tokens, self._max_tokens or request.max_tokens)
        most += THOUGHT if self._thinks else 0
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
        self._thinks = self._thinks or has_thoughts(reply)
        return Answer(reply.text, reply.usage, reply.stop == "length")


def make_fields(spoken: Dialect, request: SummaryRequest, most: int) -> dict[str, Any]:
    """Return the fields of a summary request whose answer has at most `most` tokens."""
    place = spoken.fields
    messages = [spoken.make_form().user(request.prompt)]
    made: dict[str, Any] = {}
    if place.system is None:
        messages.insert(0, {"role": "system", "content": request.system})
    elif place.system_parts is not None:
        made[place.system] = {place.system_parts: [{"text": request.system}]}
    else:
        made[place.system] = request.system
    limit = {place.limit: most}
    return {
        **made,
        place.messages: messages,
        **(limit if place.inside is None else {place.inside: limit}),
    }


def has_thoughts(reply: Reply) -> bool:
    """Tell whether a model reasoned before it answered: its next answer needs room for that."""
    reasoned = reply.usage is not None and reply.usage.reasoning > 0
    return reasoned or bool(reply.thoughts) or drop_thoughts(reply.text) != reply.text


SOBER: Final[Mapping[str, Any]] = MappingProxyType({"temperature": 0})
"""Options for a model that was chosen only for summaries."""

_OK: Final = 200


def _total(window: Window) -> int | None:
    return window.total_tokens or window.input_tokens


def _positive(name: str, value: float | None) -> None:
    if value is not None and not value > 0:
        raise ConfigurationError(f"{name} is {value}, it must be more than 0")


# --- asking any summarizer ---------------------------------------------------------------------

PARALLEL: Final = 4
"""Requests at once if the summarizer does not set `parallel`."""


def window_of(summarizer: object) -> int | None:
    """Return the tokens that a request to the summarizer may take, or None if unknown."""
    found = getattr(summarizer, "window", None)
    return found if isinstance(found, int) else None


async def awindow_of(summarizer: object) -> int | None:
    """Do as `window_of`, without blocking the event loop."""
    ask = getattr(summarizer, "awindow", None)
    return cast("int | None", await ask()) if ask is not None else window_of(summarizer)


def answers(
    summarizer: Summarize, requests: Sequence[SummaryRequest], report: Progress = ignore
) -> list[Answer | Exception]:
    """Return the answer to each request, or the exception in its place, one after the other.

    `report` gets the number of answers so far. Raises ConfigurationError for an async summarizer,
    which needs the async functions.
    """
    found: list[Answer | Exception] = []
    for request in requests:
        report(len(found), len(requests))
        answer = _ask_one(summarizer, request)
        _refuse_awaitable(answer)
        found.append(_read_answer(answer))
    report(len(found), len(requests))
    return found


def _ask_one(ask: Callable[[SummaryRequest], Any], request: SummaryRequest) -> Any:
    """Return a function's answer or its exception, because no future can carry StopIteration."""
    try:
        return ask(request)
    except Exception as error:  # noqa: BLE001 - returned: the caller records it
        return error


def _refuse_awaitable(answer: object) -> None:
    """Raise ConfigurationError for an awaitable."""
    if inspect.isawaitable(answer):
        if inspect.iscoroutine(answer):
            answer.close()
        raise ConfigurationError(
            "the summarizer is async: use the async twin (aprepare, acall, acompact), or give a "
            "plain function"
        )


THREADS: Final = Threads("ullage-summaries", 8)
"""Threads for plain functions in async code: each call blocks until its model answers."""


async def aanswers(
    summarizer: Summarize, requests: Sequence[SummaryRequest], report: Progress = ignore
) -> list[Answer | Exception]:
    """Do as `answers`, several at a time, with a summarizer that may be async.

    A plain function is called in a thread, one request after the other. Cancelling the wait also
    cancels the requests of an async summarizer.
    """
    import asyncio

    ask: Callable[[SummaryRequest], Any] = getattr(summarizer, "acall", summarizer)
    awaits = inspect.iscoroutinefunction(ask) or inspect.iscoroutinefunction(
        getattr(ask, "__call__", None)  # noqa: B004 - an object whose call is async
    )
    turn = asyncio.Semaphore(getattr(summarizer, "parallel", PARALLEL if awaits else 1))
    done = 0
    report(done, len(requests))

    async def one(request: SummaryRequest) -> Answer | Exception:
        nonlocal done
        async with turn:
            try:
                answer = ask(request) if awaits else await THREADS.run(_ask_one, ask, request)
                return _read_answer(await answer if inspect.isawaitable(answer) else answer)
            except Exception as error:  # noqa: BLE001 - returned: the caller records it
                return error
            finally:
                done += 1
                report(done, len(requests))

    running = [asyncio.ensure_future(one(request)) for request in requests]
    try:
        return list(await asyncio.gather(*running))
    except BaseException:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        raise


def _read_answer(answer: object) -> Answer | Exception:
    if isinstance(answer, Answer | Exception):
        return answer
    if isinstance(answer, str):
        return Answer(answer)
    return TypeError(f"a summarizer returns text or an Answer, not {type(answer).__name__}")
