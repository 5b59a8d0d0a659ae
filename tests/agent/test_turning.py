"""What a turn sends and leaves behind: no tool that still runs, no right to write that is stale."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.agent.acting import agent, bodies, called, data, said, scripted, types
from ullage.agent import Agent, Executor, Session
from ullage.core.errors import BusyWriter
from ullage.core.session.permissions import Access
from ullage.core.session.tools import Spec, ToolOutcome
from ullage.providers import Provider
from ullage.storage.log import Owner


class Slow:
    """A tool that reads, and takes several rounds of the loop to end when it is cancelled."""

    spec = Spec("slow", "Look for long.", {"type": "object"}, reads_only=True)

    def __init__(self, begun: Callable[[], object], say: Callable[[str], object]) -> None:
        self._begun, self._say = begun, say

    def access(self, _: Any) -> Access:
        return Access()

    async def run(self, *_: Any, **__: Any) -> ToolOutcome:
        self._begun()
        try:
            await asyncio.Event().wait()
        finally:
            for _round in range(5):
                await asyncio.sleep(0)
            self._say("over")
        return ToolOutcome("never")


class Other(Slow):
    """A tool that reads, and has a fault as soon as the slow one has begun, if it is to."""

    spec = Spec("other", "Look.", {"type": "object"}, reads_only=True)

    def __init__(self, go: asyncio.Event, fault: Exception | None) -> None:
        self._go, self._fault = go, fault

    async def run(self, *_: Any, **__: Any) -> ToolOutcome:
        await self._go.wait()
        if self._fault is not None:
            raise self._fault
        await asyncio.Event().wait()
        return ToolOutcome("never")


@pytest.mark.parametrize("fault", [None, ZeroDivisionError("a tool's own")])
def test_no_call_goes_on_behind_the_end_of_its_turn(
    session: Session, tmp_path: Path, fault: Exception | None
):
    said_of: list[str] = []
    session.hear(lambda event: said_of.append(event.type))

    async def turn() -> None:
        go = asyncio.Event()
        tools = (Slow(go.set, said_of.append), Other(go, fault))
        script = called(("slow", {}), ("other", {}))
        with scripted(script) as server:
            worker = Agent(
                Provider("m", server.base_url),
                executor=lambda _: Executor(tmp_path, tools=tools),
                window=8_000,
            )
            task = worker.start(session, "Look")
            await go.wait()
            if fault is None:
                task.cancel()
            await asyncio.wait({task})
            assert task.cancelled() is (fault is None)

    asyncio.run(turn())
    end = "turn_interrupted" if fault is None else "turn_failed"
    assert said_of.index("over") < said_of.index("tool_result") < said_of.index(end)
    assert types(session)[-1] == end


def test_a_writer_whose_lease_went_between_turns_writes_behind_the_other(session: Session):
    other = Owner("another", 1, "", "")
    with scripted(said("one"), said("two"), said("three")) as server:
        worker = agent(server)
        worker.run(session, "first")
        held = session.log.acquire("s", other, time.time(), take_over=True)
        for attempt in (worker.run, lambda s, _: worker.resume(s)):
            with pytest.raises(BusyWriter, match="another"):
                attempt(session, "too early")
        session.log.release("s", held.epoch, time.time())
        assert worker.run(session, "second").text == "two"
    assert [said["text"] for said in data(session, "user_message")] == ["first", "second"]


def test_a_budget_of_thinking_is_lowered_with_the_answer_that_holds_it(session: Session):
    with scripted(said("a")) as server:
        options = {"max_tokens": 100_000, "reasoning": {"max_tokens": 64_000, "exclude": True}}
        agent(server).run(session, "hello", provider_options=options)
        body = bodies(server)[0]
    assert body["reasoning"] == {"max_tokens": 4_000, "exclude": True}
    assert 4_000 < body["max_tokens"] < 8_000
