"""One suite for every store: the same operations give the same answers, whatever it is made of."""

from __future__ import annotations

import asyncio
import importlib
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    rule,
    run_state_machine_as_test,
)

from tests.storage.records import checkpoint, sized, talk
from tests.support.clock import FakeClock
from ullage.core.compaction.checkpoint import Checkpoint
from ullage.core.errors import ConfigurationError, StoreError
from ullage.storage import MemoryStore, Store, StoreLimits
from ullage.storage.postgres import PostgresStore
from ullage.storage.schemes import StoreFactory
from ullage.storage.shelter import shelter
from ullage.storage.sqlite import SqliteStore
from ullage.storage.threaded import checkpoints_of, conversations_of, originals_of

Opened = Callable[[StoreLimits], Store]
OWN = os.environ.get("ULLAGE_TEST_STORE", "")
"""`module:factory` of a store that somebody brings, to be run through the suite as well."""

RECIPE = Path(__file__).parents[2] / "docs" / "recipes" / "store.md"
SMALL = StoreLimits(most=3, characters=12, ttl_s=10)


@pytest.fixture(
    params=["memory", "sqlite", "postgres", "sheltered", "recipe", *([OWN] if OWN else [])]
)
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opened]:
    """Open an empty store of each make."""
    stores: list[Store] = []

    def opening(limits: StoreLimits = SMALL) -> Store:
        clock = FakeClock(1_000)
        if ":" in request.param or request.param == "recipe":
            url = f"own:{tmp_path / str(len(stores))}"
            factory = brought(request.param)
            stores.append(factory(url, create=True, limits=limits, now=clock))
        elif request.param == "memory":
            stores.append(MemoryStore(limits, now=clock))
        elif request.param == "postgres":
            stores.append(shared(request.getfixturevalue("postgres_database")(), limits, clock))
        else:
            path = tmp_path / f"{len(stores)}.db"
            stores.append(SqliteStore(path, limits=limits, now=clock))
            if request.param == "sheltered":
                stores.append(shelter(stores.pop(), limits))
        return stores[-1]

    yield opening
    for store in stores:
        store.close()


def brought(named: str) -> StoreFactory:
    """Return a factory: of the store in the recipe, or of the one that somebody names."""
    if named != "recipe":
        module, _, name = named.partition(":")
        found: StoreFactory = getattr(importlib.import_module(module), name)
        return found
    code = RECIPE.read_text("utf-8").partition("```python\n")[2].partition("```")[0]
    program: dict[str, Any] = {"__name__": "recipe"}
    exec(compile(code, str(RECIPE), "exec"), program)
    factory: StoreFactory = program["open_journal"]
    return factory


def test_what_the_recipe_keeps_outlives_it(tmp_path: Path):
    opening, url, clock = brought("recipe"), f"own:{tmp_path / 'journal'}", FakeClock(1_000)
    with pytest.raises(StoreError, match="there is no journal"):
        opening(url, create=False, limits=SMALL, now=clock)
    store = opening(url, create=True, limits=SMALL, now=clock)
    kept = store.checkpoints.save(checkpoint("p", 1))
    store.checkpoints.save(checkpoint("q", 1))
    store.checkpoints.undo(checkpoint("q", 1))
    store.checkpoints.save_measured(sized(kept, 40))
    store.conversations.save(talk("p"))
    store.originals.keep({"u:1": "text"})
    store.close()
    again = opening(url, create=False, limits=SMALL, now=clock)
    assert again.checkpoints.all() == [sized(kept, 40)]
    assert again.conversations.load("s", ["p"]) == talk("p")
    assert again.originals.read("u:1") == "text"


def test_every_store_can_be_awaited(opened: Opened):
    store = opened(SMALL)

    async def scene() -> None:
        checkpoints, originals = checkpoints_of(store), originals_of(store)
        conversations = conversations_of(store)
        kept = await checkpoints.asave(checkpoint("p", 1))
        assert await checkpoints.aload("s", ["p"]) == kept
        await checkpoints.asave_measured(sized(kept, 40))
        assert await checkpoints.aall() == [sized(kept, 40)]
        assert await checkpoints.aundo(sized(kept, 40))
        await conversations.asave(talk("p"))
        assert await conversations.aload("s", ["p"]) == talk("p")
        await originals.akeep({"u:1": "text"})
        assert await originals.aread("u:1") == "text"

    asyncio.run(scene())


def shared(url: str, limits: StoreLimits, clock: FakeClock) -> Store:
    """Open a store in a database of PostgreSQL."""
    return PostgresStore(url, limits=limits, now=clock)


# ── checkpoints ─────────────────────────────────────────────────────────────────────────────────


def test_the_first_known_prefix_is_found(opened: Opened):
    held = opened(SMALL).checkpoints
    assert held.load("s", ["a"]) is None
    short, long = held.save(checkpoint("short", 1)), held.save(checkpoint("long", 1, 2))
    assert held.load("s", ["unknown", "long", "short"]) == long
    assert held.load("s", ["unknown", "short"]) == short
    assert held.load("s", ["unknown"]) is None
    assert held.load("s", []) is None
    assert held.load("other", ["long"]) is None


def test_a_known_prefix_is_found_behind_thousands_of_unknown_ones(opened: Opened):
    held = opened(SMALL).checkpoints
    kept = held.save(checkpoint("known", 1))
    assert held.load("s", [f"unknown {n}" for n in range(2_000)] + ["known"]) == kept


def test_the_first_of_one_generation_holds_and_the_loser_gets_it(opened: Opened):
    held = opened(SMALL).checkpoints
    first = held.save(checkpoint("p", 1))
    assert held.save(checkpoint("p", 2)) == first
    assert held.load("s", ["p"]) == first


def test_a_higher_generation_takes_the_place_and_a_lower_one_does_not(opened: Opened):
    held = opened(SMALL).checkpoints
    held.save(checkpoint("p", 1))
    second = held.save(checkpoint("p", 1, 2, generation=1))
    assert second.generation == 1
    assert held.save(checkpoint("p", 3)) == second
    assert held.load("s", ["p"]) == second
    assert held.all() == [second]


def test_policies_do_not_stand_in_each_others_way(opened: Opened):
    held = opened(SMALL).checkpoints
    one = held.save(checkpoint("p", 1, policy="one"))
    two = held.save(checkpoint("p", 2, policy="two"))
    assert (one.policy, two.policy) == ("one", "two")
    assert held.load("s", ["p"]) == two
    higher = held.save(checkpoint("p", 3, policy="one", generation=1))
    assert held.load("s", ["p"]) == higher
    assert held.all() == [two, higher]
    held.save(checkpoint("p", 4, policy="three"))
    assert held.load("s", ["p"]) == higher


def test_undo_brings_back_what_was_stored_before(opened: Opened):
    held = opened(SMALL).checkpoints
    first = held.save(checkpoint("p", 1))
    second = held.save(checkpoint("p", 1, 2, generation=1))
    assert held.undo(second)
    assert held.load("s", ["p"]) == first
    assert not held.undo(second)
    assert held.undo(sized(first, 40))
    assert held.load("s", ["p"]) is None
    assert held.all() == []


def test_a_longer_prefix_undone_leaves_the_shorter_one(opened: Opened):
    held = opened(SMALL).checkpoints
    short = held.save(checkpoint("short", 1))
    long = held.save(checkpoint("long", 1, 2, generation=1))
    held.undo(long)
    assert held.load("s", ["long", "short"]) == short


def test_undo_of_what_another_has_taken_the_place_of_changes_nothing(opened: Opened):
    held = opened(SMALL).checkpoints
    winner = held.save(checkpoint("p", 1))
    assert not held.undo(checkpoint("p", 2))
    assert held.load("s", ["p"]) == winner


def test_what_was_undone_can_be_saved_again(opened: Opened):
    held = opened(SMALL).checkpoints
    held.undo(held.save(checkpoint("p", 1)))
    again = held.save(checkpoint("p", 2))
    assert held.load("s", ["p"]) == again == checkpoint("p", 2)


def test_a_measured_size_is_kept_and_a_late_one_is_not(opened: Opened):
    held = opened(SMALL).checkpoints
    stored = held.save(checkpoint("p", 1))
    held.save_measured(sized(stored, 47))
    held.save_measured(sized(checkpoint("p", 2), 48))
    held.save_measured(sized(checkpoint("gone", 1), 49))
    assert held.all() == [sized(stored, 47)]


def test_the_one_used_longest_ago_is_forgotten_first(opened: Opened):
    held = opened(StoreLimits(most=2)).checkpoints
    held.save(checkpoint("a", 1))
    held.save(checkpoint("b", 1))
    assert held.load("s", ["a"]) is not None
    held.save(checkpoint("c", 1))
    assert [c.prefix for c in held.all()] == ["a", "c"]


def test_threads_that_save_one_prefix_at_once_all_get_the_same(opened: Opened):
    store = opened(SMALL)
    barrier = threading.Barrier(8)

    def save(n: int) -> Checkpoint:
        barrier.wait()
        store.conversations.save(talk(f"c{n}"))
        store.originals.keep({f"u:{n}": "x"})
        return store.checkpoints.save(checkpoint("p", n))

    with ThreadPoolExecutor(8) as pool:
        kept = list(pool.map(save, range(8)))
    assert all(k == kept[0] for k in kept)
    assert store.checkpoints.all() == [kept[0]]


# ── conversations ───────────────────────────────────────────────────────────────────────────────


def test_the_longest_known_prefix_recalls_a_conversation(opened: Opened):
    held = opened(SMALL).conversations
    assert held.load("s", ["a"]) is None
    for prefix in ("short", "long"):
        held.save(talk(prefix))
    assert held.load("s", ["unknown", "long", "short"]) == talk("long")
    assert held.load("s", ["unknown", "short"]) == talk("short")
    assert held.load("s", ["unknown"]) is None
    assert held.load("other", ["long"]) is None


def test_the_newest_state_of_a_conversation_holds(opened: Opened):
    held = opened(SMALL).conversations
    held.save(talk("p", covered=1))
    held.save(talk("p", covered=2))
    assert held.load("s", ["p"]) == talk("p", covered=2)


def test_a_scope_and_a_prefix_may_be_any_text(opened: Opened):
    held = opened(SMALL).conversations
    odd = talk('\ud800 \U0001f511 "; DROP TABLE records', scope="'\ud83d")
    held.save(odd)
    assert held.load(odd.scope, [odd.prefix]) == odd


# ── originals ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("text", ["", "plain", "\ud800 half a pair", "nul \0 byte", "\u2028\r\n"])
def test_a_text_comes_back_to_the_character(opened: Opened, text: str):
    held = opened(StoreLimits()).originals
    held.keep({"u:1": text})
    assert held.read("u:1") == text
    assert held.read("u:2") is None


def test_nothing_is_kept_without_a_word(opened: Opened):
    held = opened(SMALL).originals
    held.keep({})
    assert held.read("") is None


def test_a_known_reference_keeps_its_text(opened: Opened):
    held = opened(SMALL).originals
    held.keep({"u:1": "first"})
    held.keep({"u:1": "second"})
    assert held.read("u:1") == "first"


def test_texts_are_bounded_by_their_characters_and_the_newest_stays(opened: Opened):
    held = opened(StoreLimits(characters=10)).originals
    held.keep({"u:1": "12345", "u:2": "12345"})
    held.keep({"u:3": "1"})
    assert [held.read(f"u:{n}") for n in (1, 2, 3)] == [None, "12345", "1"]
    held.keep({"u:4": "far over the limit, alone"})
    assert [held.read(f"u:{n}") for n in (2, 3, 4)] == [None, None, "far over the limit, alone"]


# ── time ────────────────────────────────────────────────────────────────────────────────────────


def test_what_nobody_used_for_its_time_is_purged(opened: Opened):
    store = opened(StoreLimits(ttl_s=10))
    store.checkpoints.save(checkpoint("p", 1))
    store.conversations.save(talk("p"))
    store.originals.keep({"u:1": "text"})
    assert store.purge(1_009.9) == 0
    assert store.purge(1_010) == 3
    assert store.checkpoints.load("s", ["p"]) is None
    assert store.conversations.load("s", ["p"]) is None
    assert store.originals.read("u:1") is None


@pytest.mark.parametrize("wrong", [{"most": 0}, {"characters": 0}, {"ttl_s": 0}, {"ttl_s": -1}])
def test_limits_that_keep_nothing_are_refused(wrong: dict):
    with pytest.raises(ConfigurationError, match="at least one record"):
        StoreLimits(**wrong)


def test_a_store_that_is_closed_can_be_closed_again(opened: Opened):
    store = opened(SMALL)
    store.checkpoints.save(checkpoint("p", 1))
    store.close()
    store.close()


# ── the same operations on all of them ──────────────────────────────────────────────────────────

PREFIXES = st.sampled_from(["a", "b", "c", "d"])
SCOPES = st.sampled_from(["s", "t"])
CHECKPOINTS = st.builds(
    lambda prefix, drop, scope, generation, policy: checkpoint(
        prefix, drop, scope=scope, generation=generation, policy=policy
    ),
    *(PREFIXES, st.integers(0, 2), SCOPES, st.integers(0, 2), st.sampled_from(["one", "two"])),
)
LISTS = st.lists(PREFIXES, max_size=4)
REFERENCES = st.sampled_from([f"u:{n}" for n in range(5)])


class Stores(RuleBasedStateMachine):
    """Memory and a store that lasts under the same operations, by one clock."""

    def __init__(self):
        super().__init__()
        self.clock = FakeClock(1_000)
        self.folder = tempfile.TemporaryDirectory()
        self.memory: Store = MemoryStore(SMALL, now=self.clock)
        self.lasting: Store = self.opened()

    def opened(self) -> Store:
        path = Path(self.folder.name) / "store.db"
        return SqliteStore(path, limits=SMALL, now=self.clock)

    def teardown(self):
        self.lasting.close()
        self.folder.cleanup()

    def same(self, do: Callable[[Store], object]):
        assert do(self.memory) == do(self.lasting)

    @rule(made=CHECKPOINTS)
    def save(self, made: Checkpoint):
        self.same(lambda store: store.checkpoints.save(made))

    @rule(made=CHECKPOINTS, tokens=st.integers(1, 99))
    def measured(self, made: Checkpoint, tokens: int):
        self.same(lambda store: store.checkpoints.save_measured(sized(made, tokens)))

    @rule(made=CHECKPOINTS)
    def undo(self, made: Checkpoint):
        self.same(lambda store: store.checkpoints.undo(made))

    @rule(scope=SCOPES, prefixes=LISTS)
    def load(self, scope: str, prefixes: list[str]):
        self.same(lambda store: store.checkpoints.load(scope, prefixes))

    @rule(scope=SCOPES, prefix=PREFIXES, covered=st.integers(0, 9))
    def remember(self, scope: str, prefix: str, covered: int):
        self.same(lambda store: store.conversations.save(talk(prefix, scope, covered)))

    @rule(scope=SCOPES, prefixes=LISTS)
    def recall(self, scope: str, prefixes: list[str]):
        self.same(lambda store: store.conversations.load(scope, prefixes))

    @rule(items=st.dictionaries(REFERENCES, st.text(max_size=8), max_size=4))
    def keep(self, items: dict[str, str]):
        self.same(lambda store: store.originals.keep(items))

    @rule(reference=REFERENCES)
    def read(self, reference: str):
        self.same(lambda store: store.originals.read(reference))

    @rule(seconds=st.integers(0, 6))
    def wait(self, seconds: int):
        self.clock.advance(seconds)

    @rule()
    def purge(self):
        self.same(lambda store: store.purge(self.clock()))

    @rule()
    def reopen(self):
        self.memory.purge(self.clock())
        self.lasting.close()
        self.lasting = self.opened()

    @invariant()
    def all_alike(self):
        self.same(lambda store: store.checkpoints.all())


TestStores = Stores.TestCase


@pytest.mark.slow
def test_postgresql_gives_the_same_answers_to_any_order_of_operations(
    postgres_database: Callable[[], str],
):
    url = postgres_database()

    class WithPostgres(Stores):
        def opened(self) -> Store:
            return shared(url, SMALL, self.clock)

        def teardown(self):
            self.lasting.purge(self.clock() + 1_000)  # the next run finds it empty
            super().teardown()

    run_state_machine_as_test(WithPostgres)


def test_a_closed_file_says_that_it_is_closed(tmp_path: Path):
    store = SqliteStore(tmp_path / "store.db")
    store.close()
    with pytest.raises(StoreError, match=r"store\.db was closed"):
        store.checkpoints.all()
