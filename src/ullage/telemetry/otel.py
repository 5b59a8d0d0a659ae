"""Guarded requests as OpenTelemetry spans, named by the GenAI conventions (1.3b0).

::

    spans = otel.enable(runtime)                           # guards' events become spans
    with spans.request("qwen3-8b", stream=True) as span:   # a span around the guarded calls inside
        span.note(status=200)

Without an SDK nothing is recorded. A span never holds a message, a prompt, an answer or the text of
an error. The package of the extra `otel` is loaded on first use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from ullage.core.errors.extras import explain_missing
from ullage.core.guard.events import (
    Answered,
    CacheBust,
    Compacted,
    CompactionFault,
    ContextPressure,
    Event,
    RecoveryExhausted,
    Refused,
    TruncationDetected,
)
from ullage.telemetry.protocol import Host, add_listener, find_listener

if TYPE_CHECKING:
    from opentelemetry.trace import Span, TracerProvider

SCOPE: Final = "ullage"
OPERATION: Final = "chat"
OVERFLOW: Final = "context_overflow"
"""The error type of a request that is too large for its window."""

RECOVERIES: Final = frozenset({"overflow_recovery", "transport_recovery"})
"""Triggers of compactions that belong to the request that was sent before them."""


NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "operation": "gen_ai.operation.name",
        "provider": "gen_ai.provider.name",
        "model": "gen_ai.request.model",
        "response_model": "gen_ai.response.model",
        "max_tokens": "gen_ai.request.max_tokens",
        "stream": "gen_ai.request.stream",
        "conversation": "gen_ai.conversation.id",
        "compacted": "gen_ai.conversation.compacted",
        "input": "gen_ai.usage.input_tokens",  # cached tokens included
        "output": "gen_ai.usage.output_tokens",  # reasoning included
        "cache_read": "gen_ai.usage.cache_read.input_tokens",
        "cache_write": "gen_ai.usage.cache_write.input_tokens",
        "reasoning": "gen_ai.usage.reasoning.output_tokens",
        "used": "ullage.context.used",
        "window": "ullage.context.window",
        "window_source": "ullage.context.window_source",
        "ratio": "ullage.context.used_ratio",
        "pressure": "ullage.context.pressure",
        "reclaimed": "ullage.context.reclaimed",
        "overflowed": "ullage.context.overflowed",
        "truncated": "ullage.context.truncated",
        "asked_again": "ullage.context.asked_again",
        "cache_bust": "ullage.context.cache_bust",
        "status": "http.response.status_code",
        "error": "error.type",
    }
)
"""All facts that a span may hold, and their attribute names."""

COMPATIBLE: Final[Mapping[str, str]] = MappingProxyType(
    {
        "cache_write": "gen_ai.usage.cache_creation.input_tokens",
        "window": "gen_ai.context.window_size",
        "ratio": "gen_ai.context.utilization",
    }
)
"""Additional names that some back ends read (earlier conventions; Sentry), only on request."""

Fact = str | int | float | bool | None


@dataclass(slots=True)
class Open:
    """An open span. `note` adds facts by the names of the table, and skips None."""

    span: Span
    names: tuple[Mapping[str, str], ...] = (NAMES,)
    ends: bool = False
    """True if it ends with its answer; otherwise its creator ends it."""
    ready: bool = False
    """True if its request was ready to be sent: a later preparation belongs to the next request."""

    def note(self, **facts: Fact) -> None:
        """Add facts; raises KeyError for a name that is not in the table."""
        for fact, value in facts.items():
            if value is not None:
                self.span.set_attribute(NAMES[fact], value)
                for names in self.names[1:]:
                    if fact in names:
                        self.span.set_attribute(names[fact], value)

    def mark_failed(self, kind: str) -> None:
        """Mark the span as an error of a kind, such as a code or the name of an exception."""
        from opentelemetry.trace import Status, StatusCode

        self.note(error=kind)
        self.span.set_status(Status(StatusCode.ERROR))


_UNDER_WAY: Final[ContextVar[Open | None]] = ContextVar("ullage_span", default=None)


class Spans:
    """Makes a span of each guarded request. Safe to share between threads and event loops.

    `provider` is OpenTelemetry's tracer provider, by default the global one. With `compatible` the
    facts of `COMPATIBLE` are recorded under both names. Outside `request` a span runs from the
    first event of a request to its answer, in the thread or task that reports both. A request whose
    end is reported elsewhere has no span end.
    """

    def __init__(self, provider: TracerProvider | None = None, *, compatible: bool = False) -> None:
        try:
            from opentelemetry import trace
        except ModuleNotFoundError as error:
            raise explain_missing("a trace", error.name) from error
        self._tracer = trace.get_tracer(SCOPE, tracer_provider=provider)
        self._names = (NAMES, COMPATIBLE) if compatible else (NAMES,)

    @contextmanager
    def request(self, model: str | None, **facts: Fact) -> Iterator[Open]:
        """Lend the span of one request; it records the events of guards inside.

        `facts` are more facts of the table. An exception marks the span with its class and is
        raised again.
        """
        from opentelemetry.trace import use_span

        made = self._begin_span(model)
        made.note(**facts)
        before = _UNDER_WAY.set(made)
        try:
            with use_span(
                made.span, end_on_exit=True, record_exception=False, set_status_on_exception=False
            ):
                try:
                    yield made
                except BaseException as error:
                    made.mark_failed(type(error).__name__)
                    raise
        finally:
            _UNDER_WAY.reset(before)

    def on_event(self, event: Event) -> None:
        """Record one event, as a guard passes it to its `on_event`."""
        self.record_event(event, None)

    def record_event(self, event: Event, model: str | None) -> None:
        """Record one event of a guard of `model` on the span that is open here."""
        note = NOTED.get(type(event))
        if note is None:
            return
        made = _UNDER_WAY.get()
        if made is None or (made.ends and made.ready and _begins(event)):
            if not _begins(event):
                return
            made = self._begin_span(model, ends=True)
            _UNDER_WAY.set(made)
        note(made, event)
        if made.ends and _ends(event):
            made.span.end()
            _UNDER_WAY.set(None)

    def _begin_span(self, model: str | None, *, ends: bool = False) -> Open:
        from opentelemetry.trace import SpanKind

        name = f"{OPERATION} {model}" if model else OPERATION
        made = Open(self._tracer.start_span(name, kind=SpanKind.CLIENT), self._names, ends)
        made.note(operation=OPERATION, model=model)
        return made


def enable(
    host: Host, provider: TracerProvider | None = None, *, compatible: bool = False
) -> Spans:
    """Make spans for all guards of a runtime from now on; a second call returns the same.

    Raises ConfigurationError if the extra `otel` is missing. Existing listeners keep listening.
    """
    spans = find_listener(host, Spans)
    if spans is None:
        spans = Spans(provider, compatible=compatible)
        add_listener(host, spans)
    return spans


def around(host: Host, model: str | None, **facts: Fact) -> AbstractContextManager[Open | None]:
    """Lend the span of one request if a runtime has spans enabled, else None."""
    spans = find_listener(host, Spans)
    return _NO_SPAN if spans is None else spans.request(model, **facts)


_NO_SPAN: Final = nullcontext(None)


# --- the table ------------------------------------------------------------------------------------


def _begins(event: Event) -> bool:
    """Tell whether an event may be the first of a guarded request."""
    if isinstance(event, Compacted):
        return event.checkpoint.trigger not in RECOVERIES
    if isinstance(event, ContextPressure):
        return event.phase == "prepared"
    return isinstance(event, Refused) and event.phase == "predicted"


def _ends(event: Event) -> bool:
    """Tell whether an event is the last of its request."""
    predicted = isinstance(event, Refused) and event.phase == "predicted"
    return predicted or isinstance(event, Answered | RecoveryExhausted)


def _pressure(made: Open, event: ContextPressure) -> None:
    seen = event.assessment
    made.note(
        used=seen.input_tokens, window=seen.window_tokens, ratio=seen.ratio, pressure=event.tier
    )
    made.ready = True


def _note_compaction(made: Open, event: Compacted) -> None:
    made.ready = False
    before, after = event.checkpoint.tokens_before, event.checkpoint.tokens_after
    made.note(compacted=True, reclaimed=max(before - after, 0))


def _note_refusal(made: Open, event: Refused) -> None:
    made.note(overflowed=event.phase)
    if event.phase == "predicted":
        made.mark_failed(OVERFLOW)
    made.ready = False


def _note_truncation(made: Open, event: TruncationDetected) -> None:
    del event
    made.note(truncated=True)


def _note_fault(made: Open, event: CompactionFault) -> None:
    del event
    made.note(asked_again=True)


def _note_bust(made: Open, event: CacheBust) -> None:
    made.note(cache_bust=event.kind)


def _note_answer(made: Open, event: Answered) -> None:
    used = event.usage
    made.note(
        input=used.prompt_tokens,
        output=used.output + used.reasoning,
        cache_read=used.cache_read,
        cache_write=used.cache_write,
        reasoning=used.reasoning,
    )


def _note_exhaustion(made: Open, event: RecoveryExhausted) -> None:
    del event
    made.mark_failed(OVERFLOW)


NOTED: Final[Mapping[type, Callable[[Open, Any], None]]] = MappingProxyType(
    {
        ContextPressure: _pressure,
        Compacted: _note_compaction,
        Refused: _note_refusal,
        TruncationDetected: _note_truncation,
        CompactionFault: _note_fault,
        CacheBust: _note_bust,
        Answered: _note_answer,
        RecoveryExhausted: _note_exhaustion,
    }
)
"""The function that adds each event to a span; other events add nothing."""
