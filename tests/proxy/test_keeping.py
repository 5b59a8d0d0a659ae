"""What a proxy remembers of conversations: in memory, soon in the store, never in the way."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

import pytest

from ullage.core.errors import StoreError
from ullage.core.guard.conversation import Conversation
from ullage.proxy.keeping import MOST, Keeping, WrittenBehind
from ullage.storage import MemoryStore
from ullage.storage.protocol import STANDARD, Conversations


def make(prefix: str, cramped: int = 9) -> Conversation:
    return Conversation("s", prefix, cramped=cramped)


def behind(store: MemoryStore) -> WrittenBehind:
    return Keeping(store, STANDARD).conversations


async def save(kept: WrittenBehind, *conversations: Conversation) -> None:
    for conversation in conversations:
        await kept.asave(conversation)
    await kept.settle()


def test_another_process_goes_on_with_what_was_written() -> None:
    store = MemoryStore()
    asyncio.run(save(behind(store), make("p")))
    other = behind(store)
    assert other.load("s", ["q", "p"]) == make("p")
    assert asyncio.run(behind(store).aload("s", ["p"])) == make("p")
    assert asyncio.run(behind(store).aload("s", ["x"])) is None


def test_what_is_in_memory_is_not_looked_up() -> None:
    store = MemoryStore()
    kept = behind(store)
    kept.save(make("p"))
    store.conversations.save(make("p", 5))
    assert kept.load("s", ["p"]) == make("p")
    assert asyncio.run(kept.aload("s", ["p"])) == make("p")
    kept.close()


def test_what_did_not_change_but_for_its_place_is_not_written() -> None:
    store, kept = MemoryStore(), behind(MemoryStore())
    kept = behind(store)

    async def talk() -> None:
        await save(kept, make("p"))
        assert await kept.aload("s", ["q", "p"]) == make("p")
        await save(kept, make("q"))

    asyncio.run(talk())
    assert store.conversations.load("s", ["q"]) is None
    assert kept.load("s", ["q"]) == make("q")


class Sick:
    """The conversations of a store whose disk is full until it is `well`."""

    def __init__(self, beneath: Conversations) -> None:
        self.beneath, self.well, self.tried = beneath, False, 0

    def load(self, scope: str, prefixes: Sequence[str]) -> Conversation | None:
        return self.beneath.load(scope, prefixes)

    def save(self, conversation: Conversation) -> None:
        self.tried += 1
        if not self.well:
            raise StoreError("the disk is full")
        self.beneath.save(conversation)


def test_a_store_that_cannot_be_written_is_told_once_and_stops_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = MemoryStore()
    sick = store.conversations = Sick(store.conversations)  # type: ignore[assignment]
    kept = behind(store)

    async def talk() -> None:
        await save(kept, make("p"))
        await save(kept, make("q"))
        sick.well = True
        await save(kept, make("r"))

    with caplog.at_level(logging.WARNING):
        asyncio.run(talk())
    assert caplog.text.count("cannot be written: the disk is full") == 1
    assert kept.load("s", ["p"]) == make("p")
    assert sick.beneath.load("s", ["r"]) == make("r")


def test_no_more_than_a_number_waits_to_be_written() -> None:
    store = MemoryStore()
    kept = behind(store)
    for n in range(MOST + 5):
        kept.save(make(f"p{n}"))
    asyncio.run(kept.settle())
    assert store.conversations.load("s", ["p4"]) is None
    assert store.conversations.load("s", ["p5"]) == make("p5")
