"""What a driver looks for ahead: the checkpoint, while the conversation is looked for."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Sequence
from typing import Any

import pytest

from ullage.core.errors import StoreError
from ullage.core.guard.request import NeedLoad, NeedRecall
from ullage.guard.driver import Driver, Steps
from ullage.runtime import Runtime
from ullage.storage import MemoryStore
from ullage.windows import Question

SOON = NeedLoad("s", ("p",))


class Part:
    """A part of a store, asked by an event loop; one that is `sick` answers with an error."""

    def __init__(self, name: str, asked: list[str], answers: asyncio.Event) -> None:
        self.name, self.asked, self.answers = name, asked, answers
        self.sick = False

    async def aload(self, scope: str, prefixes: Sequence[str]) -> str | None:
        self.asked.append(f"{self.name} {scope}")
        await self.answers.wait()
        if self.sick:
            raise StoreError("away")
        return None


class Slow(MemoryStore):
    """A store that answers when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.url = "own:slow"  # type: ignore[misc]
        self.asked = list[str]()
        self.answers = asyncio.Event()
        self.conversations: Any = Part("conversation", self.asked, self.answers)
        self.checkpoints: Any = Part("checkpoint", self.asked, self.answers)


def take(*needs: NeedRecall | NeedLoad) -> Steps[str]:
    for need in needs:  # noqa: UP028 - a tuple's iterator takes no answers
        yield need
    return "done"


def drive(store: Slow, *needs: NeedRecall | NeedLoad) -> list[str]:
    """Drive these needs to their end; return what the store was asked before it answered."""

    async def scene() -> list[str]:
        driver = Driver(Runtime(), Question("m"), own_store=store)
        driven = asyncio.ensure_future(driver.arun(take(*needs)))
        for _ in range(5):
            await asyncio.sleep(0)
        first = list(store.asked)
        store.answers.set()
        assert await driven == "done"
        return first

    return asyncio.run(scene())


def test_both_are_asked_for_at_once_and_each_once() -> None:
    store = Slow()
    assert sorted(drive(store, NeedRecall("c", ("p",), SOON), SOON)) == [
        "checkpoint s",
        "conversation c",
    ]
    assert len(store.asked) == 2


def test_what_was_found_ahead_and_is_not_needed_is_dropped_with_its_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = Slow()
    store.checkpoints.sick = True
    assert len(drive(store, NeedRecall("c", ("p",), SOON), NeedRecall("c", ("q",)))) == 2
    gc.collect()
    assert "never retrieved" not in caplog.text


def test_without_a_word_on_what_comes_next_nothing_is_asked_ahead() -> None:
    assert drive(Slow(), NeedRecall("c", ("p",))) == ["conversation c"]
