"""Asking a summarizer: what it returns, what it fails with, how many at a time, and its window."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

import ullage
from ullage.core.dialects.usage import Usage
from ullage.core.summary.question import Answer, SummaryRequest
from ullage.guard.summarizer import PARALLEL, aanswers, answers, awindow_of, window_of

REQUESTS = [SummaryRequest("s", f"p{n}", "q", 100, n) for n in range(9)]
PAID = Answer("paid for", Usage(10, output=2), cut=True)


def both(summarizer: Any, requests: Any = REQUESTS) -> list[list[Any]]:
    """Return what the blocking and what the async way bring back."""
    return [answers(summarizer, requests), asyncio.run(aanswers(summarizer, requests))]


def test_text_and_answers_come_back_in_the_order_of_the_requests() -> None:
    for found in both(lambda r: r.prompt if r.dropped % 2 else PAID):
        assert found == [Answer(f"p{n}") if n % 2 else PAID for n in range(9)]


def test_what_one_request_fails_with_is_its_answer_and_the_others_are_asked() -> None:
    def moody(request: SummaryRequest) -> str:
        if request.dropped == 3:
            raise TimeoutError("no model there")
        return request.prompt

    for found in both(moody):
        assert [type(answer) for answer in found].count(TimeoutError) == 1
        assert isinstance(found[3], TimeoutError)


@pytest.mark.parametrize("answer", [None, 7, b"text", ["text"]])
def test_what_is_no_text_is_a_failure_that_names_its_type(answer: Any) -> None:
    for (found,) in both(lambda _: answer, REQUESTS[:1]):
        assert isinstance(found, TypeError)
        assert type(answer).__name__ in str(found)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_a_wish_to_stop_is_no_failure_of_the_summarizer(kind: type[BaseException]) -> None:
    def stopped(request: SummaryRequest) -> str:
        raise kind

    with pytest.raises(kind):
        answers(stopped, REQUESTS[:1])


class Later:
    """An awaitable that is no coroutine."""

    def __await__(self) -> Iterator[Any]:
        return iter(())


async def coroutine(request: SummaryRequest) -> str:
    return request.prompt


@pytest.mark.parametrize("summarizer", [coroutine, lambda _: Later()])
def test_an_async_summarizer_is_refused_where_nobody_can_await_it(summarizer: Any) -> None:
    with pytest.raises(ullage.ConfigurationError, match="use the async twin"):
        answers(summarizer, REQUESTS)


class Counting:
    """An async summarizer that counts how many of its requests are under way at once."""

    def __init__(self) -> None:
        self.now = self.most = 0

    async def __call__(self, request: SummaryRequest) -> str:
        self.now += 1
        self.most = max(self.most, self.now)
        for _ in range(3):
            await asyncio.sleep(0)
        self.now -= 1
        return request.prompt


@pytest.mark.parametrize("parallel", [None, 1, 2, 7])
def test_no_more_requests_are_under_way_than_the_summarizer_allows(parallel: int | None) -> None:
    counting: Any = Counting()
    if parallel is not None:
        counting.parallel = parallel
    found = asyncio.run(aanswers(counting, REQUESTS))
    assert found == [Answer(request.prompt) for request in REQUESTS]
    assert counting.most == (PARALLEL if parallel is None else parallel)


class Twofold:
    """A summarizer with an async way of its own, and a window that has to be asked for."""

    window = 9_000

    def __call__(self, request: SummaryRequest) -> str:
        return "blocking"

    async def acall(self, request: SummaryRequest) -> str:
        return "awaited"

    async def awindow(self) -> int:
        return 4_096


def test_a_summarizer_with_an_async_way_is_asked_that_way_where_it_may_be() -> None:
    blocking, awaited = both(Twofold(), REQUESTS[:1])
    assert (blocking, awaited) == ([Answer("blocking")], [Answer("awaited")])
    assert window_of(Twofold()) == 9_000
    assert asyncio.run(awindow_of(Twofold())) == 4_096


@pytest.mark.parametrize("summarizer", [None, lambda _: "", coroutine])
def test_a_summarizer_that_does_not_say_has_no_window(summarizer: Any) -> None:
    assert window_of(summarizer) is None
    assert asyncio.run(awindow_of(summarizer)) is None


def test_a_window_that_is_no_number_is_none() -> None:
    class Odd:
        window = "large"

        def __call__(self, request: SummaryRequest) -> str:
            return ""

    assert window_of(Odd()) is None
