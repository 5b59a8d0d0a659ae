"""Streams of a model that are sent again where they are refused before they begin.

It knows no framework.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator
from typing import Any, TypeVar

T = TypeVar("T")


async def open_stream(stream: AsyncIterable[T]) -> AsyncIterator[T]:
    """Return a stream whose first event has come: a refusal is raised here, not later."""
    events = aiter(stream)
    first: list[Any] = [event async for event in _take_one(events)]

    async def go_on() -> AsyncIterator[T]:
        for event in first:
            yield event
        async for event in events:
            yield event

    return go_on()


async def _take_one(events: AsyncIterator[T]) -> AsyncIterator[T]:
    async for event in events:
        yield event
        return
