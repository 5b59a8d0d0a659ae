"""Numbers for operators: a registry of metrics, and its text for Prometheus."""

from ullage.telemetry.registry import (
    CONTENT_TYPE,
    CounterMetric,
    Described,
    Gauge,
    Histogram,
    Registry,
)

__all__ = ["CONTENT_TYPE", "CounterMetric", "Described", "Gauge", "Histogram", "Registry"]
