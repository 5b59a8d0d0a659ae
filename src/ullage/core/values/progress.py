"""Progress of long work: what rooms report, and what an observer receives.

A report is two numbers; the observer knows their unit (bytes, events, pieces). This module knows
neither work nor screens.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol, TypeVar

Item = TypeVar("Item")


class Progress(Protocol):
    """Take a report: `done` of `total` units; a `total` of None is unknown."""

    def __call__(self, done: int, total: int | None) -> None:
        """Take it quickly: reports come often."""
        ...


def ignore(done: int, total: int | None) -> None:
    """Ignore a report: the default, without a progress bar."""
    del done, total


def count(items: Iterable[Item], total: int | None, report: Progress) -> Iterator[Item]:
    """Yield items unchanged, and report after each one how many were taken."""
    for number, item in enumerate(items, 1):
        yield item
        report(number, total)
