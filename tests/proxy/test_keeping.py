"""What a proxy remembers of conversations: in memory, soon in the store, never in the way."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from ullage.core.errors import StoreError
from ullage.core.guard.conversation import Conversation
from ullage.proxy.keeping import AT_ONCE, MOST, Keeping, WrittenBehind
from ullage.storage import MemoryStore, open_store
from ullage.storage.protocol import STANDARD


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


def test_a_store_that_cannot_be_written_stops_nobody_and_is_told_of() -> None:
    store = MemoryStore()
    store.url = "own:sick"  # type: ignore[misc]

    def fail(_: Conversation) -> None:
        raise StoreError("the disk is full")

    store.conversations.save = fail  # type: ignore[assignment]
    kept = Keeping(store, STANDARD)

    async def talk() -> None:
        assert (kept.away_s, kept.backlog) == (None, 0)
        await kept.conversations.asave(make("p"))
        await kept.settle()

    asyncio.run(talk())
    assert kept.away_s is not None
    assert kept.backlog == 1
    assert kept.conversations.load("s", ["p"]) == make("p")


def test_no_more_than_a_number_waits_to_be_written() -> None:
    store = MemoryStore()
    kept = behind(store)
    for n in range(MOST + 5):
        kept.save(make(f"p{n}"))
    asyncio.run(kept.settle())
    assert store.conversations.load("s", ["p4"]) is None
    assert store.conversations.load("s", ["p5"]) == make("p5")


def test_what_changes_soon_after_a_write_shares_the_next_transaction(tmp_path: Path) -> None:
    store = open_store(f"sqlite:{tmp_path / 's.db'}")
    kept, written = Keeping(store, STANDARD).conversations, list[int]()
    save_all = store.conversations.save_all  # type: ignore[attr-defined]  # SQL stores have it

    def count(conversations: Sequence[Conversation]) -> None:
        written.append(len(conversations))
        save_all(conversations)

    store.conversations.save_all = count  # type: ignore[attr-defined]
    names = [f"p{n}" for n in range(AT_ONCE + 20)]

    async def talk() -> None:
        await save(kept, make("first"))
        await save(kept, *map(make, names))

    asyncio.run(talk())
    assert written == [1, AT_ONCE, 20]
    assert all(store.conversations.load("s", [name]) == make(name) for name in names)
    store.close()


def test_what_another_replica_wrote_meanwhile_is_read_where_the_conversation_grew_by_more() -> None:
    store = MemoryStore()
    kept = behind(store)
    kept.save(make("p"))
    store.conversations.save(make("q", 5))
    for known in (["q", "p"], ["a", "q", "p"]):
        assert kept.load("s", known) == make("p"), "it may have gone on here alone"
        assert asyncio.run(kept.aload("s", known)) == make("p")
    assert kept.load("s", ["b", "a", "q", "p"]) == make("q", 5)
    assert asyncio.run(kept.aload("s", ["b", "a", "q", "p"])) == make("q", 5)
    assert kept.load("s", ["d", "c", "b", "a", "p"]) == make("p"), "nobody wrote anything newer"
