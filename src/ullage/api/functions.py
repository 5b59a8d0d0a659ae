"""The plain functions: count, window, assess, validate, repair, cost and others.

Each combines the rooms below with a `Runtime`, by default that of the process. Re-exported as
`ullage.*`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from ullage.core.compaction import laws, mending
from ullage.core.dialects.usage import Usage
from ullage.core.errors import (
    ConfigurationError,
    ContextTooLargeError,
    MalformedHistoryError,
)
from ullage.core.messages.foreign import name_kind
from ullage.core.tokens.cost import Cost
from ullage.core.tokens.cost import cost as costing
from ullage.core.tokens.counting import Count
from ullage.core.tokens.gauge import Assessment
from ullage.core.tokens.gauge import assess as assessing
from ullage.core.tokens.truncation import ReportRange, Truncation, detect
from ullage.core.tokens.window import Window
from ullage.runtime import Measurable, RequestOptions, Runtime, default, parse_options
from ullage.windows import Question, ask_marked, read_window

if TYPE_CHECKING:
    from ullage.core.compaction.mending import Mended
    from ullage.core.messages.transcript import Transcript
    from ullage.core.tokens.counting import Measure


def window(  # noqa: PLR0913 - the public signature is fixed by the API page
    model: str | None = None,
    *,
    base_url: str | None = None,
    provider: str | None = None,
    api_key: str | None = None,
    override: int | None = None,
    refresh: bool = False,
    runtime: Runtime | None = None,
) -> Window:
    """Return the window of a model as it is served: see `Window`.

    An unknown window is a Window with `known=False`; network trouble never raises an exception.
    `provider` selects a provider's listing and table rows if no `base_url` identifies it. `refresh`
    discards everything probed and learned about this model at this server. A model name that ends
    in `[1m]` means a window of 1,000,000 tokens. Raises ConfigurationError for an invalid override
    or base_url.
    """
    chosen = runtime or default()
    question = ask_marked(Question(model, base_url, api_key, override, provider))
    if refresh:
        chosen.forget(question)
    return chosen.windows.window(question)


async def awindow(  # noqa: PLR0913 - the same signature
    model: str | None = None,
    *,
    base_url: str | None = None,
    provider: str | None = None,
    api_key: str | None = None,
    override: int | None = None,
    refresh: bool = False,
    runtime: Runtime | None = None,
) -> Window:
    """Do as `window`, without blocking the event loop."""
    chosen = runtime or default()
    question = ask_marked(Question(model, base_url, api_key, override, provider))
    if refresh:
        chosen.forget(question)
    return await chosen.windows.awindow(question)


def window_tokens(model: str | None = None, **options: Any) -> int:
    """Return the input bound in tokens; raises ContextWindowUnknown. Options as in `window`."""
    return window(model, **options).tokens()


def models(
    *,
    provider: str | None = None,
    base_url: str | None = None,
    api_key: str | None = None,
    runtime: Runtime | None = None,
) -> list[tuple[str, Window]]:
    """Return (id, Window) of every model in a provider's listing or in the bundled table.

    With a `base_url`, or a `provider` that publishes a listing, the server is asked for its list.
    If the provider publishes no listing, or if neither is given, the bundled table is used. Windows
    that a server's list does not name are unknown. Sorted by id.
    """
    windows = (runtime or default()).windows
    return windows.models(Question(None, base_url, api_key, None, provider))


async def amodels(
    *,
    provider: str | None = None,
    base_url: str | None = None,
    api_key: str | None = None,
    runtime: Runtime | None = None,
) -> list[tuple[str, Window]]:
    """Do as `models`, without blocking the event loop."""
    windows = (runtime or default()).windows
    return await windows.amodels(Question(None, base_url, api_key, None, provider))


def count(messages: Sequence[Any] | str, **request: Unpack[RequestOptions]) -> Count:
    """Count a request in tokens: a best value, the band around it, and the basis of both.

    `messages` are OpenAI Chat, OpenAI Responses (`input`) or Anthropic messages. Other options:
    `model`, `tools`, `system`, `dialect`, `base_url`, `provider`, `api_key`, `runtime`. For plain
    text use `count_text`. If the server at `base_url` can count (llama.cpp, vLLM, Anthropic,
    Gemini), the server's count is used. Raises MalformedHistoryError if `messages` is not a list of
    messages.
    """
    shared, question, body = parse_options(messages, request)
    transcript = shared.read(body)
    measured = shared.measure(question, transcript, body)
    if shared.windows.is_probed(question):
        shared.windows.window(question)
    reported = shared.server_count(question, transcript.rules.dialect, body)
    return (measured if reported is None else measured.with_server_count(reported)).count()


async def acount(messages: Sequence[Any] | str, **request: Unpack[RequestOptions]) -> Count:
    """Do as `count`, without blocking the event loop: long message lists are read in a thread."""
    from ullage.guard.planning import run_beside

    shared, question, body = parse_options(messages, request)

    def measure() -> tuple[Transcript, Measure]:
        transcript = shared.read(body)
        return transcript, shared.measure(question, transcript, body)

    transcript, measured = await run_beside(messages, measure)
    if shared.windows.is_probed(question):
        await shared.windows.awindow(question)
    reported = await shared.aserver_count(question, transcript.rules.dialect, body)
    return (measured if reported is None else measured.with_server_count(reported)).count()


def count_text(
    text: str, *, model: str | None = None, runtime: Runtime | None = None
) -> int | Count:
    """Count plain text; return an int if the model's vocabulary is available, otherwise a Count.

    Raises ConfigurationError for anything but text.
    """
    if not isinstance(text, str):
        raise ConfigurationError(
            f"count_text takes a text, not {name_kind(text)}: ullage.count(messages) counts "
            "messages, and bytes become a text by decode()"
        )
    meter = (runtime or default()).text_meter(model)
    tokens = meter.counter.count(text)
    if meter.basis == "exact":
        return tokens
    scale = meter.scale
    low, best, high = (round(tokens * f) for f in (scale.low, scale.best, scale.high))
    return Count(best, low, high, meter.basis)


def assess(
    used: Usage | Count | int | Any, window: Window | int | str | None, **options: Any
) -> Assessment:
    """Assess tokens against a window (a Window, tokens, or a model id of the bundled table).

    `used` is a Usage, a Count, tokens, a recorded usage report, or None. Missing facts never raise
    an exception: see `Assessment.reason`. Option: `thresholds`.
    """
    if isinstance(window, str):
        window = default().windows.window(Question(window))
    return assessing(used, window, **options)


def validate(
    messages: Sequence[Any] | str,
    *,
    window: Window | int | None = None,
    max_tokens: int | None = None,
    **request: Unpack[RequestOptions],
) -> None:
    """Check a request strictly: its protocol, and its size against a window.

    Raises MalformedHistoryError for the first protocol fault. Raises ContextTooLargeError if the
    upper edge of the prompt count reaches the input bound, or if prompt plus `max_tokens` exceeds
    the total. If the window is unknown, only the protocol is checked. Raises ConfigurationError for
    a window or max_tokens that is not a positive number.
    """
    shared, question, body = parse_options(messages, request)
    transcript = shared.read(body)
    broken = laws.protocol(transcript)
    if broken:
        first = broken[0]
        raise MalformedHistoryError(
            f"messages[{first.message}]: {first.detail}. ullage.repair(messages) mends it by rule",
            index=first.message,
        )
    if max_tokens is not None and (type(max_tokens) is not int or max_tokens < 1):
        raise ConfigurationError(
            f"max_tokens must be a positive number of tokens, not {max_tokens!r}"
        )
    known = read_window(window)
    if known is None and question.model is not None:
        known = shared.windows.window(question)
    if known is None or known.input_tokens is None:
        return
    _fits(shared.measure(question, transcript, body).count(), known, max_tokens)


def _fits(size: Count, known: Window, max_tokens: int | None) -> None:
    bound = known.tokens()
    total = known.total_tokens or bound
    share = f"{size.high * 100 // bound} % of {bound:,} tokens ({known.name_source()})"
    if size.high >= bound:
        raise ContextTooLargeError(
            f"the prompt takes {size.high:,} tokens, {share}: compact before sending",
            tokens=size.high,
            bound=bound,
        )
    if max_tokens is not None and size.high + max_tokens > total:
        left = total - size.high
        raise ContextTooLargeError(
            f"the prompt takes {size.high:,} tokens, {share}; {max_tokens:,} for the output do "
            f"not fit, {left:,} are available: lower max_tokens or compact before sending",
            tokens=size.high + max_tokens,
            bound=total,
        )


def repair(messages: Sequence[Any] | str, dialect: str | None = None) -> Mended:
    """Return messages that keep the protocol, and the repairs: see `core.compaction.mending`.

    `dialect` is the dialect's name; by default it is detected from the messages.
    """
    body = Measurable(messages, dialect=dialect).normalise()
    codec = default().codec_for(body.find_dialect())
    return mending.repair(codec.read(body.messages), codec)


def cost(
    used: Usage | Count | int,
    model: str,
    *,
    provider: str | None = None,
    base_url: str | None = None,
    runtime: Runtime | None = None,
) -> Cost:
    """Return the cost of a call in dollars, by bucket, at the prices of the bundled table.

    `used` is the usage of a call, or a count of a request for an estimate. A bucket without a known
    price is None, never 0. Raises ConfigurationError for an unknown provider or an invalid number.
    """
    windows = (runtime or default()).windows
    return costing(used, windows.prices(Question(model, base_url, None, None, provider)))


def detect_truncation(
    reported: Usage | int | Mapping[str, Any],
    counted: Count,
    window: Window | int | None = None,
    *,
    finish: str | None = None,
) -> Truncation | None:
    """Return the evidence that a server silently cut a prompt, or None.

    `reported` is the usage of the call (or its prompt tokens), `counted` our count of the request.
    `window` and `finish` (the finish reason of the answer) are further evidence. An unreadable
    report proves nothing. A server may lawfully drop old reasoning and tools; if it does, leave
    them out of `counted`.
    """
    usage = Usage(reported) if isinstance(reported, int) else Usage.from_report(reported)
    if isinstance(reported, Usage):
        usage = reported
    if usage is None:
        return None
    known = read_window(window)
    bound = known.input_tokens if known is not None else None
    exact, served = counted.basis == "exact", counted.basis == "server"
    expected = ReportRange.around(counted.low, counted.high, exact=exact or served, counted=served)
    return detect(usage, expected, bound, finish=finish)
