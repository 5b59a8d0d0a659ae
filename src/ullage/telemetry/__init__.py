"""Numbers for operators: a registry of counters and histograms, and its text for Prometheus."""

from ullage.telemetry.registry import CONTENT_TYPE, Counter, Described, Histogram, Registry

__all__ = ["CONTENT_TYPE", "Counter", "Described", "Histogram", "Registry"]
