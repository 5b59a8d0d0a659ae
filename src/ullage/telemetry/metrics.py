"""Metrics of a guard's events: `ullage.metrics.Metrics(model).on_event` listens.

::

    metrics = ullage.metrics.Metrics("qwen3-8b")
    guard = ullage.Guard("qwen3-8b", on_event=metrics.on_event)
    print(metrics.render())  # Prometheus text; serve it as ullage.metrics.CONTENT_TYPE

Nothing here is loaded until it is used. It decides nothing and keeps no text of a conversation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from ullage.core.guard.events import (
    Answered,
    CacheBust,
    Compacted,
    CompactionFailed,
    CompactionFault,
    ContextPressure,
    Event,
    RecoveryExhausted,
    Refused,
    TruncationDetected,
)
from ullage.core.tokens.claim import Source
from ullage.core.values.pickling import Unpicklable
from ullage.telemetry import CONTENT_TYPE, Described, Registry
from ullage.telemetry.protocol import Host, add_listener, find_listener

if TYPE_CHECKING:
    from ullage.core.dialects.usage import Usage
    from ullage.core.tokens.cost import Cost
    from ullage.core.tokens.gauge import Tier
    from ullage.core.tokens.window import Window

TOKENS: Final = tuple(2.0**power for power in range(10, 22))
"""Upper bucket limits for sizes, in tokens: 1,024 to 2,097,152, doubling."""

USED: Final = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0, 1.1)
"""Upper bucket limits for the used share of a window; they include the tiers of
`core.tokens.gauge`."""

SHARES: Final = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
"""Upper bucket limits for the share that a compaction left."""

ANSWERS: Final = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0)
"""Upper bucket limits for the number of answers until the next compaction."""

SECONDS: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0)
"""Upper bucket limits for the guard's share of a request's time, in seconds."""

OVERFLOWS: Final = ("input", "total")
"""Refusals that show that a window is too small, unlike those about bytes, rates and output
caps."""


MOST_MODELS: Final = 1_000
"""Most models whose last reported window is remembered."""


# --- metrics of a guard's events ------------------------------------------------------------------

CONTEXT_SIZE_TOKENS: Final = Described(
    "ullage_context_size_tokens",
    "Size of a context in tokens, before and after it was compacted.",
    ("model", "phase"),
)
CONTEXT_USED_RATIO: Final = Described(
    "ullage_context_used_ratio",
    "Share of the context window that a request takes when it is sent.",
    ("model",),
)
COMPACTIONS_TOTAL: Final = Described(
    "ullage_compactions_total",
    "Compactions by what came of them: reached, missed, failed or exhausted.",
    ("strategy", "trigger", "outcome"),
)
COMPACTION_RATIO: Final = Described(
    "ullage_compaction_ratio",
    "Tokens after a compaction as a share of those before.",
    ("strategy",),
)
OVERFLOWS_TOTAL: Final = Described(
    "ullage_overflows_total",
    "Requests too large for their window, predicted here or said by the upstream.",
    ("model", "phase"),
)
SILENT_TRUNCATIONS_TOTAL: Final = Described(
    "ullage_silent_truncations_total",
    "Prompts that a server cut without a word.",
    ("model",),
)
COST_USD_TOTAL: Final = Described(
    "ullage_cost_usd_total",
    "Dollars of all tokens with a price.",
    ("model",),
)
UNPRICED_TOKENS_TOTAL: Final = Described(
    "ullage_unpriced_tokens_total",
    "Tokens whose price is unknown, which are in no cost.",
    ("model",),
)
CONTEXT_HEADROOM_TOKENS: Final = Described(
    "ullage_context_headroom_tokens",
    "Tokens of the window that a request leaves free when it is sent.",
    ("model",),
)
TOKENS_TOTAL: Final = Described(
    "ullage_tokens_total",
    "Tokens as reported, in kinds that do not overlap.",
    ("model", "kind"),
)
COMPACTION_FAULTS_TOTAL: Final = Described(
    "ullage_compaction_faults_total",
    "Texts asked for again after a compaction left them out.",
    ("kind",),
)
PRESSURE_TRANSITIONS_TOTAL: Final = Described(
    "ullage_pressure_transitions_total",
    "Conversations that came into a tier of pressure from another one.",
    ("model", "tier"),
)
REQUESTS_REFUSED_TOTAL: Final = Described(
    "ullage_requests_refused_total",
    "Requests that were told to come again, by the bound that they were over.",
    ("bound",),
)
REQUESTS_WAITING: Final = Described(
    "ullage_requests_waiting", "Requests that wait for their turn in a worker."
)
REQUEST_BYTES: Final = Described("ullage_request_bytes", "Bytes of requests under way.")
RESIDENT_BYTES: Final = Described(
    "ullage_resident_bytes", "Memory of the proxy and its workers (RSS), 0 where none can be read."
)
WORKERS_ENDED_TOTAL: Final = Described(
    "ullage_workers_ended_total", "Workers that were ended because their work took too long."
)
GUARD_FAULTS_TOTAL: Final = Described(
    "ullage_guard_faults_total", "Requests on which the guard itself failed."
)
UNGUARDED_REQUESTS_TOTAL: Final = Described(
    "ullage_unguarded_requests_total",
    "Requests for an answer that went out as they came, without the guard, by why.",
    ("model", "reason"),
)
STORE_AWAY_SECONDS: Final = Described(
    "ullage_store_away_seconds", "For how long the store has been away, 0 where it is there."
)
STORE_WAITING_CHANGES: Final = Described(
    "ullage_store_waiting_changes", "Changes that wait for the store to be back."
)
COMPACTION_ANSWERS: Final = Described(
    "ullage_compaction_answers",
    "Answers from a compaction of a conversation to its next one.",
    (),
)
CALLS_AFTER_COMPACTION_TOTAL: Final = Described(
    "ullage_calls_after_compaction_total",
    "Calls in the 20 answers after a compaction: made before, word for word, or new.",
    ("kind",),
)
CACHE_BUSTS_TOTAL: Final = Described(
    "ullage_cache_busts_total",
    "Caches of providers that were lost without a compaction.",
    ("model", "kind"),
)
CACHE_BUST_TOKENS_TOTAL: Final = Described(
    "ullage_cache_bust_tokens_total",
    "Tokens that were processed again because a cache was lost.",
    ("model", "kind"),
)
COMPACTION_RECLAIMED_TOKENS_TOTAL: Final = Described(
    "ullage_compaction_reclaimed_tokens_total",
    "Tokens that compactions left out.",
    ("strategy",),
)

Outcome = Literal["sent", "trimmed", "blocked", "error"]
Recovery = Literal["recovered", "gave_up", "no_progress"]
Side = Literal["client", "upstream"]


class Metrics(Unpicklable):
    """Counts the events of guards. Safe to share between threads.

    `model` is the label for events that name none. Give one `registry` to the metrics of several
    guards to have them on one page.
    """

    instead = "pickle what it shows, metrics.render()"

    def __init__(self, model: str | None = None, *, registry: Registry | None = None) -> None:
        self.model = model
        self.registry = registry if registry is not None else Registry()
        counter, histogram = self.registry.counter, self.registry.histogram
        self.context_size = histogram(CONTEXT_SIZE_TOKENS, TOKENS)
        self.context_used = histogram(CONTEXT_USED_RATIO, USED)
        self.compactions = counter(COMPACTIONS_TOTAL)
        self.compaction_ratio = histogram(COMPACTION_RATIO, SHARES)
        self.overflows = counter(OVERFLOWS_TOTAL)
        self.silent_truncations = counter(SILENT_TRUNCATIONS_TOTAL)
        self.cost = counter(COST_USD_TOTAL)
        self.unpriced_tokens = counter(UNPRICED_TOKENS_TOTAL)
        self.headroom = histogram(CONTEXT_HEADROOM_TOKENS, TOKENS)
        self.tokens = counter(TOKENS_TOTAL)
        self.reclaimed = counter(COMPACTION_RECLAIMED_TOKENS_TOTAL)
        self.faults = counter(COMPACTION_FAULTS_TOTAL)
        self.compaction_answers = histogram(COMPACTION_ANSWERS, ANSWERS)
        self.calls_after = counter(CALLS_AFTER_COMPACTION_TOTAL)
        self.cache_busts = counter(CACHE_BUSTS_TOTAL)
        self.cache_bust_tokens = counter(CACHE_BUST_TOKENS_TOTAL)

    def on_event(self, event: Event) -> None:
        """Count one event; ignore events that belong to no metric."""
        self.record_event(event, self.model)

    def record_event(self, event: Event, model: str | None) -> None:
        """Count one event of a guard of `model`."""
        count = COUNTED.get(type(event))
        if count is not None:
            count(self, event, model)

    def render(self) -> str:
        """Return all counts in the text format of Prometheus."""
        return self.registry.render()


class ProxyMeters:
    """Counts of a proxy other than the events of its guards. Safe to share between threads.

    The registry limits labels that a caller of the proxy could choose: a model after the first
    hundred is `other`.
    """

    def __init__(self, registry: Registry) -> None:
        counter, histogram = registry.counter, registry.histogram
        self._said: dict[str | None, tuple[Source | None, int | None]] = {}
        self.requests = counter(
            Described(
                "ullage_requests_total",
                "Requests by what became of them: sent, trimmed, blocked or error.",
                ("model", "outcome"),
            )
        )
        self.guard_overhead = histogram(
            Described(
                "ullage_guard_overhead_seconds",
                "Time that the guard added to a request, the upstream's excluded.",
            ),
            SECONDS,
        )
        self.compaction_duration = histogram(
            Described("ullage_compaction_duration_seconds", "Time that a compaction took."),
            SECONDS,
        )
        self.recoveries = counter(
            Described(
                "ullage_overflow_recoveries_total",
                "Overflows from upstream by what came of them: recovered, gave_up, no_progress.",
                ("outcome",),
            )
        )
        self.windows = registry.gauge(
            Described(
                "ullage_context_window_tokens",
                "The input bound of a model as it was last resolved, and its source.",
                ("model", "source"),
            )
        )
        self.transitions = counter(PRESSURE_TRANSITIONS_TOTAL)
        self.streams_aborted = counter(
            Described(
                "ullage_streams_aborted_total",
                "Streams that ended before their terminal event, by who ended them.",
                ("side",),
            )
        )
        self.tool_answers = counter(
            Described(
                "ullage_tool_answers_total",
                "Calls of added tools that the proxy answered: found, nothing or failed.",
                ("tool", "outcome"),
            )
        )
        self.store_away = registry.gauge(STORE_AWAY_SECONDS)
        self.store_waiting = registry.gauge(STORE_WAITING_CHANGES)
        self.guard_faults = counter(GUARD_FAULTS_TOTAL)
        self.unguarded = counter(UNGUARDED_REQUESTS_TOTAL)
        self.refused = counter(REQUESTS_REFUSED_TOTAL)
        self.requests_waiting = registry.gauge(REQUESTS_WAITING)
        self.request_bytes = registry.gauge(REQUEST_BYTES)
        self.resident_bytes = registry.gauge(RESIDENT_BYTES)
        self.workers_ended = counter(WORKERS_ENDED_TOTAL)

    def request(self, model: str | None, outcome: Outcome) -> None:
        """Count a request: sent unchanged, trimmed, blocked by an answer of our own, or error."""
        self.requests.add(model=model, outcome=outcome)

    def overhead(self, seconds: float) -> None:
        """Count the time that the guard needed for one request."""
        self.guard_overhead.observe(max(seconds, 0.0))

    def observe_compaction(self, seconds: float) -> None:
        """Count the time to prepare a request with a compaction."""
        self.compaction_duration.observe(max(seconds, 0.0))

    def tool_answer(self, tool: str, outcome: str) -> None:
        """Count a call of an added tool, by its outcome."""
        self.tool_answers.add(tool=tool, outcome=outcome)

    def refuse(self, bound: str) -> None:
        """Count a request whose client was told to retry later."""
        self.refused.add(bound=bound)

    def end_worker(self) -> None:
        """Count a worker whose work took too long."""
        self.workers_ended.add()

    def load(self, waiting: int, size: int, resident: int) -> None:
        """Set the number of waiting requests, the bytes of running ones, the memory in bytes."""
        self.requests_waiting.set(waiting)
        self.request_bytes.set(size)
        self.resident_bytes.set(resident)

    def store(self, away_s: float | None, waiting: int) -> None:
        """Set how long the store has been away, and how many changes wait for it."""
        self.store_away.set(away_s or 0.0)
        self.store_waiting.set(waiting)

    def recovery(self, outcome: Recovery) -> None:
        """Count an overflow reported by the upstream, by its outcome."""
        self.recoveries.add(outcome=outcome)

    def window(self, model: str | None, window: Window) -> None:
        """Set a model's bound under its only current source; an unknown bound is removed."""
        said = (window.source, window.input_tokens)
        if self._said.get(model) == said:
            return
        if len(self._said) >= MOST_MODELS:
            self._said.clear()
        self._said[model] = said
        for source in get_args(Source):
            if source != window.source:
                self.windows.remove(model=model, source=source)
        if window.input_tokens is not None:
            self.windows.set(window.input_tokens, model=model, source=window.source)

    def pressure(self, model: str | None, before: Tier, after: Tier) -> None:
        """Count a conversation's tier if it differs from the one at its last request."""
        if after != before:
            self.transitions.add(model=model, tier=after)

    def stream_aborted(self, side: Side) -> None:
        """Count a stream that the client left, or that the upstream did not finish."""
        self.streams_aborted.add(side=side)

    def fault(self) -> None:
        """Count a failure of the guard itself; its request was forwarded unchanged, or refused."""
        self.guard_faults.add()

    def leave_unguarded(self, model: str | None, reason: str) -> None:
        """Count a request that was sent unchanged because the guard did not handle it."""
        self.unguarded.add(model=model, reason=reason)


def enable(host: Host) -> Metrics:
    """Count the events of all guards of a runtime from now on; return the counter.

    A second call returns the same one. Existing listeners keep listening.
    """
    held = find_listener(host, Metrics)
    if held is None:
        held = Metrics()
        add_listener(host, held)
    return held


# --- the table ------------------------------------------------------------------------------------


def _pressure(metrics: Metrics, event: ContextPressure, model: str | None) -> None:
    """Count the share of the window when the request is sent; later reports are not counted."""
    seen = event.assessment
    if event.phase != "prepared" or seen.ratio is None:
        return
    metrics.context_used.observe(seen.ratio, model=model)
    if seen.window_tokens is not None and seen.input_tokens is not None:
        metrics.headroom.observe(max(seen.window_tokens - seen.input_tokens, 0), model=model)


def _count_compaction(metrics: Metrics, event: Compacted, model: str | None) -> None:
    made = event.checkpoint
    outcome = "reached" if event.reached else "missed"
    metrics.compactions.add(strategy=made.strategy, trigger=made.trigger, outcome=outcome)
    metrics.context_size.observe(made.tokens_before, model=model, phase="before")
    metrics.context_size.observe(made.tokens_after, model=model, phase="after")
    if made.tokens_before > 0:
        ratio = made.tokens_after / made.tokens_before
        metrics.compaction_ratio.observe(ratio, strategy=made.strategy)
    saved = max(made.tokens_before - made.tokens_after, 0)
    metrics.reclaimed.add(saved, strategy=made.strategy)
    past = made.since
    if past is not None:
        metrics.compaction_answers.observe(past["answers"])
        metrics.calls_after.add(past["repeated"], kind="repeated")
        metrics.calls_after.add(past["calls"] - past["repeated"], kind="new")


def _count_fault(metrics: Metrics, event: CompactionFault, model: str | None) -> None:
    del model
    metrics.faults.add(kind=event.kind)


def _count_bust(metrics: Metrics, event: CacheBust, model: str | None) -> None:
    metrics.cache_busts.add(model=model, kind=event.kind)
    metrics.cache_bust_tokens.add(event.tokens, model=model, kind=event.kind)


def _count_failure(metrics: Metrics, event: CompactionFailed, model: str | None) -> None:
    """Count a compaction that changed nothing; its reason is free text, and so no label."""
    del model
    strategy, trigger = event.strategy or None, event.trigger or None
    metrics.compactions.add(strategy=strategy, trigger=trigger, outcome="failed")


def _count_exhaustion(metrics: Metrics, event: RecoveryExhausted, model: str | None) -> None:
    del event, model
    metrics.compactions.add(strategy=None, trigger="overflow_recovery", outcome="exhausted")


def _count_truncation(metrics: Metrics, event: TruncationDetected, model: str | None) -> None:
    del event
    metrics.silent_truncations.add(model=model)


def _count_overflow(metrics: Metrics, event: Refused, model: str | None) -> None:
    if event.kind.kind in OVERFLOWS:
        metrics.overflows.add(model=event.model or model, phase=event.phase)


def _count_answer(metrics: Metrics, event: Answered, model: str | None) -> None:
    """Count dollars if a price is known, and tokens if not; unpriced tokens never add 0 dollars."""
    name, used = event.model or model, event.usage
    for kind, amount in _kinds(used):
        if amount:
            metrics.tokens.add(amount, model=name, kind=kind)
    tokens = used.prompt_tokens + used.output + used.reasoning
    unpriced = tokens if event.cost is None else event.cost.unpriced_tokens
    if unpriced:
        metrics.unpriced_tokens.add(unpriced, model=name)
    if event.cost is not None and unpriced < tokens:
        metrics.cost.add(_dollars(event.cost), model=name)


def _kinds(used: Usage) -> tuple[tuple[str, int], ...]:
    """Return the parts of a usage with their label values."""
    return (
        ("input_uncached", used.input),
        ("cache_read", used.cache_read),
        ("cache_write", used.cache_write),
        ("output", used.output),
        ("reasoning", used.reasoning),
    )


def _dollars(cost: Cost) -> float:
    parts = (cost.input, cost.cache_read, cost.cache_write, cost.output, cost.reasoning)
    return sum(part for part in parts if part is not None)


COUNTED: Final[Mapping[type, Callable[[Metrics, Any, str | None], None]]] = MappingProxyType(
    {
        ContextPressure: _pressure,  # context_used_ratio, context_headroom_tokens
        Compacted: _count_compaction,  # compactions, context_size, compaction_ratio, reclaimed
        CompactionFailed: _count_failure,  # compactions
        CompactionFault: _count_fault,  # compaction_faults
        CacheBust: _count_bust,  # cache_busts, cache_bust_tokens
        RecoveryExhausted: _count_exhaustion,  # compactions
        TruncationDetected: _count_truncation,  # silent_truncations
        Refused: _count_overflow,  # overflows
        Answered: _count_answer,  # tokens, cost_usd, unpriced_tokens
    }
)
"""The function that counts each event; other events belong to no metric."""

__all__ = ["CONTENT_TYPE", "COUNTED", "Host", "Metrics", "ProxyMeters", "enable"]
