"""What a guard's events are as metrics: `ullage.metrics.Metrics(model).on_event` listens.

::

    metrics = ullage.metrics.Metrics("qwen3-8b")
    guard = ullage.Guard("qwen3-8b", on_event=metrics.on_event)
    print(metrics.render())  # Prometheus text; serve it as ullage.metrics.CONTENT_TYPE

Nothing here is loaded until it is used. It decides nothing and keeps no text of a conversation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Protocol

from ullage.core.errors import ConfigurationError
from ullage.core.events import (
    Answered,
    Compacted,
    CompactionFailed,
    ContextPressure,
    Event,
    RecoveryExhausted,
    Refused,
    TruncationDetected,
)
from ullage.telemetry import CONTENT_TYPE, Described, Registry

if TYPE_CHECKING:
    from ullage.core.cost import Cost
    from ullage.telemetry.protocol import Listener

TOKENS: Final = tuple(2.0**power for power in range(10, 22))
"""Upper edges for sizes, in tokens: 1,024 to 2,097,152, by doubling."""

USED: Final = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0, 1.1)
"""Upper edges for the share of a window: the tiers of `core.gauge` are among them."""

SHARES: Final = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
"""Upper edges for what a compaction left."""

OVERFLOWS: Final = ("input", "total")
"""Refusals that say that a window is too small; bytes, rates and output caps say something else."""


class Metrics:
    """Counts the events of guards. Safe to share between threads.

    `model` is the label where an event names none; give one `registry` to the metrics of several
    guards to have them on one page.
    """

    def __init__(self, model: str | None = None, *, registry: Registry | None = None) -> None:
        self.model = model
        self.registry = registry if registry is not None else Registry()
        counter, histogram = self.registry.counter, self.registry.histogram
        self.context_size = histogram(
            Described(
                "ullage_context_size_tokens",
                "Size of a context in tokens, before and after it was compacted.",
                ("model", "phase"),
            ),
            TOKENS,
        )
        self.context_used = histogram(
            Described(
                "ullage_context_used_ratio",
                "Share of the context window that a request takes when it is sent.",
                ("model",),
            ),
            USED,
        )
        self.compactions = counter(
            Described(
                "ullage_compactions_total",
                "Compactions by what came of them: reached, missed, failed or exhausted.",
                ("strategy", "trigger", "outcome"),
            )
        )
        self.compaction_ratio = histogram(
            Described(
                "ullage_compaction_ratio",
                "Tokens after a compaction as a share of those before.",
                ("strategy",),
            ),
            SHARES,
        )
        self.overflows = counter(
            Described(
                "ullage_overflows_total",
                "Requests too large for their window, predicted here or said by the upstream.",
                ("model", "phase"),
            )
        )
        self.silent_truncations = counter(
            Described(
                "ullage_silent_truncations_total",
                "Prompts that a server cut without a word.",
                ("model",),
            )
        )
        self.cost = counter(
            Described("ullage_cost_usd_total", "Dollars of all tokens with a price.", ("model",))
        )
        self.unpriced_tokens = counter(
            Described(
                "ullage_unpriced_tokens_total",
                "Tokens whose price is unknown, which are in no cost.",
                ("model",),
            )
        )

    def on_event(self, event: Event) -> None:
        """Count one event; those that are no metric are left alone."""
        self.told(event, self.model)

    def told(self, event: Event, model: str | None) -> None:
        """Count one event of a guard of `model`."""
        count = COUNTED.get(type(event))
        if count is not None:
            count(self, event, model)

    def render(self) -> str:
        """Return everything counted so far as Prometheus reads it."""
        return self.registry.render()


class Host(Protocol):
    """What metrics can be enabled on, as a runtime: it tells `metrics` of its guards' events."""

    metrics: Listener | None


def enable(host: Host) -> Metrics:
    """Count the events of all guards of a runtime from now on; return what counts them.

    A second time returns the same. Raises ConfigurationError where something else listens.
    """
    held = host.metrics
    if held is None:
        held = host.metrics = Metrics()
    if not isinstance(held, Metrics):
        raise ConfigurationError(
            f"{type(held).__name__} listens there already: take it away first (metrics = None)"
        )
    return held


# --- the table ------------------------------------------------------------------------------------


def _pressure(metrics: Metrics, event: ContextPressure, model: str | None) -> None:
    """Count the share of the window at the send; what was reported after it is not sent again."""
    ratio = event.assessment.ratio
    if ratio is not None and event.phase == "prepared":
        metrics.context_used.observe(ratio, model=model)


def _compacted(metrics: Metrics, event: Compacted, model: str | None) -> None:
    made = event.checkpoint
    outcome = "reached" if event.reached else "missed"
    metrics.compactions.add(strategy=made.strategy, trigger=made.trigger, outcome=outcome)
    metrics.context_size.observe(made.tokens_before, model=model, phase="before")
    metrics.context_size.observe(made.tokens_after, model=model, phase="after")
    if made.tokens_before > 0:
        ratio = made.tokens_after / made.tokens_before
        metrics.compaction_ratio.observe(ratio, strategy=made.strategy)


def _failed(metrics: Metrics, event: CompactionFailed, model: str | None) -> None:
    """Count a compaction that changed nothing; its reason is prose, and prose is no label."""
    del model
    strategy, trigger = event.strategy or None, event.trigger or None
    metrics.compactions.add(strategy=strategy, trigger=trigger, outcome="failed")


def _exhausted(metrics: Metrics, event: RecoveryExhausted, model: str | None) -> None:
    del event, model
    metrics.compactions.add(strategy=None, trigger="overflow_recovery", outcome="exhausted")


def _truncated(metrics: Metrics, event: TruncationDetected, model: str | None) -> None:
    del event
    metrics.silent_truncations.add(model=model)


def _refused(metrics: Metrics, event: Refused, model: str | None) -> None:
    if event.kind.kind in OVERFLOWS:
        metrics.overflows.add(model=event.model or model, phase=event.phase)


def _answered(metrics: Metrics, event: Answered, model: str | None) -> None:
    """Count dollars where a price is known, and tokens where none is: never 0 dollars for them."""
    name, used = event.model or model, event.usage
    tokens = used.prompt_tokens + used.output + used.reasoning
    unpriced = tokens if event.cost is None else event.cost.unpriced_tokens
    if unpriced:
        metrics.unpriced_tokens.add(unpriced, model=name)
    if event.cost is not None and unpriced < tokens:
        metrics.cost.add(_dollars(event.cost), model=name)


def _dollars(cost: Cost) -> float:
    parts = (cost.input, cost.cache_read, cost.cache_write, cost.output, cost.reasoning)
    return sum(part for part in parts if part is not None)


COUNTED: Final[Mapping[type, Callable[[Metrics, Any, str | None], None]]] = MappingProxyType(
    {
        ContextPressure: _pressure,  # context_used_ratio
        Compacted: _compacted,  # compactions, context_size_tokens, compaction_ratio
        CompactionFailed: _failed,  # compactions
        RecoveryExhausted: _exhausted,  # compactions
        TruncationDetected: _truncated,  # silent_truncations
        Refused: _refused,  # overflows
        Answered: _answered,  # cost_usd, unpriced_tokens
    }
)
"""What each event adds to; events that are not named are no metric."""

__all__ = ["CONTENT_TYPE", "COUNTED", "Host", "Metrics", "enable"]
