"""Counters, gauges and histograms with labels, and their text for Prometheus.

It knows none of our metrics. The text is the exposition format 0.0.4 (prometheus.io, "Exposition
formats"). Safe to share between threads. A label takes a limited number of values; every further
value becomes `other`.
"""

from __future__ import annotations

import math
import re
import threading
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Final

from ullage.core.errors import ConfigurationError

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
"""The content type of an HTTP response with the text."""

MOST: Final = 100
"""Most distinct values of one label."""

OTHER: Final = "other"
UNKNOWN: Final = "unknown"
LONGEST: Final = 120
"""Longest value of a label, in characters."""

NAME: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
LABEL: Final = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*")

MOST_KNOWN: Final = 1_000
"""Most combinations of raw labels in a metric's cache."""

Labels = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Described:
    """Name, description and labels of a metric."""

    name: str
    says: str
    labels: Labels = ()
    most: int = MOST

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise ConfigurationError(f"{self.name!r} cannot be the name of a metric")
        for label in self.labels:
            if not LABEL.fullmatch(label) or label == "le":
                raise ConfigurationError(f"{label!r} cannot be a label of {self.name}")


class _Metric:
    """Series by the values of their labels; each label takes a limited number of values."""

    kind = ""

    def __init__(self, described: Described) -> None:
        self.described = described
        self._seen: tuple[set[str], ...] = tuple(set() for _ in described.labels)
        self._known: dict[tuple[tuple[str, str | None], ...], Labels] = {}
        self._lock = threading.Lock()

    def render(self) -> Iterator[str]:
        """Yield the lines of the metric, or nothing if it was never used."""
        with self._lock:
            samples = list(self._samples())
        if samples:
            name = self.described.name
            yield f"# HELP {name} {_help(self.described.says)}"
            yield f"# TYPE {name} {self.kind}"
            yield from samples

    def _samples(self) -> Iterator[str]:
        raise NotImplementedError

    def _key(self, given: Mapping[str, str | None]) -> Labels:
        """Return the values of the labels in order; the caller holds the lock."""
        asked = tuple(given.items())
        known = self._known.get(asked)
        if known is None:
            known = tuple(map(self._limit_value, self._seen, self._read_labels(given)))
            if len(self._known) < MOST_KNOWN and all(len(v or "") <= LONGEST for _, v in asked):
                self._known[asked] = known
        return known

    def _read_labels(self, given: Mapping[str, str | None]) -> Labels:
        """Return the values of the labels in order, safe to write and to show.

        Invisible characters, which may control a reader's terminal, become U+FFFD.
        """
        if given.keys() != set(self.described.labels):
            raise ConfigurationError(
                f"{self.described.name} has the labels {', '.join(self.described.labels) or 'none'}"
                f", not {', '.join(sorted(given)) or 'none'}"
            )
        values = [(given[label] or UNKNOWN)[:LONGEST] for label in self.described.labels]
        return tuple(map(_clean, values))

    def _limit_value(self, seen: set[str], value: str) -> str:
        if value in seen or value in (OTHER, UNKNOWN):
            return value
        if len(seen) >= self.described.most:
            return OTHER
        seen.add(value)
        return value

    def _series(self, values: Labels, *more: str) -> str:
        pairs = [
            f'{k}="{_quote_label(v)}"' for k, v in zip(self.described.labels, values, strict=True)
        ]
        inside = ",".join([*pairs, *more])
        return f"{{{inside}}}" if inside else ""


class CounterMetric(_Metric):
    """A number that only goes up."""

    kind = "counter"

    def __init__(self, described: Described) -> None:
        super().__init__(described)
        self._values: dict[Labels, float] = {}

    def add(self, amount: float = 1, **labels: str | None) -> None:
        """Add to a series; raises ConfigurationError for less than 0 or other labels."""
        if not 0 <= amount < math.inf:
            raise ConfigurationError(f"{self.described.name} cannot go up by {amount}")
        with self._lock:
            key = self._key(labels)
            self._values[key] = self._values.get(key, 0) + amount

    def value(self, **labels: str | None) -> float | None:
        """Return the total of a series, or None if nothing was added."""
        with self._lock:
            return self._values.get(self._read_labels(labels))

    def _samples(self) -> Iterator[str]:
        for values, total in self._values.items():
            yield f"{self.described.name}{self._series(values)} {_number(total)}"


class Gauge(_Metric):
    """A number that goes up and down."""

    kind = "gauge"

    def __init__(self, described: Described) -> None:
        super().__init__(described)
        self._values: dict[Labels, float] = {}

    def set(self, value: float, **labels: str | None) -> None:
        """Set a series; raises ConfigurationError for infinity, NaN or other labels."""
        if not math.isfinite(value):
            raise ConfigurationError(f"{self.described.name} cannot be {value}")
        with self._lock:
            self._values[self._key(labels)] = value

    def remove(self, **labels: str | None) -> None:
        """Remove a series, if it exists, because its value no longer holds."""
        with self._lock:
            self._values.pop(self._read_labels(labels), None)

    def value(self, **labels: str | None) -> float | None:
        """Return the last value of a series, or None if it was never set."""
        with self._lock:
            return self._values.get(self._read_labels(labels))

    def _samples(self) -> Iterator[str]:
        for values, value in self._values.items():
            yield f"{self.described.name}{self._series(values)} {_number(value)}"


@dataclass(slots=True)
class _Observed:
    """The number of values in each bucket (the last one has no limit), and their sum."""

    counts: list[int]
    total: float = 0.0


@dataclass(frozen=True, slots=True)
class Observed:
    """The number of values in a series, and their sum."""

    count: int
    total: float


class Histogram(_Metric):
    """Values by size; `edges` are the upper limits of the buckets, rising, without infinity."""

    kind = "histogram"

    def __init__(self, described: Described, edges: Sequence[float]) -> None:
        super().__init__(described)
        rising = all(low < high for low, high in pairwise(edges))
        if not edges or not rising or not all(map(math.isfinite, edges)):
            raise ConfigurationError(f"the edges of {described.name} must rise and be finite")
        self.edges = tuple(edges)
        self._values: dict[Labels, _Observed] = {}

    def observe(self, value: float, **labels: str | None) -> None:
        """Count a value; raises ConfigurationError for infinity, NaN or other labels."""
        if not math.isfinite(value):
            raise ConfigurationError(f"{self.described.name} cannot count {value}")
        with self._lock:
            key = self._key(labels)
            held = self._values.get(key)
            if held is None:
                held = self._values[key] = _Observed([0] * (len(self.edges) + 1))
            held.counts[bisect_left(self.edges, value)] += 1
            held.total += value

    def value(self, **labels: str | None) -> Observed | None:
        """Return the count and sum of a series, or None if it has no values."""
        with self._lock:
            held = self._values.get(self._read_labels(labels))
            return None if held is None else Observed(sum(held.counts), held.total)

    def _samples(self) -> Iterator[str]:
        name = self.described.name
        edges = (*map(_number, self.edges), "+Inf")
        for values, held in self._values.items():
            for edge, count in zip(edges, accumulate(held.counts), strict=True):
                bucket = self._series(values, f'le="{edge}"')
                yield f"{name}_bucket{bucket} {count}"
            series = self._series(values)
            yield f"{name}_sum{series} {_number(held.total)}"
            yield f"{name}_count{series} {sum(held.counts)}"


@dataclass(slots=True)
class Registry:
    """Metrics by name, in the order of their creation."""

    _metrics: dict[str, CounterMetric | Gauge | Histogram] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def counter(self, described: Described) -> CounterMetric:
        """Return the counter of this name; create it on first use."""
        with self._lock:
            found = self._metrics.setdefault(described.name, CounterMetric(described))
        if not isinstance(found, CounterMetric) or found.described != described:
            raise ConfigurationError(f"{described.name} is already another metric")
        return found

    def gauge(self, described: Described) -> Gauge:
        """Return the gauge of this name; create it on first use."""
        with self._lock:
            found = self._metrics.setdefault(described.name, Gauge(described))
        if not isinstance(found, Gauge) or found.described != described:
            raise ConfigurationError(f"{described.name} is already another metric")
        return found

    def histogram(self, described: Described, edges: Sequence[float]) -> Histogram:
        """Return the histogram of this name; create it on first use."""
        with self._lock:
            found = self._metrics.setdefault(described.name, Histogram(described, edges))
        if (
            not isinstance(found, Histogram)
            or found.described != described
            or found.edges != tuple(edges)
        ):
            raise ConfigurationError(f"{described.name} is already another metric")
        return found

    def list_described(self) -> list[Described]:
        """Return the descriptions of all metrics, used or not."""
        with self._lock:
            return [metric.described for metric in self._metrics.values()]

    def metric(self, name: str) -> CounterMetric | Gauge | Histogram | None:
        """Return the metric of a name, or None."""
        with self._lock:
            return self._metrics.get(name)

    def render(self) -> str:
        """Return all used metrics in the format of Prometheus; serve it as CONTENT_TYPE."""
        with self._lock:
            metrics = list(self._metrics.values())
        lines = [line for metric in metrics for line in metric.render()]
        return "".join(f"{line}\n" for line in lines)


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) and abs(value) < 2**53 else repr(float(value))


def _clean(value: str) -> str:
    held = value.encode("utf-8", "replace").decode()
    return "".join(c if c.isprintable() or c == "\n" else "\ufffd" for c in held)


def _help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _quote_label(text: str) -> str:
    return _help(text).replace('"', '\\"')
