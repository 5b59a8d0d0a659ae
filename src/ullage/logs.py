"""What a line of the log belongs to: the request or the job that is worked on.

Whoever begins such work says so once; every line that is logged in its task, in the tasks that it
begins and in its threads then carries the same fields. It knows no formats and no listeners.
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
    """Have the lines of the current task carry the fields that `list_fields` then returns."""
    _WORK.set(list_fields)


def list_fields() -> Fields:
    """Return the fields of the work that is under way here."""
    return _WORK.get()()
