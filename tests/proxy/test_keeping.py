"""What a proxy remembers of conversations: in memory, soon in the store, never in the way."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.storage.records import checkpoint
from tests.support.waiting import eventually
from ullage.core.compaction.checkpoint import Checkpoint
from ullage.core.errors import StoreError
from ullage.core.guard.conversation import Conversation
from ullage.proxy.keeping import AT_ONCE, GUESSES, MOST, Keeping, WrittenBehind
from ullage.storage import MemoryStore, open_store
from ullage.storage.protocol import STANDARD, StoreLimits
from ullage.storage.shelter import NEAR
from ullage.storage.threaded import checkpoints_of


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


class Asked:
    """A store in a file, of which each look for a checkpoint is noted."""

    def __init__(self, folder: Path) -> None:
        self.store = open_store(f"sqlite:{folder / 's.db'}")
        self.prefixes: list[Sequence[str]] = []
        self._load = self.store.checkpoints.load
        self.store.checkpoints.load = self.load  # type: ignore[method-assign]

    def load(self, scope: str, prefixes: Sequence[str]) -> Checkpoint | None:
        self.prefixes.append(prefixes)
        return self._load(scope, prefixes)


@pytest.fixture
def asked(tmp_path: Path) -> Iterator[Asked]:
    made = Asked(tmp_path)
    yield made
    made.store.close()


def test_a_conversation_without_a_checkpoint_is_looked_up_once_while_it_goes_on_here(
    asked: Asked,
) -> None:
    kept = Keeping(asked.store, STANDARD).checkpoints
    first = ("c", "b", "a")
    assert kept.load("s", first) is None
    assert kept.load("s", ("d", *first)) is None
    assert asyncio.run(checkpoints_of(Keeping(asked.store, STANDARD)).aload("s", first)) is None
    assert kept.load("s", ("f", "e", "d", *first)) is None
    assert kept.load("s", first) is None, "it is asked again"
    assert asked.prefixes == [first, first]


def test_a_conversation_that_begins_tells_nothing_of_its_next_request(asked: Asked) -> None:
    kept = Keeping(asked.store, STANDARD).checkpoints
    assert kept.load("s", ("b", "a")) is None
    assert kept.load("s", ("c", "b", "a")) is None
    assert asked.prefixes == [("c", "b", "a")]


def test_a_conversation_is_looked_up_where_another_replica_may_have_gone_on(asked: Asked) -> None:
    kept = Keeping(asked.store, STANDARD).checkpoints
    first = ("c", "b", "a")
    grown = ("f", "e", "d", *first)
    assert kept.load("s", first) is None
    asked.store.checkpoints.save(checkpoint("d"))
    assert kept.load("s", grown) == checkpoint("d")
    assert kept.load("other", ("d", *first)) is None, "another scope"
    assert asked.prefixes == [first, grown, ("d", *first)]


def test_what_was_made_here_is_looked_up_from_then_on(asked: Asked) -> None:
    checkpoints = checkpoints_of(Keeping(asked.store, STANDARD))
    first = ("c", "b", "a")

    async def talk() -> None:
        assert await checkpoints.aload("s", first) is None
        made = await checkpoints.asave(checkpoint("b"))
        assert await checkpoints.aload("s", ("d", *first)) == made
        assert await checkpoints.aload("s", ("e", "d", *first)) == made

    asyncio.run(talk())
    assert asked.prefixes == [first, ("d", *first), ("e", "d", *first)]


def test_memory_that_may_have_let_go_of_what_was_made_says_nothing(asked: Asked) -> None:
    kept = Keeping(asked.store, STANDARD).checkpoints
    first = ("c", "b", "a")
    assert kept.load("s", first) is None
    for number in range(NEAR):
        kept.save(checkpoint(f"other {number}"))
    assert kept.load("s", ("d", *first)) is None
    assert asked.prefixes == [first, ("d", *first)]


def test_no_more_than_a_number_of_conversations_is_known_to_have_none(asked: Asked) -> None:
    kept = Keeping(asked.store, STANDARD, 2).checkpoints
    for name in "abc":
        assert kept.load("s", (name, "y", "x")) is None
    assert kept.load("s", ("a", "y", "x")) is None
    assert len(asked.prefixes) == 4


def test_a_store_that_is_away_tells_of_no_conversation_that_it_has_none(asked: Asked) -> None:
    first = ("c", "b", "a")
    kept = Keeping(asked.store, STANDARD).checkpoints

    def fail(scope: str, prefixes: Sequence[str]) -> Checkpoint | None:
        raise StoreError("the disk is away")

    asked.store.checkpoints.load = fail  # type: ignore[method-assign]
    assert kept.load("s", first) is None
    asked.store.checkpoints.load = asked.load  # type: ignore[method-assign]
    asked.store.checkpoints.save(checkpoint("c"))
    eventually(lambda: kept.load("s", ("d", *first)) == checkpoint("c"), within_s=10)


def test_the_store_is_asked_again_after_some_requests(asked: Asked) -> None:
    """A replica that answered one of two retries may have written one meanwhile."""
    kept = Keeping(asked.store, STANDARD).checkpoints
    prefixes: tuple[str, ...] = ("c", "b", "a")
    assert kept.load("s", prefixes) is None
    asked.store.checkpoints.save(checkpoint("b"))
    for number in range(GUESSES):
        prefixes = (str(number), *prefixes)
        assert kept.load("s", prefixes) is None
    prefixes = ("now", *prefixes)
    assert kept.load("s", prefixes) == checkpoint("b")


def test_a_small_memory_is_trusted_no_further_than_it_reaches(asked: Asked) -> None:
    kept = Keeping(asked.store, StoreLimits(most=5)).checkpoints
    first = ("c", "b", "a")
    assert kept.load("s", first) is None
    for number in range(5):
        kept.save(checkpoint(f"other {number}"))
    assert kept.load("s", ("d", *first)) is None
    assert asked.prefixes == [first, ("d", *first)]
