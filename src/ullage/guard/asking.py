"""Ask a summarizer: the sync and the async way to carry its requests and bring the answers back.

A summarizer is any callable from a SummaryRequest to text or an Answer, or such a coroutine
function. What it is asked and whether an answer is any good is `core.summary`'s to decide.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from ullage.core.errors import ConfigurationError
from ullage.core.summary.request import Answer

if TYPE_CHECKING:
    from ullage.core.summary.request import SummaryRequest

Summarizer = Callable[["SummaryRequest"], "str | Answer | Awaitable[str | Answer]"]

PARALLEL: Final = 4
"""Requests under way at once, where the summarizer does not say (`parallel`)."""


def window_of(summarizer: Summarizer | None) -> int | None:
    """Return the tokens that a request to the summarizer may take, None where it does not say."""
    found = getattr(summarizer, "window", None)
    return found if isinstance(found, int) else None


async def awindow_of(summarizer: Summarizer | None) -> int | None:
    """Do as `window_of`, without blocking the event loop."""
    ask = getattr(summarizer, "awindow", None)
    return cast("int | None", await ask()) if ask is not None else window_of(summarizer)


def answers(summarizer: Summarizer, requests: Sequence[SummaryRequest]) -> list[Answer | Exception]:
    """Return the answer to each request, or what it failed with, one after the other.

    Raises ConfigurationError for an async summarizer, which only the async twins can await.
    """
    return [_answer(summarizer, request) for request in requests]


def _answer(summarizer: Summarizer, request: SummaryRequest) -> Answer | Exception:
    try:
        answer = summarizer(request)
    except Exception as error:  # noqa: BLE001 - returned: the caller records it
        return error
    if inspect.isawaitable(answer):
        if inspect.iscoroutine(answer):
            answer.close()
        raise ConfigurationError(
            "the summarizer is async: use the async twin (aprepare, acall, acompact), or give a "
            "plain function"
        )
    return _read(answer)


async def aanswers(
    summarizer: Summarizer, requests: Sequence[SummaryRequest]
) -> list[Answer | Exception]:
    """Do as `answers`, several at a time, with a summarizer that may be async."""
    import asyncio

    turn = asyncio.Semaphore(getattr(summarizer, "parallel", PARALLEL))
    ask: Callable[[SummaryRequest], Any] = getattr(summarizer, "acall", summarizer)

    async def one(request: SummaryRequest) -> Answer | Exception:
        async with turn:
            try:
                answer = ask(request)
                return _read(await answer if inspect.isawaitable(answer) else answer)
            except Exception as error:  # noqa: BLE001 - returned: the caller records it
                return error

    return list(await asyncio.gather(*map(one, requests)))


def _read(answer: object) -> Answer | Exception:
    if isinstance(answer, Answer):
        return answer
    if isinstance(answer, str):
        return Answer(answer)
    return TypeError(f"a summarizer returns text or an Answer, not {type(answer).__name__}")
