"""Turns as jobs: a queue in the log's database, and workers on any number of machines.

Names are loaded on first use, so that a program that only submits jobs loads no agent's tools.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ullage.workers.job import JobOutcome, JobRow, QueueReport, TenantLimits, TurnJob
    from ullage.workers.queue import JobQueue, Ticket
    from ullage.workers.worker import TurnWorker

_HOME: Final[Mapping[str, str]] = {
    "TurnJob": "ullage.workers.job",
    "JobQueue": "ullage.workers.queue",
    "JobRow": "ullage.workers.job",
    "JobOutcome": "ullage.workers.job",
    "QueueReport": "ullage.workers.job",
    "TenantLimits": "ullage.workers.job",
    "Ticket": "ullage.workers.queue",
    "TurnWorker": "ullage.workers.worker",
}

__all__ = [
    "JobOutcome",
    "JobQueue",
    "JobRow",
    "QueueReport",
    "TenantLimits",
    "Ticket",
    "TurnJob",
    "TurnWorker",
]


def __getattr__(name: str) -> Any:
    """Load a name on first use (PEP 562)."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
