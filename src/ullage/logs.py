"""The work that a log line belongs to: a request or a job.

The code that starts such work calls `begin_work` once. Every line that is logged in its task, in
tasks started from it and in its threads then carries the same fields. This module knows no formats
and no listeners.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any, Final

Fields = Mapping[str, Any]


def _list_none() -> Fields:
    return {}


_WORK: Final[ContextVar[Callable[[], Fields]]] = ContextVar("work", default=_list_none)


def begin_work(list_fields: Callable[[], Fields]) -> None:
    """Add the fields that `list_fields` returns to the log lines of the current task."""
    _WORK.set(list_fields)


def list_fields() -> Fields:
    """Return the fields of the current work."""
    return _WORK.get()()
