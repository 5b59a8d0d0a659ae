"""A streamed call of a guarded session, over a list of events that may begin with a refusal."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from ullage.integrations.adapter import Adapter, Fitted, GuardedSession, MessageForm
from ullage.integrations.reports import report_chat
from ullage.integrations.streaming import aopen_stream, open_stream

LONG = "wind from the north, rain at noon\n" * 90

HISTORY: list[Any] = [
    {"role": "system", "content": "You run a weather station."},
    *(
        {"role": role, "content": f"{n}: {LONG}"}
        for n in range(5)
        for role in ("user", "assistant")
    ),
    {"role": "user", "content": "What was the wind?"},
]

FORM: MessageForm[Any] = MessageForm(lambda message: [message], lambda raws, _: raws[0])


class TooLongError(Exception):
    status_code = 400

    def __init__(self) -> None:
        super().__init__(
            "This model's maximum context length is 7000 tokens. However, your messages resulted "
            "in 12000 tokens. Please reduce the length of the messages."
        )


class Server:
    """Streams two events, and refuses the first requests."""

    def __init__(self, refusals: int = 0, events: int = 2) -> None:
        self.asked: list[int] = []
        self._refusals, self._events = refusals, events

    def send(self, fitted: Fitted[Any]) -> Iterator[int]:
        self.asked.append(len(fitted.messages))
        if len(self.asked) <= self._refusals:
            raise TooLongError
        yield from range(1, self._events + 1)

    async def asend(self, fitted: Fitted[Any]) -> AsyncIterator[int]:
        for event in self.send(fitted):
            yield event


def open_session() -> GuardedSession[Any]:
    return Adapter(FORM, "gpt-4o", window=16_000).open("one")


def report(event: int) -> Any:
    return report_chat(9_000, 10) if event == 2 else None


@pytest.mark.parametrize("refusals", [0, 1])
def test_a_stream_is_sent_again_after_a_refusal_and_shown_once(refusals: int) -> None:
    server = Server(refusals)
    events, fitted = open_stream(open_session(), server.send, HISTORY, report=report)
    assert list(events) == [1, 2]
    assert len(server.asked) == refusals + 1
    assert bool(fitted.view.recoveries) is bool(refusals)


@pytest.mark.parametrize("refusals", [0, 1])
def test_an_async_stream_is_sent_again_after_a_refusal_and_shown_once(refusals: int) -> None:
    server = Server(refusals)

    async def run() -> list[int]:
        events, _ = await aopen_stream(open_session(), server.asend, HISTORY, report=report)
        return [event async for event in events]

    assert asyncio.run(run()) == [1, 2]
    assert len(server.asked) == refusals + 1


def test_a_report_counts_once_the_stream_is_over() -> None:
    session = open_session()
    events, _ = open_stream(session, Server().send, HISTORY, report=report)
    before = session.fit(HISTORY).view.assessment.input_tokens
    list(events)
    assert session.fit(HISTORY).view.assessment.input_tokens != before


def test_an_empty_stream_teaches_nothing() -> None:
    events, _ = open_stream(open_session(), Server(events=0).send, HISTORY, report=report)
    assert list(events) == []

    async def run() -> list[int]:
        made, _ = await aopen_stream(open_session(), Server(events=0).asend, HISTORY, report=report)
        return [event async for event in made]

    assert asyncio.run(run()) == []
