"""Summaries in a guard: asked for once, awaited where they may be, and by rule where they fail."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

import ullage
from tests.voyage import log_of, of, opening
from ullage import events
from ullage.core.guard.events import Event
from ullage.runtime import Runtime

MODEL = "gpt-4o"


@pytest.fixture
def runtime() -> Runtime:
    return Runtime()


def told_of(summarizer: Any, runtime: Runtime, *, twin: bool) -> tuple[ullage.View, list[Event]]:
    told: list[Event] = []
    guard = ullage.Guard(
        MODEL, window=3000, summarizer=summarizer, runtime=runtime, on_event=told.append
    )
    history = log_of(40)
    view = asyncio.run(guard.aprepare(history)) if twin else guard.prepare(history)
    again = guard.prepare(history) if not twin else asyncio.run(guard.aprepare(history))
    assert again.messages == view.messages
    assert again.compaction is None
    return view, told


@pytest.mark.parametrize("twin", [False, True])
def test_a_summarizer_is_asked_once_and_its_text_stands_in_the_middle(runtime, twin) -> None:
    asked: list[ullage.SummaryRequest] = []

    def summarizer(request: ullage.SummaryRequest) -> str:
        asked.append(request)
        return "Goal: keep the log. Done: items 0 to 30."

    view, told = told_of(summarizer, runtime, twin=twin)
    assert len(asked) == 1
    assert "Record 0" in asked[0].quoted
    assert any("Done: items 0 to 30." in str(m["content"]) for m in view.messages)
    assert view.messages[:2] == opening()
    (made,) = of(events.Compacted, told)
    assert "summarise_middle" in made.checkpoint.strategy
    assert made.checkpoint.fallback_reason is None


def test_an_async_summarizer_is_awaited_by_the_async_twins(runtime) -> None:
    async def summarizer(request: ullage.SummaryRequest) -> str:
        await asyncio.sleep(0)
        return "Goal: keep the log."

    view, _ = told_of(summarizer, runtime, twin=True)
    assert any("Goal:\n- keep the log." in str(m["content"]) for m in view.messages)


class Later:
    """An awaitable that is no coroutine."""

    def __await__(self) -> Iterator[Any]:
        return iter(())


async def an_async_one(request: ullage.SummaryRequest) -> str:
    return "never heard"


@pytest.mark.parametrize("summarizer", [an_async_one, lambda _: Later()])
def test_an_async_summarizer_is_refused_by_a_sync_guard(runtime, summarizer) -> None:
    guard = ullage.Guard(MODEL, window=3000, summarizer=summarizer, runtime=runtime)
    with pytest.raises(ullage.ConfigurationError, match="async"):
        guard.prepare(log_of(40))
    assert runtime.store.checkpoints.all() == []


def fail(request: ullage.SummaryRequest) -> str:
    raise TimeoutError("no model there")


@pytest.mark.parametrize("twin", [False, True])
@pytest.mark.parametrize(
    ("summarizer", "name"), [(fail, "TimeoutError"), (lambda _: 7, "TypeError")]
)
def test_a_failing_summarizer_is_told_and_the_summary_is_by_rule(
    runtime, summarizer, name, twin
) -> None:
    view, told = told_of(summarizer, runtime, twin=twin)
    assert name in of(events.Notice, told)[0].text
    (made,) = of(events.Compacted, told)
    assert made.checkpoint.fallback_reason == "summariser_failed"
    assert view.compaction is not None
    assert view.compaction.reached


def test_without_a_summarizer_the_summary_is_by_rule_and_says_so(runtime) -> None:
    _, told = told_of(None, runtime, twin=False)
    (made,) = of(events.Compacted, told)
    assert made.checkpoint.fallback_reason == "no_summariser"
