"""A streamed call of a guarded session: retried after a refusal, with usage learned at its end.

A refusal comes before the first event, so a retry happens before anything is shown. It knows no
framework.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, TypeVar

from ullage.integrations.adapter import Beside, Fitted, GuardedSession

T = TypeVar("T")
E = TypeVar("E")

Report = Callable[[E], Any]
"""The usage of a call known at an event, in the dialect's form, or None if unknown.

It is called for each event, and again for the last event when the stream has ended.
"""


def open_stream(
    session: GuardedSession[T],
    send: Callable[[Fitted[T]], Iterable[E]],
    messages: Sequence[T],
    beside: Beside | None = None,
    *,
    report: Report[E],
) -> tuple[Iterator[E], Fitted[T]]:
    """Return the events of a call, and its messages. Raises what `GuardedSession.call` raises."""

    def begin(fitted: Fitted[T]) -> Iterator[E]:
        events = iter(send(fitted))
        return chain(list(islice(events, 1)), events)

    events, fitted = session.call(begin, messages, beside, report=lambda _: None)
    return _watch(events, fitted, report), fitted


async def aopen_stream(
    session: GuardedSession[T],
    send: Callable[[Fitted[T]], AsyncIterator[E]],
    messages: Sequence[T],
    beside: Beside | None = None,
    *,
    report: Report[E],
) -> tuple[AsyncIterator[E], Fitted[T]]:
    """Do as `open_stream` with an async `send`."""

    async def begin(fitted: Fitted[T]) -> AsyncIterator[E]:
        events = aiter(send(fitted))
        try:
            first = [await anext(events)]
        except StopAsyncIteration:
            first = []
        return _achain(first, events)

    events, fitted = await session.acall(begin, messages, beside, report=lambda _: None)
    return _awatch(events, fitted, report), fitted


def _watch(events: Iterator[E], fitted: Fitted[T], report: Report[E]) -> Iterator[E]:
    last: list[E] = []
    said = None
    for event in events:
        said, last = report(event) or said, [event]
        yield event
    said = report(last[0]) or said if last else None
    if said is not None:
        fitted.view.observe(said)


async def _awatch(
    events: AsyncIterator[E], fitted: Fitted[T], report: Report[E]
) -> AsyncIterator[E]:
    last: list[E] = []
    said = None
    async for event in events:
        said, last = report(event) or said, [event]
        yield event
    said = report(last[0]) or said if last else None
    if said is not None:
        await fitted.view.aobserve(said)


async def _achain(first: Sequence[E], events: AsyncIterator[E]) -> AsyncIterator[E]:
    for event in first:
        yield event
    async for event in events:
        yield event


async def begin_stream(stream: AsyncIterable[T]) -> AsyncIterator[T]:
    """Return a stream whose first event has arrived, so that a refusal is raised here."""
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
